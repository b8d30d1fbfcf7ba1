"""The launchers that begin a run together: who is missing, who is refused, and who has started which process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peers import Peer
from syncline.engines.coordinator.first_hosts import Disagreement, FirstHosts, share_of
from syncline.engines.coordinator.launchers import Launchers
from syncline.engines.coordinator.roster import Refusal
from syncline.engines.launch import first_contact
from syncline.engines.launch.first_contact import reach_first_host
from syncline.engines.launch.hosts import Hosts, run_secret
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.net.control import Ended, Hello, HostShare
from syncline.engines.net.keys import key_from_variable
from syncline.engines.net.wiring import NotListening, Wiring
from syncline.errors import UsageError
from syncline.messages import server_id, worker_id

AT = "127.0.0.1:7070"


def plan(rank: int, **fields: Any) -> Plan:
    return Plan([], **{"workers": 2, "hosts": Hosts(3, rank, AT), **fields})


def share(rank: int, **fields: Any) -> HostShare:
    found = plan(rank, **fields).share
    assert found is not None
    return found


@pytest.fixture
def first() -> FirstHosts:
    return FirstHosts(share(0))


# Shares.


def test_every_host_starts_its_own_numbers() -> None:
    shares = [share(rank) for rank in range(3)]
    assert [each.workers for each in shares] == [(0, 2), (2, 4), (4, 6)]
    assert [each.servers for each in shares] == [(0, 1), (1, 2), (2, 3)]
    assert (plan(1).all_workers, plan(1).all_servers, plan(1).server_count) == (6, 3, 1)


def test_only_some_start_servers() -> None:
    plans = [plan(rank, servers=2, hosts=Hosts(3, rank, AT, serving=2)) for rank in range(3)]
    assert [each.share.servers for each in plans if each.share] == [(0, 2), (2, 4), (0, 0)]
    assert {each.all_servers for each in plans} == {4}


def test_the_nodes_of_a_tree_are_divided_among_the_hosts() -> None:
    """By default a tree has as many nodes as workers; here two on each host."""
    each = plan(1, settings={"strategy": "tree:topology=star"})
    assert (each.all_servers, list(each.servers_here)) == (6, [2, 3])


def test_workers_without_servers() -> None:
    assert plan(1, settings={"strategy": "exchange:partitions=1"}).all_servers == 0


def test_one_sync_model_for_each_server_of_the_run() -> None:
    assert plan(1, settings={"sync": "bsp asp asp"}).strategy.servers == 3
    with pytest.raises(UsageError, match="has 2 models for 3 servers"):
        plan(1, settings={"sync": "bsp asp"}).settled()


def test_a_share_travels_to_the_coordinator_as_text() -> None:
    import msgspec

    assert share_of("") is None
    assert share_of(msgspec.json.encode(share(2)).decode()) == share(2)


# Options.


@pytest.mark.parametrize(
    ("hosts", "option"),
    [
        (Hosts(0, 0, AT), "--hosts"),
        (Hosts(2000, 0, AT), "--hosts"),
        (Hosts(2, 2, AT), "--host-rank"),
        (Hosts(2, -1, AT), "--host-rank"),
        (Hosts(2, 0, "127.0.0.1:0"), "--at"),
        (Hosts(2, 0, "127.0.0.1"), "--at"),
        (Hosts(2, 0, "10.0.0.300:7070"), "--at"),
        (Hosts(2, 1, "192.0.2.7:7070"), "--hosts"),
        (Hosts(2, 1, "a-name:7070"), "--hosts"),
        (Hosts(2, 0, AT, serving=3), "--server-hosts"),
        (Hosts(1000, 0, AT), "--workers"),
    ],
)
def test_bad_places_are_refused_by_name(hosts: Hosts, option: str) -> None:
    with pytest.raises(UsageError) as caught:
        checked(Plan([], workers=2, hosts=hosts))
    assert caught.value.option == option


def test_without_a_key_the_refusal_says_what_to_do() -> None:
    with pytest.raises(UsageError) as caught:
        checked(Plan([], hosts=Hosts(2, 1, "192.0.2.7:7070")))
    for word in ("SYNCLINE_KEY ", "SYNCLINE_KEY_FILE", "--key-file", "same on every host"):
        assert word in f"{caught.value.problem} "


def test_listen_is_not_needed() -> None:
    with pytest.raises(UsageError) as caught:
        checked(plan(0), listen="127.0.0.1:0")
    assert caught.value.option == "--listen"


def test_the_first_host_listens_and_the_others_connect() -> None:
    key = key_from_variable("0123456789abcdef")
    at_name = [
        checked(Plan([], wiring=Wiring(key=key), hosts=Hosts(2, rank, "node-0:7070")), dry=True) for rank in (0, 1)
    ]
    assert [(each.leads, each.joins, each.places) for each in at_name] == [
        (True, False, ()),
        (False, False, ("node-0:7070",)),
    ]
    assert (at_name[0].wiring.listen, at_name[0].port) == ("0.0.0.0", 7070)


def test_the_secret_of_a_run_needs_the_key() -> None:
    one, other = (Wiring(key=key_from_variable(word * 16)) for word in "ab")
    assert run_secret(one, "run") == run_secret(one, "run")
    assert len({run_secret(one, "run"), run_secret(one, "another"), run_secret(other, "run")}) == 3


# The coordinator.


def test_who_is_missing(first: FirstHosts, peer: Callable[[], Peer]) -> None:
    wire = peer().wire
    first.enter(wire, share(1))
    assert (first.missing, first.rank(wire)) == ([2], 1)
    first.leave(wire)
    assert (first.missing, first.rank(wire)) == ([1, 2], None)
    assert FirstHosts(None).missing == []


def test_the_user_is_told_at_growing_intervals(first: FirstHosts, peer: Callable[[], Peer]) -> None:
    lines = [first.line(float(now)) for now in range(45)]
    assert {now: line for now, line in enumerate(lines) if line} == {
        10: "waiting for host 1 and host 2 of 3 to start for 10 s",
        20: "waiting for host 1 and host 2 of 3 to start for 20 s",
        40: "waiting for host 1 and host 2 of 3 to start for 40 s",
    }
    for rank in (1, 2):
        first.enter(peer().wire, share(rank))
    assert first.line(1000.0) is None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"workers": 3}, "--workers: is '3' on host 1, and '2' on host 0"),
        ({"hosts": Hosts(4, 1, AT)}, "--hosts: is '4' on host 1, and '3' on host 0"),
        ({"settings": {"sync": "ssp:3"}}, "--sync: is 'ssp:3' on host 1, and not given on host 0"),
        ({"servers": 2}, "--servers: is '2' on host 1, and '1' on host 0"),
        ({"restarts": 2}, "--restarts: is '2' on host 1, and '0' on host 0"),
        ({"hosts": Hosts(3, 1, AT, serving=1)}, "--server-hosts: is '1' on host 1, and '3' on host 0"),
        ({"wiring": Wiring(resume="/runs/step-7")}, "--resume: is 'step-7' on host 1, and not given on host 0"),
    ],
)
def test_other_options_are_refused_with_the_first_difference(
    first: FirstHosts, fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(Disagreement) as caught:
        first.check(share(1, **fields))
    assert str(caught.value) == f"{text}; start all hosts with the same options"


def test_long_options_are_compared_by_a_checksum(first: FirstHosts) -> None:
    one, other = (share(1, wiring=Wiring(resume="/runs/" + 200 * "long " + last)) for last in "ab")
    assert max(len(word) for word in one.terms.values()) <= 100
    assert one.terms != other.terms


def test_a_rank_is_there_once(first: FirstHosts, peer: Callable[[], Peer]) -> None:
    first.check(share(1))
    first.enter(peer().wire, share(1))
    with pytest.raises(Refusal, match="host 1 is connected already"):
        first.check(share(1))
    with pytest.raises(Refusal, match="no other host 0"):
        first.check(share(0))
    with pytest.raises(Refusal, match="does not begin on several hosts"):
        FirstHosts(None).check(share(1))


def test_a_launcher_has_started_the_processes_of_its_share(first: FirstHosts, peer: Callable[[], Peer]) -> None:
    """On one machine, the host of a process does not tell which launcher has started it."""
    launchers = Launchers(lambda wire, message: wire.send(message), first)
    two, joined = peer(), peer()
    first.enter(two.wire, share(1))
    launchers.all = {
        two.wire: Hello("", "agent", host="a", token="its own", share=share(1)),
        joined.wire: Hello("", "agent", host="a", token="another"),
    }
    child, guest = Hello("run", "worker", 2, host="a", token="derived"), Hello("", "worker", host="a", token="another")
    cases = [(child, worker_id(2)), (child, worker_id(4)), (child, server_id(1)), (child, server_id(2))]
    assert [launchers.has_started(two.wire, *case) for case in cases] == [True, False, True, False]
    assert not launchers.has_started(two.wire, guest, worker_id(7))
    assert launchers.has_started(joined.wire, guest, worker_id(7))
    launchers.tell_first(Ended())
    assert (two.heard(), joined.heard()) == ([Ended()], [])


# The other hosts.


def test_a_launcher_waits_for_the_first_host_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [0.0], []

    class Reached(Exception):
        pass

    def reach(places: tuple[str, ...], *_: object) -> None:
        if now[0] < 45:
            raise NotListening(f"cannot reach {places[0]}: no process listens there")
        raise Reached

    monkeypatch.setattr(first_contact, "monotonic", lambda: now[0])
    monkeypatch.setattr(first_contact, "sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    monkeypatch.setattr(first_contact, "reach", reach)
    with pytest.raises(Reached):
        reach_first_host(AT, Wiring(), Hello("", "agent"), 10.0, said.append)
    seconds = (10, 20, 40)
    assert said == [f"waiting for host 0 for {each} s: cannot reach {AT}: no process listens there" for each in seconds]
