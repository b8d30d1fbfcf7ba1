"""What every sync model must hold, whatever its conditions."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from syncline.draw import Draw
from syncline.spec import parse, write
from syncline.sync import Release, SyncModel, applies_at_close
from syncline.testing.table import ChoiceTable

WORKERS = 4
ITERATIONS = 12


def check_sync_model(model: SyncModel, *, bound: int | None = None, schedules: int = 60) -> None:
    """Raise AssertionError, with the reason, unless the model keeps what every sync model must keep.

    Over random schedules, lazy and soft, with and without a crash: everybody is answered once and finishes, every
    update that was taken is applied exactly once, the same schedule gives the same answers. With `bound`, nobody is
    answered for iteration i unless i < V + bound. And the model is a value: it has the methods, compares, and can be
    written as text and read back.
    """
    _check_value(model)
    for table, crash_at in _tables(model, schedules):
        table.run(crash_at)
        what = f"{write(model)}, {table.release} release, schedule {table.draw.seed}"
        _check_progress(table, what)
        _check_exactly_once(table, what)
        if bound is not None:
            _check_bound(table, bound, what)
    _check_pure(model)


def _tables(model: SyncModel, schedules: int) -> Iterator[tuple[ChoiceTable, int | None]]:
    for seed in range(schedules):
        for release in Release:
            yield ChoiceTable(model, release, WORKERS, ITERATIONS, Draw(seed)), (seed if seed % 2 else None)


def _check_value(model: SyncModel) -> None:
    assert isinstance(model, SyncModel), f"{model!r} lacks a method or property of SyncModel"
    assert isinstance(getattr(model, "at_close", False), bool), f"{model!r}.at_close must be True or False"
    assert type(model).__hash__ is not None, f"{model!r} must be hashable: use dataclass(frozen=True)"
    text = write(model)
    assert parse("sync", text) == model, f"{text!r} does not read back as {model!r}; is it a frozen dataclass?"


def _check_progress(table: ChoiceTable, what: str) -> None:
    stuck = {worker: i for worker, i in table.waiting.items() if worker in table.next}
    assert not stuck, f"{what}: these workers wait forever, at these iterations: {stuck}; V is {table.bucket_v}"
    unfinished = {worker: i for worker, i in table.next.items() if i < table.iterations}
    assert not unfinished, f"{what}: these workers did not finish: {unfinished}"


def _check_exactly_once(table: ChoiceTable, what: str) -> None:
    assert table.params.max(initial=0) <= 1, f"{what}: an update was applied twice"
    applied = {(int(c) // table.iterations, int(c) % table.iterations) for c in np.flatnonzero(table.params)}
    closed = {(worker, i) for worker, i in table.taken if i < table.bucket_v or not applies_at_close(table.model)}
    assert closed <= applied, f"{what}: these updates were taken and never applied: {sorted(closed - applied)}"
    assert applied <= set(table.taken), (
        f"{what}: these were applied and not taken: {sorted(applied - set(table.taken))}"
    )


def _check_bound(table: ChoiceTable, bound: int, what: str) -> None:
    for worker, i, v in table.answered:
        assert i < v + bound, f"{what}: worker {worker} was answered for iteration {i} when V was {v}"


def _check_pure(model: SyncModel) -> None:
    first, second = (ChoiceTable(model, Release.LAZY, WORKERS, ITERATIONS, Draw(7)) for _ in range(2))
    first.run()
    second.run()
    assert first.answered == second.answered, f"{write(model)}: the same schedule gave other answers the second time"
