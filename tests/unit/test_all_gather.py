"""The all-gather: every worker sends a value and gets the values of all, when all have arrived, and never earlier."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import Peer, participant
from syncline.engines.coordinator.all_gather import MOST_BYTES, AllGather
from syncline.engines.coordinator.participant import Participant
from syncline.engines.net.control import Gathered, Refused, Share
from syncline.errors import PeerError
from syncline.messages import worker_id


class Meeting:
    """Workers 0 to 2, and what each of them hears."""

    def __init__(self, peer: Callable[[], Peer]) -> None:
        self.peers = [peer() for _ in range(3)]
        self.workers: list[Participant] = [participant(each, worker_id(n)) for n, each in enumerate(self.peers)]
        self.gather = AllGather(lambda wire, message: wire.send(message))

    def say(self, number: int, kind: str = "mean", data: bytes = b"") -> None:
        self.gather.say(self.workers[number], Share(kind, data))

    def heard(self) -> list[list[object]]:
        return [list(each.heard()) for each in self.peers]


@pytest.fixture
def meeting(peer: Callable[[], Peer]) -> Meeting:
    return Meeting(peer)


def test_all_hear_all_in_the_order_of_workers(meeting: Meeting) -> None:
    for number in (2, 0, 1):
        meeting.gather.end_if_all({0, 1, 2})
        assert meeting.heard() == [[], [], []]
        meeting.say(number, data=bytes([number]))
    meeting.gather.end_if_all({0, 1, 2})
    answer = Gathered("mean", (b"\x00", b"\x01", b"\x02"))
    assert meeting.heard() == [[answer]] * 3
    assert not meeting.gather.said


def test_workers_do_not_wait_for_a_value_that_is_not_needed(meeting: Meeting) -> None:
    meeting.say(1, data=b"x")
    meeting.gather.end_if_all({1})
    assert meeting.heard() == [[], [Gathered("mean", (b"x",))], []]


def test_a_worker_whose_value_is_not_needed_gets_the_answer_too(meeting: Meeting) -> None:
    meeting.say(0, data=b"a")
    meeting.say(1, data=b"b")
    meeting.gather.end_if_all({0})
    assert meeting.heard() == [[Gathered("mean", (b"a", b"b"))]] * 2 + [[]]


def test_values_of_workers_that_are_gone_are_left_out(meeting: Meeting) -> None:
    for number in range(3):
        meeting.say(number, data=bytes([number]))
    meeting.gather.leave(1)
    meeting.gather.leave(1)
    meeting.gather.end_if_all({0, 2})
    answer = Gathered("mean", (b"\x00", b"\x02"))
    assert meeting.heard() == [[answer], [], [answer]]


def test_without_values_nothing_is_sent(meeting: Meeting) -> None:
    meeting.gather.end_if_all(set())
    assert meeting.heard() == [[], [], []]


def test_a_second_value_of_a_worker_is_refused(meeting: Meeting) -> None:
    meeting.say(0)
    with pytest.raises(PeerError, match="a second value before the all-gather was complete"):
        meeting.say(0)
    meeting.gather.end_if_all({0})
    meeting.say(0)


def test_different_calls_are_named_to_all(meeting: Meeting) -> None:
    meeting.say(0, "mean")
    meeting.say(1, "barrier")
    meeting.gather.end_if_all({0, 1})
    refused = Refused("the workers wait for each other in different calls: barrier, mean", usage=True)
    assert meeting.heard() == [[refused], [refused], []]
    assert not meeting.gather.said


def test_the_values_of_all_workers_together_have_a_size_limit(meeting: Meeting) -> None:
    half = bytes(MOST_BYTES // 2)
    meeting.say(0, data=half)
    meeting.say(1, data=half + b"x")
    meeting.gather.end_if_all({0, 1})
    problem = f"mean: the workers sent {MOST_BYTES + 1:,} bytes together; the limit is {MOST_BYTES:,}"
    refused = Refused(problem, usage=True)
    assert meeting.heard() == [[refused], [refused], []]


def test_a_worker_that_is_not_a_member_cannot_take_part(meeting: Meeting, peer: Callable[[], Peer]) -> None:
    guest = peer()
    meeting.gather.say(participant(guest, worker_id(7), own=False), Share("another call", bytes(1 << 20)))
    (refused,) = guest.heard()
    assert isinstance(refused, Refused)
    assert refused.usage
    assert not meeting.gather.said
    meeting.say(0)
    meeting.gather.end_if_all({0})
    assert meeting.heard() == [[Gathered("mean", (b"",))], [], []]


def test_what_will_be_refused_is_not_kept(meeting: Meeting) -> None:
    for number in range(3):
        meeting.say(number, data=bytes(MOST_BYTES // 2 + 1))
    assert sum(len(share.data) for _, share in meeting.gather.said.values()) <= MOST_BYTES
    meeting.gather.leave(2)
    meeting.gather.end_if_all({0, 1})
    problem = f"mean: the workers sent {MOST_BYTES + 2:,} bytes together; the limit is {MOST_BYTES:,}"
    refused = Refused(problem, usage=True)
    assert meeting.heard() == [[refused], [refused], []]
