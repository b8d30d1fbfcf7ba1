"""When a worker saves: after so many iterations, or when the coordinator has asked for it in time."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.engines.net.control import CheckpointDue, CheckpointWritten
from syncline.engines.worker.checkpoint_writer import LEAST_AHEAD, CheckpointWriter


class Seat:
    """A session with this rank, of two."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.members = (0, 1)
        self.save_step = -1
        self.whole_steps: tuple[int, ...] = ()
        self.told: list[object] = []

    def tell(self, message: object) -> None:
        self.told.append(message)


def writer(seat: Any, every: str) -> CheckpointWriter:
    return CheckpointWriter(seat, "", every)


def test_after_so_many_iterations() -> None:
    found = writer(Seat(0), "5")
    found.begin(7)
    assert [found.due(i, True) for i in (8, 9, 10, 11, 16, 30)] == [None, None, 10, None, 15, 30]


def test_the_first_worker_announces_a_checkpoint_once() -> None:
    seat = Seat(0)
    found = writer(seat, "0.0001ms")
    found.begin(0)
    assert [found.due(i, True) for i in range(1, 10)] == [None] * 9
    (due,) = seat.told
    assert isinstance(due, CheckpointDue)
    assert due.step >= 1 + LEAST_AHEAD
    seat.save_step = due.step
    assert found.due(due.step - 1, True) is None
    assert found.due(due.step, True) == due.step
    assert found.due(due.step + 1, True) is None
    assert len(seat.told) > 1


def test_another_worker_saves_when_it_is_asked_in_time() -> None:
    seat = Seat(1)
    found = writer(seat, "0.0001ms")
    found.begin(0)
    assert found.due(1, True) is None
    seat.save_step = 3
    assert [found.due(i, True) for i in (2, 3, 4)] == [None, 3, None]
    assert seat.told == []


def test_a_worker_that_is_asked_too_late_saves_nothing() -> None:
    seat = Seat(1)
    found = writer(seat, "10min")
    found.begin(0)
    assert found.due(5, True) is None
    seat.save_step = 5
    assert found.due(6, True) is None
    (said,) = seat.told
    assert isinstance(said, CheckpointWritten)
    assert (said.step, said.problem) == (5, "the worker was told too late")
    assert found.due(7, True) is None


@pytest.mark.parametrize("iteration", [3, 8])
def test_workers_that_do_not_wait_save_at_once_or_when_they_come_there(iteration: int) -> None:
    seat = Seat(1)
    found = writer(seat, "10min")
    found.begin(0)
    found.due(iteration, False)
    seat.save_step = 5
    assert found.due(iteration + 1, False) == (None if iteration == 3 else 5)
    assert found.due(iteration + 2, False) == (5 if iteration == 3 else None)
