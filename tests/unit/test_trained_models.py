"""The models of a run: which connection is about which of them, and what servers are asked for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import NotedRun, Peer, participant
from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.coordinator.trained_model import OVER
from syncline.engines.coordinator.trained_models import MOST_MODELS, TrainedModels
from syncline.engines.net.control import Another, Begin, Declare, Declared, Refused
from syncline.errors import PeerError
from syncline.messages import server_id, worker_id

TABLES = (Declared("w", (100,)),)


class Office:
    """One server, and as many connections of workers as are asked for."""

    def __init__(self, peer: Callable[[], Peer], expected: int = 1) -> None:
        self._peer = peer
        self.run = NotedRun(expected)
        self.server = peer()
        known = participant(self.server, server_id(0))
        self.servers = {0: RosterEntry(known.hello, peers=[known])}
        self.models = TrainedModels(self.run, self.servers)

    def worker(self, number: int = 0) -> tuple[Peer, Participant]:
        made = self._peer()
        return made, participant(made, worker_id(number), own=number < self.run.expected)

    def declare(self, model: str, number: int = 0, *, stopping: bool = False) -> tuple[Peer, Participant]:
        """A worker says on a connection of its own that it trains this."""
        made, known = self.worker(number)
        self.models.declare(known, Declare(TABLES, {}, model), stopping)
        return made, known

    def answer(self) -> Participant:
        """The server opens a further connection, as it was asked to."""
        known = participant(self._peer(), server_id(0))
        entry = self.servers[0]
        entry.peers.append(known)
        entry.asked -= 1
        self.models.assign_servers()
        return known


@pytest.fixture
def office(peer: Callable[[], Peer]) -> Office:
    return Office(peer)


def test_the_first_model_gets_the_connection_that_is_there(office: Office) -> None:
    assert not office.models.begun
    _, known = office.declare("first")
    assert list(office.models.all) == ["first"]
    assert known.trained is office.models.all["first"]
    assert office.servers[0].peers[0].trained is known.trained
    assert [type(frame) for frame in office.server.heard()] == [Begin]
    assert office.models.begun
    assert office.models.trained
    assert not office.models.over


def test_a_server_is_asked_for_a_connection_for_each_further_model(office: Office) -> None:
    for name in ("first", "second", "third"):
        office.declare(name)
    begin, *rest = office.server.heard()
    assert isinstance(begin, Begin)
    assert rest == [Another(), Another()]
    second, third = office.answer(), office.answer()
    assert [each.trained and each.trained.name for each in (second, third)] == ["second", "third"]
    assert office.server.heard() == []
    assert all(model.begun for model in office.models.all.values())


def test_a_server_that_is_leaving_is_asked_for_nothing(office: Office) -> None:
    office.servers[0].leaving = True
    office.declare("first")
    assert office.server.heard() == []
    assert not office.models.begun


def test_a_model_begins_when_all_have_declared_it(peer: Callable[[], Peer]) -> None:
    office = Office(peer, expected=2)
    office.declare("first", 0)
    assert office.server.heard() == []
    office.declare("first", 1)
    (begin,) = office.server.heard()
    assert isinstance(begin, Begin)
    assert [member.worker for member in begin.view.members] == [0, 1]


def test_nobody_waits_for_those_who_do_not_come(peer: Callable[[], Peer]) -> None:
    office = Office(peer, expected=2)
    office.declare("first", 0)
    office.run.count_out(1)
    office.models.begin_if_ready()
    (begin,) = office.server.heard()
    assert [member.worker for member in begin.view.members] == [0]  # type: ignore[union-attr]


def test_a_connection_is_about_one_model(office: Office) -> None:
    _, known = office.declare("first")
    with pytest.raises(PeerError, match="a second model on one connection"):
        office.models.declare(known, Declare(TABLES, {}, "second"), False)
    assert list(office.models.all) == ["first"]


def test_the_number_of_models_is_limited(office: Office) -> None:
    for number in range(MOST_MODELS):
        office.declare(f"model {number}")
    with pytest.raises(PeerError, match=f"one model more than the limit of {MOST_MODELS}"):
        office.declare("one more")
    assert len(office.models.all) == MOST_MODELS


def test_when_the_run_ends_nothing_new_is_trained(office: Office) -> None:
    made, known = office.declare("first", stopping=True)
    assert made.heard() == [Refused(OVER)]
    assert office.run.told == [(known.id, f"refused: {OVER}")]
    assert office.server.heard() == []


def test_what_nobody_trains_is_no_model(peer: Callable[[], Peer]) -> None:
    """Its server's connection is free for the next one."""
    office = Office(peer, expected=2)
    _, known = office.declare("a mistake")
    model = known.trained
    assert model is not None
    model.closed(known, "")
    office.models.forget_if_empty(model)
    assert office.models.all == {}
    assert office.servers[0].peers[0].trained is None
    office.declare("first", 0)
    office.declare("first", 1)
    assert [type(frame) for frame in office.server.heard()] == [Begin]


def test_what_has_begun_is_remembered(office: Office) -> None:
    _, known = office.declare("first")
    assert known.trained is not None
    known.trained.closed(known, "")
    office.models.forget_if_empty(known.trained)
    assert list(office.models.all) == ["first"]


# Joiners that come before the run begins: the run's own workers decide.

OTHER = (Declared("w", (101,)),)


def joins(office: Office, number: int, declare: Declare) -> Peer:
    made, known = office.worker(number)
    office.models.declare(known, declare, False)
    return made


@pytest.mark.parametrize(
    ("declare", "problem"),
    [
        (Declare(OTHER), "trains another model"),
        (Declare(TABLES, {"sync": "asp"}), "worker 2 asks for asp, and the run has bsp"),
    ],
)
def test_an_early_joiner_that_does_not_fit_fails_alone(
    declare: Declare, problem: str, peer: Callable[[], Peer]
) -> None:
    office = Office(peer, expected=2)
    joiner = joins(office, 2, declare)
    assert joiner.heard() == [], "nobody knows yet what the run trains"
    workers = [joins(office, number, Declare(TABLES)) for number in range(2)]
    begin = office.server.heard()[0]
    assert isinstance(begin, Begin)
    assert [member.worker for member in begin.view.members] == [0, 1]
    assert [each.heard() for each in workers] == [[], []], "the servers are told first"
    (refused,) = joiner.heard()
    assert isinstance(refused, Refused)
    assert problem in refused.reason
    assert refused.usage
    assert office.run.counted_out == [2]
    assert office.run.aborted == []


def test_an_early_joiner_that_fits_starts_with_the_others(peer: Callable[[], Peer]) -> None:
    office = Office(peer, expected=1)
    joins(office, 1, Declare(TABLES))
    joins(office, 0, Declare(TABLES))
    begin = office.server.heard()[0]
    assert isinstance(begin, Begin)
    assert [member.worker for member in begin.view.members] == [0, 1]
    assert begin.leader == 0


def test_a_model_that_only_joiners_have_declared_keeps_nobody(office: Office) -> None:
    office.declare("model")
    office.declare("another", 7)
    office.models.all["model"].ended = True
    assert office.models.over
