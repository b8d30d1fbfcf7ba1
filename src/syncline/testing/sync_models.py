"""The conformance suite for sync models."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.draw import Draw
from syncline.spec import parse, write
from syncline.sync import Release, SyncModel, applies_at_close
from syncline.testing.random_schedule import RandomSchedule

WORKERS = 4
ITERATIONS = 12


def check_sync_model(model: SyncModel, *, bound: int | None = None, schedules: int = 60) -> None:
    """Raise AssertionError, with the reason, if the model breaks one of these rules.

    The schedules are random, with lazy and soft release, with and without a crash.

    1. Every worker is answered once per push, and finishes.
    2. Every accepted update is applied exactly once.
    3. With `bound`: a worker is answered for iteration i only if i < V + bound.
    4. The same schedule gives the same answers.
    5. The model is a value: it has the methods, compares and hashes, and can be written as text and read back.
    """
    _check_value(model)
    for schedule, crash_at in _schedules(model, schedules):
        schedule.run(crash_at)
        what = f"{write(model)}, {schedule.release} release, schedule {schedule.draw.seed}"
        _check_progress(schedule, what)
        _check_exactly_once(schedule, what)
        if bound is not None:
            _check_bound(schedule, bound, what)
    _check_pure(model)


def _schedules(model: SyncModel, schedules: int) -> Iterator[tuple[RandomSchedule, int | None]]:
    for seed in range(schedules):
        for release in Release:
            yield RandomSchedule(model, release, WORKERS, ITERATIONS, Draw(seed)), (seed if seed % 2 else None)


def _check_value(model: SyncModel) -> None:
    assert isinstance(model, SyncModel), f"{model!r} does not have all methods of SyncModel"
    assert isinstance(getattr(model, "at_close", False), bool), f"{model!r}.at_close must be True or False"
    assert type(model).__hash__ is not None, f"{model!r} must be hashable: use dataclass(frozen=True)"
    text = write(model)
    assert parse("sync", text) == model, f"{text!r} does not read back as {model!r}; is it a frozen dataclass?"


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
    first, second = (RandomSchedule(model, Release.LAZY, WORKERS, ITERATIONS, Draw(7)) for _ in range(2))
    first.run()
    second.run()
    assert first.answered == second.answered, f"{write(model)}: running the same schedule twice gave different answers"
