"""Ctrl-C, SIGTERM or a closed terminal: exit code 130, one line, and nothing half-written."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

LONG = """
iterations = 1_000_000
[cluster]
workers = 8
compute = { mean = 0.1, sigma = 0.3 }
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_run_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    (tmp_path / "long.toml").write_text(LONG)
    command = [sys.executable, "-m", "syncline", "simulate", "long.toml", "--report", "r.json", "--trace", "t.csv"]
    run = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert run.stderr is not None
        while "strategy.bucket" not in run.stderr.readline():
            assert run.poll() is None
        run.send_signal(number)
        rest = run.communicate(timeout=60)[1]
    finally:
        run.kill()
        run.wait()
    assert run.returncode == 130
    assert rest.rstrip().splitlines()[-1] == "syncline: interrupted"
    assert "Traceback" not in rest
    assert sorted(path.name for path in tmp_path.iterdir()) == ["long.toml"]
