"""Connections that survive the death of the coordinator: what is counted, kept, acknowledged and sent again."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from peers import no_payload
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    Ended,
    EpochBegun,
    Go,
    Heartbeat,
    LastWord,
    Notice,
    Pulse,
    Resume,
    Waiting,
)
from syncline.engines.net.frames import Frame
from syncline.engines.net.lasting import HEARD_EVERY, LastingConnection, is_counted
from syncline.errors import PeerError


class Pair:
    """The two ends of a connection; each socket can be replaced."""

    def __init__(self) -> None:
        self.ours, self.theirs = (LastingConnection(each, "key", again=_never) for each in socket.socketpair())

    def heard(self) -> list[Frame]:
        """What they have received."""
        return [message for message, _ in self.theirs.receive(no_payload)]

    def breaks(self) -> None:
        """Nobody reads what was on its way."""
        for each in (self.ours, self.theirs):
            each.close()
            each.away = True

    def is_made_again(self) -> None:
        ours, theirs = map(Connection, socket.socketpair())
        self.ours.resume(ours, self.theirs.heard)
        self.theirs.resume(theirs, self.ours.heard)

    def close(self) -> None:
        self.ours.close()
        self.theirs.close()


def _never() -> Connection:
    raise OSError


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def steps(first: int, end: int) -> list[Frame]:
    return [EpochBegun(0, epoch) for epoch in range(first, end)]


def test_what_was_not_received_is_sent_again_in_order(pair: Pair) -> None:
    for message in steps(0, 3):
        pair.ours.send(message)
    assert pair.heard() == steps(0, 3)
    for message in steps(3, 5):
        pair.ours.send(message)
    pair.breaks()
    pair.ours.send(Go())
    pair.is_made_again()
    pair.ours.send(Ended())
    assert pair.heard() == [*steps(3, 5), Go(), Ended()]
    assert (pair.ours.sent, pair.theirs.heard) == (7, 7)


def test_it_may_break_again_before_anything_has_come(pair: Pair) -> None:
    pair.ours.send(Go())
    for _ in range(3):
        pair.breaks()
        pair.is_made_again()
    assert pair.heard() == [Go()]


def test_what_is_of_the_moment_is_not_repeated(pair: Pair) -> None:
    passing = [Heartbeat(), Pulse(3), Waiting(1), Notice("for 10 s", passing=True)]
    assert not any(map(is_counted, passing))
    assert is_counted(Notice("now ssp:2"))
    for message in passing:
        pair.ours.send(message)
    pair.breaks()
    for message in passing:
        pair.ours.send(message)
    pair.is_made_again()
    assert pair.heard() == []


def test_little_is_kept(pair: Pair) -> None:
    for message in steps(0, 10 * HEARD_EVERY):
        pair.ours.send(message)
        assert pair.heard() == [message]
        assert not [each for each, _ in pair.ours.receive(no_payload)]
        assert len(pair.ours._kept) <= HEARD_EVERY
    assert pair.ours.has_heard(9 * HEARD_EVERY)


@pytest.mark.parametrize("count", [0, 4])
def test_a_peer_cannot_have_received_more_or_less_than_it_can(count: int, pair: Pair) -> None:
    for message in steps(0, 3):
        pair.ours.send(message)
    pair.ours.acknowledged(1)
    with pytest.raises(PeerError, match=f"it has received {count} messages of 3"):
        pair.ours.acknowledged(count)


def test_after_a_farewell_it_does_not_come_back(pair: Pair) -> None:
    assert pair.theirs.comes_back
    pair.ours.send(LastWord())
    assert pair.heard() == []
    assert not pair.theirs.comes_back
    pair.theirs.send(Go())
    assert not pair.theirs._kept


def test_one_that_is_absent_keeps_what_is_sent() -> None:
    line = LastingConnection.absent(near=True)
    assert not line.ended
    assert line.is_near
    line.send(Go())
    ours, theirs = map(Connection, socket.socketpair())
    theirs.send(Resume("key", 0))
    line.resume(ours, 0)
    assert [message for message, _ in theirs.receive(no_payload)] == [Go()]
    line.close()
    theirs.close()
    assert line.ended
