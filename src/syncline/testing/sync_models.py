"""The conformance suite for sync models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.spec import write
from syncline.sync import Release, SyncModel, applies_at_close, asks_again
from syncline.testing.asked_model import strict
from syncline.testing.common import MANY, check_flags, check_value, own_randomness
from syncline.testing.random_schedule import RandomSchedule

WORKERS = 4
ITERATIONS = 12


def check_sync_model(model: SyncModel, *, bound: int | None = None, schedules: int = 60) -> None:
    """Raise AssertionError, with the reason, if the model breaks one of these rules.

    The schedules are random, with lazy and soft release, with and without a crash. Most models are small; one has
    262,144 values.

    1. Every worker is answered once per push, and finishes.
    2. Every accepted update is applied exactly once.
    3. With `bound`: a worker is answered for iteration i only if i < V + bound.
    4. The same schedule gives the same answers: asked twice, or with another run in between. Nothing is kept between
       calls, and no shared random generator is used.
    5. `may_answer` and `may_close` return True or False, `first_bound` and `next_bound` whole numbers of at least 0.
    6. It does not change the state that it is asked about, and uses nothing of it that `State` does not name.
    7. The model is a value: it has the methods, compares and hashes, and can be written as text and read back.
    """
    text = check_value("sync", model, SyncModel)
    check_flags(model, "at_close")
    try:
        asks_again(model)
    except UsageError as error:
        raise AssertionError(error.problem) from error
    with own_randomness(text):
        _check_pure(model)
        for schedule, crash_at in _schedules(model, schedules):
            schedule.run(crash_at)
            _check(schedule, bound, f"{text}, {schedule.release} release, schedule {schedule.draw.seed}")
        large = RandomSchedule(strict(model), Release.LAZY, WORKERS, ITERATIONS, Draw(0), MANY)
        large.run()
        _check(large, bound, f"{text}, {MANY:,} values")


def _schedules(model: SyncModel, schedules: int) -> Iterator[tuple[RandomSchedule, int | None]]:
    for seed in range(schedules):
        for release in Release:
            yield RandomSchedule(strict(model), release, WORKERS, ITERATIONS, Draw(seed)), (seed if seed % 2 else None)


def _check(schedule: RandomSchedule, bound: int | None, what: str) -> None:
    _check_progress(schedule, what)
    _check_exactly_once(schedule, what)
    if bound is not None:
        _check_bound(schedule, bound, what)


def _check_progress(schedule: RandomSchedule, what: str) -> None:
    stuck = {worker: i for worker, i in schedule.waiting.items() if worker in schedule.next}
    assert not stuck, f"{what}: these workers wait forever, at these iterations: {stuck}; V is {schedule.bucket_v}"
    unfinished = {worker: i for worker, i in schedule.next.items() if i < schedule.iterations}
    assert not unfinished, f"{what}: these workers did not finish: {unfinished}"


def _check_exactly_once(schedule: RandomSchedule, what: str) -> None:
    assert schedule.params.max(initial=0) <= 1, f"{what}: an update was applied twice"
    applied = {(int(c) // schedule.iterations, int(c) % schedule.iterations) for c in np.flatnonzero(schedule.params)}
    closed = {
        (worker, i) for worker, i in schedule.taken if i < schedule.bucket_v or not applies_at_close(schedule.model)
    }
    assert closed <= applied, f"{what}: these updates were accepted but never applied: {sorted(closed - applied)}"
    assert applied <= set(schedule.taken), (
        f"{what}: these updates were applied but not accepted: {sorted(applied - set(schedule.taken))}"
    )


def _check_bound(schedule: RandomSchedule, bound: int, what: str) -> None:
    for worker, i, v in schedule.answered:
        assert i < v + bound, f"{what}: worker {worker} was answered for iteration {i} when V was {v}"


def _check_pure(model: SyncModel) -> None:
    """Run one schedule three times: alone, alone again, and with another run of the same model in between."""
    alone, again, mixed, other = (
        RandomSchedule(strict(model), Release.LAZY, WORKERS, ITERATIONS, Draw(seed)) for seed in (7, 7, 7, 8)
    )
    alone.run()
    again.run()
    while mixed.step():
        other.step()
    hint = "it must keep nothing between calls and take randomness only from draw"
    for found, when in ((again, "twice"), (mixed, "with another run in between")):
        problem = f"{write(model)}: running the same schedule {when} gave different answers; {hint}"
        assert alone.answered == found.answered, problem
