"""The roster: which hello is accepted, under which number and incarnation, and which process is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from peers import HERE, Peer
from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.roster import (
    MOST_CONNECTIONS,
    MOST_JOINING,
    MOST_SERVERS,
    MOST_WORKERS,
    READING,
    Refusal,
    Roster,
)
from syncline.engines.net.control import PROTOCOL, Hello
from syncline.engines.net.wiring import Wiring
from syncline.messages import server_id, worker_id

Make = Callable[[], Peer]

WIRING = Wiring(run="run", listen="127.0.0.1", token="the secret of the run")
JOINED = "a token of its own"


class Trained:
    """A model, as far as the roster asks."""

    def __init__(self, *members: Participant, begun: bool = True) -> None:
        self.begun = begun
        self._members = members

    def is_member(self, peer: Participant) -> bool:
        return peer in self._members


@pytest.fixture
def roster() -> Roster:
    """The roster of a run with two workers and two servers, which others may join."""
    return Roster(2, 2, WIRING)


def worker(number: int = -1, **fields: Any) -> Hello:
    known = {"pid": 10 + number, "host": HERE, "token": token("worker", number)}
    return Hello("run" if number >= 0 else "", "worker", number, **{**known, **fields})


def server(number: int = -1, **fields: Any) -> Hello:
    known = {"pid": 20 + number, "host": HERE, "token": token("server", number)}
    return Hello("run" if number >= 0 else "", "server", number, **{**known, **fields})


def token(role: str, number: int) -> str:
    """What the launcher gives to this process; a process that joins brings a token of its own."""
    return WIRING.of(role, number).token if 0 <= number < 2 else JOINED


# Who may speak.


@pytest.mark.parametrize(
    "hello",
    [
        worker(0),
        worker(),
        server(1),
        server(),
        Hello("run", "launcher", token=WIRING.of("launcher", -1).token),
        Hello("", "agent"),
        Hello("run", "agent"),
    ],
    ids=str,
)
def test_a_process_of_the_run_is_accepted(roster: Roster, hello: Hello) -> None:
    roster.check(hello, near=True)


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (worker(0, protocol=PROTOCOL + 1), f"you use {PROTOCOL + 1}"),
        (Hello("other", "worker", 0), "another run listens at this address"),
        (Hello("", "launcher"), "another run listens at this address"),
        (Hello("", "worker", 0), "cannot choose its number"),
        (Hello("", "server", 5), "cannot choose its number"),
        (Hello("run", "cook"), "'cook' is not a role"),
        (Hello("run", "launcher"), "you are not the launcher of this run"),
        (Hello("run", "launcher", token=WIRING.of("worker", 0).token), "you are not the launcher of this run"),
    ],
    ids=str,
)
def test_any_other_process_is_refused(roster: Roster, hello: Hello, why: str) -> None:
    with pytest.raises(Refusal, match=why):
        roster.check(hello, near=True)


@pytest.mark.parametrize("role", ["worker", "server", "agent"])
def test_nobody_joins_a_run_that_does_not_listen(role: str) -> None:
    with pytest.raises(Refusal, match="--listen"):
        Roster(1, 1, Wiring(run="run")).check(Hello("", role), near=True)


# Servers.


def test_a_server_has_the_number_that_it_was_started_with(roster: Roster, peer: Make) -> None:
    found = [roster.admit_server(peer().wire, server(number)) for number in (1, 0)]
    assert [each.id for each in found] == [server_id(1), server_id(0)]
    assert sorted(roster.servers) == [0, 1]
    assert roster.peers == {each.wire: each for each in found}


def test_a_server_that_joins_is_given_a_number_that_was_never_used(roster: Roster, peer: Make) -> None:
    first, second = (roster.admit_server(peer().wire, server(pid=pid)) for pid in (1, 2))
    assert [each.id.number for each in (first, second)] == [2, 3]
    roster.strike(first)
    assert roster.admit_server(peer().wire, server(pid=3)).id.number == 4


def test_a_server_opens_a_connection_for_each_model(roster: Roster, peer: Make) -> None:
    roster.admit_server(peer().wire, server(0))
    roster.servers[0].asked = 1
    again = roster.admit_server(peer().wire, server(0, again=True))
    assert again in roster.servers[0].peers
    assert len(roster.servers[0].peers) == 2
    assert roster.servers[0].asked == 0


@pytest.mark.parametrize(
    "hello",
    [server(0), server(2), server(1, again=True), server(0, again=True, pid=99), server(0, again=True, host="another")],
    ids=["there already", "unexpected", "again before it came", "another process", "another host"],
)
def test_a_server_that_was_not_expected_is_refused(roster: Roster, peer: Make, hello: Hello) -> None:
    roster.admit_server(peer().wire, server(0))
    with pytest.raises(Refusal, match=f"server {hello.number}"):
        roster.admit_server(peer().wire, hello)
    assert list(roster.servers) == [0]


def test_a_server_that_is_gone_does_not_come_back(roster: Roster, peer: Make) -> None:
    roster.strike(roster.admit_server(peer().wire, server(0)))
    with pytest.raises(Refusal, match="server 0"):
        roster.admit_server(peer().wire, server(0))
    assert roster.first_servers() == {1}


def test_a_model_does_not_begin_on_a_server_that_is_leaving(roster: Roster, peer: Make) -> None:
    roster.admit_server(peer().wire, server(1))
    roster.servers[1].leaving = True
    assert roster.first_servers() == {0}


# Workers.


def test_a_worker_that_comes_back_is_a_new_incarnation(roster: Roster, peer: Make) -> None:
    first = roster.admit_worker(peer().wire, worker(1))
    roster.strike(first)
    second = roster.admit_worker(peer().wire, worker(1))
    assert [(each.id, each.incarnation) for each in (first, second)] == [(worker_id(1), 0), (worker_id(1), 1)]
    assert roster.ever == {1: 1}


def test_a_worker_that_joins_is_given_a_number_after_the_expected_ones(roster: Roster, peer: Make) -> None:
    first = roster.admit_worker(peer().wire, worker(pid=1))
    roster.strike(first)
    second = roster.admit_worker(peer().wire, worker(pid=2))
    assert [(each.id.number, each.incarnation) for each in (first, second)] == [(2, 0), (3, 0)]


def test_further_connections_belong_to_the_same_process(roster: Roster, peer: Make) -> None:
    first = roster.admit_worker(peer().wire, worker(0))
    second = roster.admit_worker(peer().wire, worker(0, again=True))
    assert roster.workers[0].peers == [first, second]
    assert roster.strike(first) is roster.workers[0]
    assert roster.strike(second).peers == []
    assert roster.workers == {}


@pytest.mark.parametrize(
    ("hello", "why"),
    [
        (worker(0), "worker 0 is already connected"),
        (worker(1, again=True), "worker 1 is no longer connected in incarnation 0"),
        (worker(0, again=True, incarnation=1), "worker 0 is no longer connected in incarnation 1"),
        (worker(0, again=True, pid=99), "worker 0 is connected from a different process"),
        (worker(0, again=True, host="another"), "worker 0 is connected from a different process"),
    ],
)
def test_an_invalid_worker_is_refused(roster: Roster, peer: Make, hello: Hello, why: str) -> None:
    roster.admit_worker(peer().wire, worker(0))
    with pytest.raises(Refusal, match=why):
        roster.admit_worker(peer().wire, hello)


def test_the_connections_of_a_process_are_limited(roster: Roster, peer: Make) -> None:
    wire = peer().wire
    roster.admit_worker(wire, worker(0))
    for _ in range(MOST_CONNECTIONS - 1):
        roster.admit_worker(wire, worker(0, again=True))
    with pytest.raises(Refusal, match=f"{MOST_CONNECTIONS} connections"):
        roster.admit_worker(wire, worker(0, again=True))


# Who takes part, and who reads.


def test_who_takes_part(roster: Roster, peer: Make) -> None:
    """Before anything begins, those who are expected; then the members, and nobody who has left."""
    first, second, joiner = (roster.admit_worker(peer().wire, hello) for hello in (worker(0), worker(1), worker()))
    assert roster.participants() == {0, 1}
    for each in (first, second, joiner):
        each.trained = Trained(first, joiner)  # type: ignore[assignment]
    assert roster.participants() == {0, 2}
    first.trained = Trained(begun=False)  # type: ignore[assignment]
    assert roster.participants() == {0, 2}
    first.left = 1.0
    assert roster.participants() == {2}


def test_who_has_left_may_read_for_a_while(roster: Roster, peer: Make) -> None:
    reader = roster.admit_worker(peer().wire, worker(0))
    assert not roster.readers(0.0)
    reader.left = 100.0
    assert roster.readers(100.0 + READING - 1)
    assert not roster.readers(100.0 + READING)
    roster.strike(reader)
    assert not roster.readers(100.0)


# Numbers and tokens.


def test_a_number_belongs_to_the_process_that_shows_its_token(roster: Roster, peer: Make) -> None:
    for hello in (worker(0, token=""), worker(0, token=token("worker", 1)), worker(7), server(0, token=JOINED)):
        with pytest.raises(Refusal, match="is another process: you did not show its token"):
            (roster.admit_worker if hello.role == "worker" else roster.admit_server)(peer().wire, hello)
    assert roster.admit_worker(peer().wire, worker(0)).own
    joined = roster.admit_worker(peer().wire, worker())
    assert not joined.own
    roster.strike(joined)
    with pytest.raises(Refusal, match="is another process"):
        roster.admit_worker(peer().wire, worker(2, token="another"))
    assert roster.admit_worker(peer().wire, worker(2)).incarnation == 1


@pytest.mark.parametrize(("role", "most"), [("server", MOST_SERVERS), ("worker", MOST_WORKERS)])
def test_hellos_do_not_use_up_the_numbers(roster: Roster, peer: Make, role: str, most: int) -> None:
    """Numbers that were never published are reused when no others are left."""
    admit, wire = (roster.admit_server if role == "server" else roster.admit_worker), peer().wire
    known = admit(wire, Hello("", role, token=JOINED))
    known.named = known.entered = True
    roster.strike(known)
    for _ in range(most + 100):
        found = admit(wire, Hello("", role, token=JOINED))
        assert 2 < found.id.number < most
        roster.strike(found)


@pytest.mark.parametrize("role", ["server", "worker"])
def test_the_number_of_processes_that_join_at_a_time_is_limited(roster: Roster, peer: Make, role: str) -> None:
    admit, wire = (roster.admit_server if role == "server" else roster.admit_worker), peer().wire
    found = [admit(wire, Hello("", role, token=JOINED)) for _ in range(MOST_JOINING)]
    with pytest.raises(Refusal, match="joining already"):
        admit(wire, Hello("", role, token=JOINED))
    found[0].named = found[0].entered = True
    admit(wire, Hello("", role, token=JOINED))
