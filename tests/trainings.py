"""`syncline train` as a test runs it: in a process of its own, or in the simulator."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from engine import QUIET
from syncline.cli.main import main

SECONDS = 120
"""Seconds; far more than any run here takes. A run that takes longer hangs."""


def train(folder: Path, *options: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """Run the command, and return the report and the output."""
    command = [sys.executable, "-m", "syncline", "train", *options, "--report", "report.json"]
    environment = {**os.environ, **QUIET, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == code, done.stderr
    path = folder / "report.json"
    return json.loads(path.read_text()) if path.exists() else {}, done.stderr


def simulated(folder: Path, *options: str) -> dict[str, Any]:
    """The same in the simulator, which needs no process of its own."""
    report = folder / "report.json"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["syncline", "train", *options, "--engine", "sim", "-q", "--report", str(report)])
        with pytest.raises(SystemExit) as ended:
            main()
    assert not ended.value.code
    return json.loads(report.read_text())  # type: ignore[no-any-return]
