"""What a worker has read last: where the values are, and whether they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest

from syncline.engines.net.shared_memory import LaneMemory, map_segment, new_segment
from syncline.engines.worker.last_read import LastRead
from syncline.layout import Bucket, Table
from syncline.messages import server_id

ONE, TWO = Bucket(0, 6), Bucket(6, 10)
SERVER = server_id(0)


@pytest.fixture
def memories() -> Iterator[tuple[LaneMemory, LaneMemory]]:
    """The worker's memory, and the server's view of it."""
    fd = new_segment(10)
    yield LaneMemory(10, fd), map_segment(fd, 10)
    os.close(fd)


def test_without_a_base_the_values_are_in_the_lane(memories: tuple[LaneMemory, LaneMemory]) -> None:
    ours, theirs = memories
    theirs.param(ONE)[:] = 3
    found = LastRead(ours)
    assert found.is_whole(ONE, [ONE])
    assert found.values(ONE).tolist() == [3] * 6


def test_a_marked_bucket_is_not_whole_until_its_message_has_arrived(memories: tuple[LaneMemory, LaneMemory]) -> None:
    ours, theirs = memories
    found = LastRead(ours)
    theirs.mark(TWO)
    assert found.is_whole(ONE, [ONE])
    assert not found.is_whole(TWO, [TWO])
    found.arrived(SERVER, TWO)
    assert found.is_whole(TWO, [TWO])


def test_an_answer_that_is_cut_off_is_not_whole() -> None:
    found = LastRead(LaneMemory(10))
    found.receiving(SERVER, ONE)
    found.arrived(SERVER, ONE)
    found.receiving(SERVER, TWO)
    found.lost(SERVER)
    assert found.is_whole(ONE, [ONE])
    assert not found.is_whole(TWO, [TWO])
    assert not found.is_whole(Bucket(7, 8), [TWO]), "a piece of it, as a later view cuts it"
    found.delivered(TWO)
    assert found.is_whole(TWO, [TWO])


def test_the_base_has_the_values_after_the_program_has_taken_them_over(
    memories: tuple[LaneMemory, LaneMemory],
) -> None:
    """Table `b` lies in both buckets."""
    ours, theirs = memories
    first, second = Table("a", (2,), 0), Table("b", (8,), 2)
    bases = np.full(2, 1, np.float32), np.full(8, 1, np.float32)
    found = LastRead(ours)
    found.keep_base(first, bases[0])
    found.keep_base(second, bases[1])
    theirs.params[:] = 2
    assert found.values(ONE).tolist() == [1] * 6, "nothing was delivered: the lane may have anything"
    found.delivered(ONE)
    assert found.values(ONE).tolist() == [2] * 6
    assert found.values(TWO).tolist() == [1] * 4
    found.taken("a")
    assert found.values(ONE).tolist() == [1, 1, 2, 2, 2, 2]
    theirs.mark(ONE)
    assert not found.is_whole(ONE, [ONE]), "a part of it is in the lane"
    found.taken("b")
    assert found.is_whole(ONE, [ONE])
    assert found.values(ONE).tolist() == [1] * 6
