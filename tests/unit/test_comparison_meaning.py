"""The sentence at the end of a comparison is made from its numbers."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.cli.comparison_meaning import meaning
from syncline.cli.train_comparison import show_comparison
from syncline.recipes.turns import ALONE, DDP


def row(system: str, rate: float, accuracy: float = 0.97) -> dict[str, Any]:
    return {
        "system": system,
        "images_per_second": rate,
        "images_per_second_equal": 2 * rate,
        "seconds": 1000 / rate,
        "accuracy": accuracy,
    }


def figures(*rows: dict[str, Any]) -> dict[str, Any]:
    simulated = [row(ALONE, 100), row(DDP, 80), row("Syncline, drop:3", 290), row("Syncline, asp", 300)]
    found: dict[str, Any] = {"rows": list(rows), "late_seconds": [0.0, 0.0, 0.0, 0.04], "step_seconds": 0.01}
    found |= {"workers": 4, "images": 1000, "images_a_round": 64, "repeats": 3, "lane": "shm"}
    found["settings"] = {"servers": {"value": "1"}}
    found["simulated"] = {"machines": 4, "link_bits_per_second": 1e9, "model_bytes": 300_000, "rows": simulated}
    return found


SIMULATED = "on 4 machines with a 1 Gbit network the simulator expects 3.0 and 0.8 times."


@pytest.mark.parametrize(
    ("ddp", "own", "words"),
    [
        (50, 200, "2.0 times as fast as one process, and DDP 0.5 times as fast"),
        (150, 300, "3.0 times as fast as one process, and DDP 1.5 times as fast"),
        (98, 102, "as fast as one process, and DDP as fast"),
        (50, 80, "0.8 times as fast as one process, and DDP 0.5 times as fast"),
        (200, 150, "1.5 times as fast as one process, and DDP 2.0 times as fast"),
    ],
)
def test_it_says_who_was_faster(ddp: float, own: float, words: str) -> None:
    found = meaning(figures(row(ALONE, 100), row(DDP, ddp), row("Syncline, bsp", 40), row("Syncline, asp", own)))
    assert found == f"With 1 of 4 workers slow, Syncline, asp trained {words}, to about the same accuracy; {SIMULATED}"


def test_a_model_that_is_worse_than_that_of_one_process_is_not_the_best() -> None:
    dropping, asynchronous = row("Syncline, drop:3", 190, 0.965), row("Syncline, asp", 200, 0.955)
    rows = row(ALONE, 100), row(DDP, 50)
    assert "Syncline, drop:3 trained 1.9 times" in meaning(figures(*rows, dropping, asynchronous))
    worse = meaning(figures(*rows, row("Syncline, drop:3", 190, 0.5), asynchronous))
    assert "Syncline, asp trained 2.0 times" in worse
    assert "to 95.5% accuracy instead of 97.0%" in worse


def test_what_is_simulated_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    found = figures(row(ALONE, 100), row(DDP, 50), row("Syncline, asp", 200))
    found["meaning"] = meaning(found)
    show_comparison(found, 2)
    shown = " ".join(capsys.readouterr().err.split())
    assert "MEASURED on this machine: 4 workers train on 1,000 images" in shown
    assert "SIMULATED, not measured: 4 machines, 1 Gbit network" in shown
    assert "worker 3 for 40 ms in each step" in shown
    assert shown.endswith(found["meaning"])
