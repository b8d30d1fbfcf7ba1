"""Which servers a run can lose, and what each of them is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import Peer, participant
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.coordinator.server_departures import LAST, ServerDepartures
from syncline.engines.net.control import Refused, Released
from syncline.errors import UsageError
from syncline.messages import server_id


class Model:
    """A model, and its servers that come and go, in one: what each server holds is said by the test."""

    def __init__(self, *holding: int, begun: bool = True) -> None:
        self.changes = self
        self.begun = begun
        self.holding = set(holding)
        self.known: set[int] = set()
        """Servers that a joiner may still connect to."""
        self.waiting: set[int] = set()
        """Servers that leave when another is there."""
        self.asked: list[str] = []
        self.problem = ""

    def is_free(self, number: int) -> bool:
        return number not in self.holding

    def is_known_to_joiners(self, number: int) -> bool:
        return number in self.known

    def check_leaving(self, number: int) -> None:
        if self.problem:
            raise UsageError("server", self.problem)

    def leave(self, number: int) -> None:
        self.asked.append(f"leave {number}")

    def begin_if_ready(self) -> None:
        self.asked.append("begin")

    def stay(self, number: int) -> bool:
        waits = number in self.waiting
        self.waiting.discard(number)
        return waits

    def closed(self, number: int) -> None:
        self.asked.append(f"closed {number}")


class Office:
    """Servers 0 to 2, of which the run was started with two; what they hear, and what launchers are told."""

    def __init__(self, peer: Callable[[], Peer], *models: Model) -> None:
        self.peers = {number: peer() for number in range(3)}
        self.told: list[str] = []
        self.servers: dict[int, RosterEntry] = {}
        for number, each in self.peers.items():
            known = participant(each, server_id(number))
            self.servers[number] = RosterEntry(known.hello, peers=[known])
        self.models = {str(number): model for number, model in enumerate(models)}
        self.departures = ServerDepartures(
            self.servers,
            self.models,  # type: ignore[arg-type]
            2,
            lambda wire, message: wire.send(message),
            lambda who, what: self.told.append(f"{who.id}: {what}"),
        )

    def heard(self) -> list[list[object]]:
        return [list(each.heard()) for each in self.peers.values()]

    def lose(self, number: int) -> None:
        """The only connection of a server ends."""
        entry = self.servers.pop(number)
        gone = entry.peers.pop()
        self.departures.gone(entry, gone, "its connection ended")


@pytest.fixture
def office(peer: Callable[[], Peer]) -> Callable[..., Office]:
    return lambda *models: Office(peer, *models)


Make = Callable[..., Office]


def test_a_server_is_needed_that_holds_something_or_that_a_run_begins_with(office: Make) -> None:
    early, begun = office(Model(begun=False)), office(Model(1), Model(2))
    assert [early.departures.needs(number) for number in range(3)] == [True, True, False]
    assert [begun.departures.needs(number) for number in range(3)] == [False, True, True]
    assert [office().departures.needs(number) for number in range(3)] == [True, True, False]


def test_a_server_that_joins_is_told_of_once(office: Make) -> None:
    found = office(Model(0), Model(0))
    found.departures.joined(2, hands_over=True)
    found.departures.joined(2, hands_over=True)
    assert found.told == ["server2: has joined; the others hand over its part"]


def test_a_server_that_gets_no_part_is_refused_unless_another_model_needs_it(office: Make) -> None:
    found = office(Model(0), Model(0, 1))
    found.departures.refuse(1, "too large")
    found.departures.refuse(2, "too large")
    assert found.told == [f"server{number}: gets no part of the model: too large" for number in (1, 2)]
    assert found.heard() == [[], [], [Refused("too large")]]
    found.departures.refuse(7, "nobody is there")
    assert len(found.told) == 2


# Leaving.


def test_a_server_that_is_asked_to_leave_is_released_when_it_holds_nothing(office: Make) -> None:
    model = Model(0, 1)
    found = office(model)
    found.departures.withdraw(1)
    found.departures.withdraw(1)
    assert found.told == ["server1: is leaving; the others take over what it holds"]
    assert model.asked == ["leave 1", "begin"]
    found.departures.settled()
    assert found.heard() == [[], [], []]
    model.holding.discard(1)
    for _ in range(2):
        found.departures.settled()
    assert found.heard() == [[], [Released()], []]


def test_it_is_not_released_while_somebody_may_still_look_for_it(office: Make) -> None:
    model = Model(0)
    model.known = {1}
    found = office(model)
    found.departures.withdraw(1)
    assert found.heard() == [[], [], []]
    model.known.clear()
    found.departures.settled()
    assert found.heard() == [[], [Released()], []]


def test_it_must_hold_nothing_of_any_model(office: Make) -> None:
    first, second = Model(0), Model(0, 1)
    found = office(first, second)
    found.departures.withdraw(1)
    assert found.heard() == [[], [], []]
    assert [model.asked for model in (first, second)] == [["leave 1", "begin"]] * 2


def test_the_last_one_that_stays_cannot_leave(office: Make) -> None:
    model = Model(0, 1, 2)
    found = office(model)
    for number in range(3):
        found.departures.withdraw(number)
    assert found.told[-1] == f"server2: cannot leave: {LAST}"
    assert model.asked == ["leave 0", "begin", "leave 1", "begin"]
    assert [entry.leaving for entry in found.servers.values()] == [True, True, False]


def test_a_server_whose_part_nobody_can_take_over_stays(office: Make) -> None:
    first, second = Model(0, 1), Model(0, 1)
    second.problem = "a bucket is too large"
    found = office(first, second)
    found.departures.withdraw(1)
    assert found.told == ["server1: cannot leave: a bucket is too large"]
    assert (first.asked, second.asked) == ([], [])
    assert not found.servers[1].leaving


# Gone.


def test_a_server_that_was_released_has_left(office: Make) -> None:
    found = office(Model(0))
    found.departures.withdraw(1)
    found.lose(1)
    assert found.told[-1] == "server1: has left; the others hold what it held"


def test_a_server_that_held_nothing_is_gone(office: Make) -> None:
    model = Model(0)
    found = office(model)
    found.servers[2].peers[0].trained = model  # type: ignore[assignment]
    found.lose(2)
    assert found.told == ["server2: is gone: its connection ended"]
    assert model.asked == ["closed 2"]


def test_servers_that_could_leave_only_with_a_server_that_is_gone_stay(office: Make) -> None:
    """Servers 0 and 1 are to leave once server 2 holds something; then it is gone."""
    model = Model(0, 1)
    found = office(model)
    for number in (0, 1):
        found.departures.withdraw(number)
    model.waiting = {1}
    found.lose(2)
    assert found.told[-2:] == ["server2: is gone: its connection ended", f"server1: cannot leave: {LAST}"]
    assert [entry.leaving for entry in found.servers.values()] == [True, False]


def test_servers_that_are_merged_leave_when_they_hold_nothing(peer: Callable[[], Peer]) -> None:
    model = Model(0, 1, 2)
    found = Office(peer, model)
    found.departures.merge([1, 2], 0)
    assert found.told == [
        "server1: is leaving; server 0 takes over what it holds",
        "server2: is leaving; server 0 takes over what it holds",
    ]
    assert not any(each.heard() for each in found.peers.values())
    model.holding = {0, 2}
    found.departures.settled()
    assert [each.heard() for each in found.peers.values()] == [[], [Released()], []]


def test_a_server_that_died_while_it_left_goes_on_leaving(peer: Callable[[], Peer]) -> None:
    found = Office(peer, Model(0, 1))
    for number in (1, 2):
        found.departures.returned(number, saved=True)
    assert [found.servers[number].leaving for number in range(3)] == [False, False, True]
