"""The examples of own parts are short, conform, and train."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from engine import QUIET
from samples import sampled
from syncline.testing import check_codec, check_gate, check_placement, check_rule, check_sync_model
from trainings import SECONDS, simulated, train

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
    report = simulated(tmp_path, f"--{kind}", text, *more, "--workers", "2")
    assert report["accuracy"] >= 0.95
    assert report["settings"][kind]["value"] == text


@pytest.mark.parametrize("kind", sampled(["placement", "codec", "gate"], "gate"))
def test_a_part_of_ones_own_trains_in_a_real_run(kind: str, tmp_path: Path) -> None:
    text, more = PARTS[kind]
    report, _ = train(tmp_path, f"--{kind}", text, *more, "--workers", "2", "--iterations", "150")
    assert report["accuracy"] >= 0.9


def test_the_examples_conform() -> None:
    check_codec(import_module("own.codec").UpperHalf())
    check_sync_model(import_module("own.sync").Loosening(3, 2), bound=2, schedules=10)
    check_rule(import_module("own.rule").SignSgd(0.002))
    check_gate(import_module("own.gate").Large(0.01))
    check_placement(import_module("own.placement").alternate)


PROGRAM = """
import numpy as np
import syncline

with syncline.connect() as session:
    tables = session.tables({"a": np.zeros(5), "b": np.zeros(3), "c": np.zeros(4)})
    while session.iteration < 3:
        session.update("a", np.ones(5))
        session.clock()
        session.sync()
"""
COMMANDS = {
    "train": ("train", "-n", "1", "--iterations", "3", "-q", "--codec", "own.codec.UpperHalf"),
    "simulate": ("simulate", "digits.toml", "--iterations", "3", "-q", "--rule", "own.rule.SignSgd:0.002"),
    "run": ("run", "-n", "2", "--servers", "2", "--placement", "own.placement.alternate", "PROGRAM"),
}


def command(folder: Path) -> list[str]:
    """The installed command; where there is none, a script like the one that pip makes."""
    installed = Path(sys.executable).with_name("syncline")
    if installed.exists():
        return [str(installed)]
    (folder / "syncline").write_text("from syncline.cli import main\nmain()\n")
    return [sys.executable, str(folder / "syncline")]


def ran(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The installed command, given where the examples are, with a program that lies elsewhere."""
    program = folder / "elsewhere" / "program.py"
    program.parent.mkdir(exist_ok=True)
    program.write_text(PROGRAM)
    paths = os.pathsep.join(path for path in sys.path if path and path != str(EXAMPLES))
    return subprocess.run(
        [*command(folder), *(str(program) if word == "PROGRAM" else word for word in words)],
        cwd=EXAMPLES,
        env={**os.environ, **QUIET, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


@pytest.mark.parametrize("name", COMMANDS)
def test_the_installed_command_finds_parts_in_the_folder_where_it_is_given(name: str, tmp_path: Path) -> None:
    """And so do all its processes, also workers whose program lies elsewhere."""
    done = ran(tmp_path, *COMMANDS[name])
    assert done.returncode == 0, done.stderr


OWN_RULE = """
from dataclasses import dataclass
from syncline.rules import Sgd

@dataclass(frozen=True)
class Beside(Sgd):
    pass
"""


@pytest.mark.parametrize("name", ["simulate", "run", "run --config"])
def test_modules_beside_the_file_and_beside_the_program_are_found(name: str, tmp_path: Path) -> None:
    """By every process of the run, given from another folder."""
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "run.toml").write_text(
        'iterations = 3\n[cluster]\nworkers = 2\n[strategy]\nrule = "by_config.Beside:0.1"\n'
    )
    (tmp_path / "config" / "by_config.py").write_text(OWN_RULE)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "beside_it.py").write_text(OWN_RULE)
    config = str(tmp_path / "config" / "run.toml")
    words = {
        "simulate": ("simulate", config, "-q"),
        "run": ("run", "-n", "2", "--rule", "beside_it.Beside:0.1", "PROGRAM"),
        "run --config": ("run", "--config", config, "PROGRAM"),
    }[name]
    done = ran(tmp_path, *words)
    assert done.returncode == 0, done.stderr


ERRING = {
    "train": (("train", "-n", "2", "--iterations", "3", "-q"), "fails", "raised IndexError: tuple index"),
    "train-sim": (("train", "-n", "2", "--iterations", "3", "-q", "--engine", "sim"), "forgets_to_return", "returns"),
    "simulate": (("simulate", "digits.toml", "-q"), "fails", "raised IndexError: tuple index out of range;"),
    "run": (("run", "-n", "2"), "forgets_to_return", "returns None;"),
}


@pytest.mark.parametrize("name", sampled(ERRING, "simulate", "run"))
def test_a_placement_that_errs_is_refused_by_every_command(name: str, tmp_path: Path) -> None:
    words, function, problem = ERRING[name]
    program = ["PROGRAM"] * (words[0] == "run")
    done = ran(tmp_path, *words, "--servers", "2", "--placement", f"own_parts.{function}", *program)
    assert done.returncode == 2, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"placement: {function} {problem}" in last
    assert "; it gets the tables" in last
