"""The examples of parts of one's own: short, conforming, and trained with."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from syncline.testing import check_codec, check_sync_model
from trainings import simulated, train

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTS = {
    "placement": ("own.placement.alternate", ("--servers", "2")),
    "codec": ("own.codec.UpperHalf", ()),
    "sync": ("own.sync.Loosening:100,s=3", ()),
    "gate": ("own.gate.Large:0.01", ("--sync", "asp")),
    "rule": ("own.rule.SignSgd:0.002", ()),
}


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "own"]:
        del sys.modules[name]


@pytest.mark.parametrize("kind", PARTS)
def test_twenty_lines_are_enough(kind: str) -> None:
    """Without blank lines, imports and docstrings."""
    tree = ast.parse((EXAMPLES / "own" / f"{kind}.py").read_text())
    lines: set[int] = set()
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            texts = {each.value.lineno for each in ast.walk(node) if isinstance(each, ast.Expr)}
            for each in ast.walk(node):
                if hasattr(each, "lineno") and each.lineno not in texts:
                    lines |= (
                        set(range(each.lineno, (each.end_lineno or each.lineno) + 1))
                        if isinstance(each, ast.stmt) and not isinstance(each, ast.ClassDef | ast.FunctionDef)
                        else {each.lineno}
                    )
    assert 0 < len(lines) <= 20, sorted(lines)


@pytest.mark.parametrize("kind", PARTS)
def test_a_part_of_ones_own_trains_in_the_simulator(kind: str, tmp_path: Path) -> None:
    text, more = PARTS[kind]
    report = simulated(tmp_path, f"--{kind}", text, *more, "--workers", "4")
    assert report["accuracy"] >= 0.95
    assert report["settings"][kind]["value"] == text


@pytest.mark.parametrize("kind", ["placement", "codec", "gate"])
def test_a_part_of_ones_own_trains_in_a_real_run(kind: str, tmp_path: Path) -> None:
    text, more = PARTS[kind]
    report, _ = train(tmp_path, f"--{kind}", text, *more, "--workers", "2", "--iterations", "150")
    assert report["accuracy"] >= 0.9


def test_they_conform() -> None:
    check_codec(import_module("own.codec").UpperHalf())
    check_sync_model(import_module("own.sync").Loosening(3, 2), bound=2, schedules=10)
