"""A training run as one worker sees it: how a worker is made slow."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from syncline.recipes import trainee, training
from syncline.recipes.job import RecipeJob

pytest.importorskip("sklearn")
pytest.importorskip("torch")


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Every look at the clock is a second after the one before; the pauses, in seconds, which are only noted."""
    seconds: list[float] = []
    ticks = count()
    monkeypatch.setattr(trainee, "perf_counter", lambda: float(next(ticks)))
    monkeypatch.setattr(training, "sleep", seconds.append)
    return seconds


@pytest.mark.parametrize(("slow", "pauses"), [({}, []), ({1: 5.0}, []), ({0: 1.0}, []), ({0: 3.0}, [2.0] * 4)], ids=str)
def test_a_slow_worker_pauses_after_each_gradient_in_proportion(
    slow: dict[int, float], pauses: list[float], slept: list[float], tmp_path: Path
) -> None:
    """Alone it is worker 0. A gradient takes one second here; three times as long are two seconds more."""
    assert training.train(RecipeJob("digits-mlp", 1, 4, 8, slow=slow, directory=str(tmp_path))) == 0
    assert slept == pauses
    assert json.loads((tmp_path / "w0.json").read_text())["iterations"] == 4
