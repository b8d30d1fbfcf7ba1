"""Starting the command, or importing the package, imports no heavy module."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "zmq", "ray", "matplotlib")
FOUND = f"import sys; print(sorted(m for m in {HEAVY!r} if m in sys.modules))"


def heavy_after(code: str, folder: Path) -> str:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    command = [sys.executable, "-c", f"{code}\n{FOUND}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def command(*args: str, code: int = 0) -> str:
    """Code that runs the command, checks how it ends, and goes on."""
    return (
        "import sys\n"
        "from syncline.cli import main\n"
        f"sys.argv = ['syncline', *{args!r}]\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as exit:\n"
        f"    assert (exit.code or 0) == {code}, exit.code\n"
    )


EXPERIMENT = "iterations = 2\n[cluster]\nworkers = 2\n"


@pytest.mark.parametrize(
    "code",
    [
        "import syncline",
        "import syncline.cli",
        "import syncline.sim",
        "import syncline.recipes",
        command("--help"),
        command("--version"),
        command("simulate", "--help"),
        command("simulate", "x.toml", "-q", "--report", "r.json"),
        command("simulate", "missing.toml", code=2),
        command("train", "--help"),
        command("train", "--slow", "x", code=2),
    ],
    ids=[
        *("syncline", "cli", "sim", "recipes", "--help", "--version", "simulate --help", "made-up run", "bad input"),
        *("train --help", "train refused"),
    ],
)
def test_nothing_heavy_is_imported(code: str, tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text(EXPERIMENT)
    assert heavy_after(code, tmp_path) == "[]"
