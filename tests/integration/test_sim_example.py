"""The simulator as a library: the notebook of a rule of one's own, and the program on its page."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def run(*words: str | Path) -> str:
    command = [sys.executable, *map(str, words)]
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout


def test_a_rule_of_ones_own_learns_and_its_curves_are_drawn(tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    lines = run(ROOT / "examples/own_rule.py", picture).splitlines()
    assert [line.split(":")[0] for line in lines] == ["sasgd", "fasgd", "Trimmed(lr=0.1, most=0.05)"]
    for line in lines:
        losses = [
            float(word) for word in re.findall(r"\d\.\d\d(?=[ ,])", line.split(": ", 1)[1].split(", acc")[0] + ",")
        ]
        assert len(losses) == 6
        assert losses[-1] < losses[0] / 2
    assert picture.read_bytes().startswith(b"\x89PNG")


def printed(tmp_path: Path, place: int) -> list[list[str]]:
    """The words of each line that the program at this place of the page prints."""
    page = (ROOT / "docs/simulator.md").read_text()
    program = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[place]
    (tmp_path / "program.py").write_text(program)
    return [line.split() for line in run(tmp_path / "program.py").splitlines()]


def test_the_program_on_the_page_prints_a_curve(tmp_path: Path) -> None:
    points = [[float(word) for word in line] for line in printed(tmp_path, 0)]
    assert [point[1] for point in points] == [40, 80, 120, 160]
    assert points[-1][2] < points[0][2], "it learnt nothing"


def test_the_torch_model_on_the_page_learns(tmp_path: Path) -> None:
    ((loss,),) = printed(tmp_path, 1)
    assert float(loss) < 0.5  # at the start it is about 8


@pytest.mark.slow
def test_the_sweep_on_the_page_has_four_rows(tmp_path: Path) -> None:
    rows = printed(tmp_path, 2)
    assert [row[:2] for row in rows] == [[rule, seed] for rule in ("sasgd:0.04", "fasgd:0.005") for seed in "01"]
    assert all(float(row[2]) < 2.4 and float(row[3]) > 1 for row in rows)
