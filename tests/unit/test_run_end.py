"""How the workers of a real run agree, through files, when to stop."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncline.recipes import run_end
from syncline.recipes.job import RecipeJob
from syncline.recipes.run_end import RunEnd
from syncline.sim import Quality, StopAt


def ends(tmp_path: Path, stop: StopAt, *, synchronous: bool, workers: int = 2, iterations: int = 0) -> list[RunEnd]:
    job = RecipeJob("digits-mlp", workers, iterations, 8, directory=str(tmp_path), stop=stop)
    return [RunEnd(job, worker, synchronous) for worker in range(workers)]


def test_without_a_stop_a_worker_does_its_iterations(tmp_path: Path) -> None:
    one, _ = ends(tmp_path, StopAt(), synchronous=True, iterations=3)
    assert [one.is_over(iteration) for iteration in range(4)] == [False, False, False, True]
    assert one.reason == "iterations"


def test_updates_of_all_workers_count_together(tmp_path: Path) -> None:
    one, other = ends(tmp_path, StopAt(updates=3), synchronous=False)
    for iteration in (1, 2):
        one.stepped(iteration)
        assert not one.is_over(iteration)
    other.stepped(1)
    assert one.is_over(2)
    assert other.is_over(1)
    assert one.reason == other.reason == "updates"


def test_under_bsp_updates_are_rounds(tmp_path: Path) -> None:
    for each in ends(tmp_path, StopAt(updates=5), synchronous=True):
        assert [each.is_over(iteration) for iteration in range(4)] == [False, False, False, True]
        assert each.reason == "updates"


def test_under_bsp_all_workers_stop_before_the_same_iteration(tmp_path: Path) -> None:
    one, other = ends(tmp_path, StopAt(accuracy=0.9), synchronous=True, iterations=9)
    one.stepped(4, Quality(1.0, 0.8))
    assert not one.is_over(4)
    one.stepped(5, Quality(0.5, 0.9))  # after iteration 4
    assert not one.is_over(5)
    assert not other.is_over(5)
    one.stepped(6, Quality(0.5, 0.95))  # reached again: what was agreed on stays
    assert one.is_over(6)
    assert other.is_over(6)
    assert other.reason == "accuracy"


def test_seconds_are_those_since_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_end, "monotonic", lambda: 7.0)
    one, other = ends(tmp_path, StopAt(seconds=2.0), synchronous=False)
    one.stepped(1)
    assert not one.is_over(1)
    monkeypatch.setattr(run_end, "monotonic", lambda: 9.0)
    one.stepped(2)
    assert one.is_over(2)
    assert other.is_over(1)
    assert other.reason == "seconds"
