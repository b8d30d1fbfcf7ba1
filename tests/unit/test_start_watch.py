"""A start that takes long: which processes are named, and when."""

from __future__ import annotations

from syncline.engines.coordinator.first_hosts import FirstHosts
from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.roster import Roster, RosterEntry
from syncline.engines.coordinator.start_watch import TRY_CONNECT, TRY_DECLARE, TRY_HOSTS, TRY_SERVERS, StartWatch
from syncline.engines.net.control import Hello, HostShare
from syncline.engines.net.wiring import Wiring


def watch(roster: Roster, workers: int = 2, servers: int = 1, share: HostShare | None = None) -> StartWatch:
    return StartWatch(FirstHosts(share), roster, workers, servers)


def there(roster: Roster, role: str, number: int) -> None:
    hello = Hello("run", role, number)
    entry = RosterEntry(hello)
    entry.peers.append(Participant(None, hello, None))  # type: ignore[arg-type]
    (roster.servers if role == "server" else roster.workers)[number] = entry


def test_nothing_is_said_at_first_and_then_at_growing_intervals() -> None:
    found = watch(Roster(2, 1, Wiring()))
    lines = {second: found.line((), float(second)) for second in range(90)}
    assert [second for second, line in lines.items() if line is not None] == [10, 20, 40, 80]
    names = "worker 0 (not connected), worker 1 (not connected) and server 0 (not connected)"
    assert lines[10] == f"waiting for {names} for 10 s: {TRY_CONNECT}; {TRY_SERVERS}"
    assert found.has_spoken


def test_only_those_who_are_missing_are_named() -> None:
    roster = Roster(3, 1, Wiring())
    there(roster, "server", 0)
    there(roster, "worker", 1)
    found = watch(roster, 3)
    assert found.line({0}, 0.0) is None
    names = "worker 2 (not connected) and worker 1 (has no model yet)"
    assert found.line({0}, 11.0) == f"waiting for {names} for 11 s: {TRY_CONNECT}; {TRY_DECLARE}"


def test_while_a_host_is_missing_only_hosts_are_named() -> None:
    share = HostShare(0, 2, (0, 1), (0, 1))
    found = watch(Roster(2, 2, Wiring()), 2, 2, share)
    assert found.line((), 0.0) is None
    assert found.line((), 10.0) == f"waiting for host 1 of 2 to start for 10 s: {TRY_HOSTS}"


def test_nothing_is_said_if_all_are_there() -> None:
    found = watch(Roster(0, 0, Wiring()), 0, 0)
    assert [found.line((), float(second)) for second in range(30)] == [None] * 30
