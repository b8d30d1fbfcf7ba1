"""The memory that two servers on one host share."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from syncline.engines.net.shared_memory import map_segment
from syncline.engines.server import server_memory
from syncline.engines.server.server_memory import ServerMemory
from syncline.errors import PeerError
from syncline.layout import Bucket
from syncline.messages import Message
from syncline.nodes.tree.messages import CopySum, SideHeard, SideSum
from syncline.strategies.tree.strategy import TreeStrategy

PLACED = TreeStrategy.placed
FIRST, LAST = Bucket(0, 3), Bucket(3, 7)


def change(bucket: Bucket, number: int = 1) -> SideSum:
    return SideSum(0, 1, 0, 0, bucket, number, ())


def copy(bucket: Bucket) -> CopySum:
    return CopySum(0, 1, 0, 0, bucket, 1, False, ())


@pytest.fixture
def ends() -> Iterator[tuple[ServerMemory, ServerMemory]]:
    """The sender's end, and the receiver's."""
    sender, fd = server_memory.share(PLACED, 7)
    yield sender, ServerMemory(map_segment(fd, server_memory._halves(PLACED, 7)), PLACED, 7)
    os.close(fd)


def carried(ends: tuple[ServerMemory, ServerMemory], message: Message, values: np.ndarray) -> np.ndarray:
    sender, receiver = ends
    assert sender.lay(message, values)
    receiver.laid(values.nbytes)
    found = receiver.take(message)
    assert found is not None
    return np.frombuffer(found.data, values.dtype)


def test_a_payload_that_was_written_to_its_place_is_not_copied(ends: tuple[ServerMemory, ServerMemory]) -> None:
    sender = ends[0]
    place = sender.room(SideSum, LAST)
    assert place is not None
    place[:] = [4, 5, 6, 7]
    found = carried(ends, change(LAST), place)
    assert found.tolist() == [4, 5, 6, 7]
    assert sender.room(SideSum, LAST) is None  # the receiver has not read it
    assert sender.room(SideSum, FIRST) is not None
    sender.lifted()
    place[:] = [0, 0, 0, 1]
    assert found.tolist() == [0, 0, 0, 1]  # the very memory that the receiver sees
    assert carried(ends, change(LAST, 2), np.array([9, 9, 9, 9], np.float32)).tolist() == [9, 9, 9, 9]


def test_payloads_of_several_messages_and_buckets_do_not_overlap(ends: tuple[ServerMemory, ServerMemory]) -> None:
    sent = [
        (change(FIRST), np.array([1, 2, 3], np.float32)),
        (change(LAST), np.array([4, 5, 6, 7], np.float32)),
        (copy(FIRST), np.array([0.1, 0.2, 0.3])),
        (copy(LAST), np.array([0.4, 0.5, 0.6, 0.7])),
    ]
    found = [carried(ends, message, values) for message, values in sent]
    for (_, values), payload in zip(sent, found, strict=True):  # compared only after all of them were written
        assert payload.tolist() == values.tolist()


def test_a_place_is_used_again_only_after_the_receiver_has_read_it(ends: tuple[ServerMemory, ServerMemory]) -> None:
    sender, receiver = ends
    values = np.ones(3, np.float32)
    assert sender.lay(change(FIRST), values)
    assert not sender.lay(change(FIRST, 2), 2 * values)
    receiver.laid(values.nbytes)
    found = receiver.take(change(FIRST))
    assert found is not None
    assert found.view(np.float32).tolist() == [1, 1, 1]
    sender.lifted()
    assert sender.lay(change(FIRST, 2), 2 * values)


def test_a_payload_that_has_no_place_or_does_not_fit_goes_over_the_connection(
    ends: tuple[ServerMemory, ServerMemory],
) -> None:
    sender, _ = ends
    assert not sender.lay(SideHeard(0, 1, 0, 0, FIRST, 1), np.ones(3, np.float32))
    assert not sender.lay(copy(FIRST), np.ones(6))
    assert sender.lay(copy(FIRST), np.ones(3))


def test_a_message_without_a_payload_has_none_in_memory(ends: tuple[ServerMemory, ServerMemory]) -> None:
    assert ends[1].take(change(FIRST)) is None


@pytest.mark.parametrize(
    ("size", "message"),
    [(16, change(FIRST)), (12, change(Bucket(5, 8))), (12, SideHeard(0, 1, 0, 0, FIRST, 1)), (12, "no message")],
)
def test_what_does_not_fit_the_message_is_refused(
    ends: tuple[ServerMemory, ServerMemory], size: int, message: object
) -> None:
    ends[1].laid(size)
    with pytest.raises(PeerError, match="in shared memory"):
        ends[1].take(message)


def test_announcements_out_of_turn_are_refused(ends: tuple[ServerMemory, ServerMemory]) -> None:
    sender, receiver = ends
    with pytest.raises(PeerError, match="not in shared memory"):
        sender.lifted()
    with pytest.raises(PeerError, match="may not"):
        receiver.laid(0)
    receiver.laid(12)
    with pytest.raises(PeerError, match="may not"):
        receiver.laid(12)
