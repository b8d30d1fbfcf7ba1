"""When servers that talk to each other count as being at rest."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import NotedRun, Peer, participant
from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.resting import Resting
from syncline.engines.net.control import AskRest, Rest
from syncline.messages import server_id


class WaitingRun(NotedRun):
    """Calls what is to happen later when the test says so."""

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.next = action


class Nodes:
    """Two servers that are asked."""

    def __init__(self, peer: Callable[[], Peer]) -> None:
        self.peers = [peer() for _ in range(2)]
        self.known: dict[int, Participant] = {
            number: participant(each, server_id(number)) for number, each in enumerate(self.peers)
        }
        self.run = WaitingRun()
        self.resting = Resting(self.run, self.known)
        self.over = 0

    def begin(self) -> None:
        self.resting.ask(self.known.keys(), self.end)

    def end(self) -> None:
        self.over += 1

    def answer(self, *answers: tuple[bool, int]) -> None:
        """Each server answers what it was asked: whether it is at rest, and how many events it has handled."""
        for number, (at_rest, handled) in enumerate(answers):
            (asked,) = self.peers[number].heard()
            assert isinstance(asked, AskRest)
            self.resting.heard(self.known[number], Rest(asked.number, at_rest, handled))


@pytest.fixture
def nodes(peer: Callable[[], Peer]) -> Nodes:
    return Nodes(peer)


def test_all_are_at_rest_if_nothing_happens_between_two_rounds_of_questions(nodes: Nodes) -> None:
    nodes.begin()
    nodes.answer((True, 5), (True, 7))
    assert not nodes.over
    nodes.run.next()
    nodes.answer((True, 5), (True, 7))
    assert nodes.over == 1


def test_a_node_that_has_handled_something_since_is_asked_again(nodes: Nodes) -> None:
    nodes.begin()
    for answers in [((True, 5), (False, 7)), ((True, 5), (True, 8)), ((True, 6), (True, 8)), ((True, 6), (True, 9))]:
        nodes.answer(*answers)
        assert not nodes.over
        nodes.run.next()
    nodes.answer((True, 6), (True, 9))
    assert nodes.over == 1


def test_answers_from_before_a_server_was_lost_do_not_count(nodes: Nodes) -> None:
    nodes.begin()
    nodes.answer((True, 5), (True, 7))
    late = nodes.run.next
    nodes.resting.stop()
    late()
    assert nodes.peers[0].heard() == []
    del nodes.known[1]
    nodes.begin()
    nodes.answer((True, 5))
    nodes.run.next()
    nodes.answer((True, 5))
    assert nodes.over == 1
    nodes.resting.heard(nodes.known[0], Rest(1, True, 5))
    assert nodes.over == 1


def test_asking_twice_changes_nothing(nodes: Nodes) -> None:
    nodes.begin()
    nodes.begin()
    nodes.answer((True, 5), (True, 7))
