"""The numpy example trains, in as few lines as its page promises, and its page names what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lanes import run
from syncline.engines.worker.session import NumpySession

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/numpy_regression.py"
PAGE = ROOT / "docs/numpy.md"


@pytest.mark.parametrize("sync", ["ssp:3", "bsp"])
def test_the_loss_falls(tmp_path: Path, sync: str) -> None:
    ran = run(tmp_path, "-n", 3, "--sync", sync, EXAMPLE)
    assert ran.code == 0, ran.output + ran.errors
    losses = re.findall(r"\[w\d\] loss ([\d.]+) -> ([\d.]+)", ran.output)
    assert len(losses) == 3, ran.output
    for before, after in losses:
        assert float(before) == pytest.approx(0.6931, abs=1e-4)  # log 2: the loss of a model that has learnt nothing
        assert float(after) < 0.3
    assert ran.report["updates"] == 3 * 200


def test_the_example_is_short() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= 40


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)


def test_the_program_on_the_page_runs(tmp_path: Path) -> None:
    (program,) = blocks("python")
    (tmp_path / "program.py").write_text(program)
    ran = run(tmp_path, "-n", 2, "program.py")
    assert ran.code == 0, ran.output + ran.errors


def test_the_page_names_every_call_and_no_other() -> None:
    told = set(re.findall(r"`session\.(\w+)", PAGE.read_text()))
    there = {name for name in vars(NumpySession) if not name.startswith("_") and name != "start"}
    assert there <= told
    assert told <= there | {"rank", "size", "is_leader", "settings", "iteration", "incarnation"}
