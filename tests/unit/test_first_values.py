"""The initial parameters that a server gets when it joins, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from peers import Peer, any_payload
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import First, TakeFirst
from syncline.engines.net.frames import Frame
from syncline.engines.server.first_values import FirstInbox, give_first
from syncline.errors import PeerError, RunError
from syncline.layout import Bucket, Values

ONE, OTHER = Bucket(0, 4), Bucket(4, 10)


def out(wire: Connection, message: Frame, payload: Any = None, *, lasting: bool = False) -> None:
    wire.send(message, payload, lasting=lasting)


def values(bucket: Bucket) -> memoryview:
    return memoryview(np.arange(bucket.start, bucket.stop, dtype=np.float32).tobytes())


def empty() -> dict[Bucket, Values]:
    return {bucket: np.zeros(bucket.size, np.float32) for bucket in (ONE, OTHER)}


def test_all_buckets_come_from_one_server(peer: Callable[[], Peer]) -> None:
    pieces, giver = empty(), peer()
    inbox = FirstInbox(pieces, [0, 3])
    inbox.ask({3: giver.wire, 7: peer().wire}, out)
    assert giver.heard() == [TakeFirst()]
    for bucket in (OTHER, ONE):
        assert not inbox.complete
        inbox.check(3, First(bucket), 4 * bucket.size)
        inbox.take(3, First(bucket), values(bucket))
    assert inbox.complete
    assert np.concatenate([pieces[ONE], pieces[OTHER]]).tolist() == list(range(10))


def test_another_server_is_asked_if_the_first_one_is_gone(peer: Callable[[], Peer]) -> None:
    givers = {number: peer() for number in range(2)}
    wires = {number: each.wire for number, each in givers.items()}
    inbox = FirstInbox(empty(), [0, 1])
    inbox.ask(wires, out)
    assert not inbox.lost(7)
    assert inbox.lost(0)
    inbox.ask(wires, out)
    assert [each.heard() for each in givers.values()] == [[TakeFirst()], [TakeFirst()]]
    with pytest.raises(PeerError, match="not expected from it"):
        inbox.check(0, First(ONE), 16)
    assert inbox.lost(1)
    with pytest.raises(RunError, match="every server that could give the initial parameters is gone"):
        inbox.ask(wires, out)


def test_what_was_not_asked_for_is_refused(peer: Callable[[], Peer]) -> None:
    inbox = FirstInbox(empty(), [0])
    with pytest.raises(PeerError, match="not expected from it"):
        inbox.check(0, First(ONE), 16)
    inbox.ask({0: peer().wire}, out)
    inbox.take(0, First(ONE), values(ONE))
    for number, bucket, size, problem in (
        (1, OTHER, 24, "not expected from it"),
        (0, ONE, 16, "not expected from it"),
        (0, Bucket(4, 9), 20, "not expected from it"),
        (0, OTHER, 20, "in 20 bytes"),
        (0, OTHER, 28, "in 28 bytes"),
    ):
        with pytest.raises(PeerError, match=problem):
            inbox.check(number, First(bucket), size)
    with pytest.raises(PeerError, match="without a payload"):
        inbox.take(0, First(OTHER), None)


def test_a_server_that_needs_nothing_asks_nobody() -> None:
    inbox = FirstInbox({}, [])
    inbox.ask({}, out)
    assert inbox.complete
    assert not inbox.lost(0)


def test_a_giver_sends_every_bucket_to_all_that_have_asked(peer: Callable[[], Peer]) -> None:
    pieces = {bucket: np.ones(bucket.size, np.float32) for bucket in (OTHER, ONE)}
    askers = [peer(), peer()]
    give_first([each.wire for each in askers], pieces, out)
    assert [each.heard(any_payload) for each in askers] == [[First(ONE), First(OTHER)]] * 2
