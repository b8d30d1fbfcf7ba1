"""Starts that take longer than ten seconds: they say what they wait for, and check their hosts."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from remote import SECRET, Loopback, Running, free_port, loopback

SLEEPY = """
import os, sys, time
from pathlib import Path
import numpy as np
import syncline

# Workers with these numbers connect, or declare their model, only when the file `go` is there.
directory, connects_late, declares_late = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def wait():
    while not (directory / "go").exists():
        time.sleep(0.01)

me = os.environ.get("SYNCLINE_WORKER") or os.environ["RANK"]
if me in connects_late:
    wait()
session = syncline.connect()
if me in declares_late:
    wait()
tables = session.tables({"w": np.zeros(10)}, sync="asp")
session.update("w", np.ones(10))
session.clock()
session.sync()
session.close()
"""


@pytest.fixture
def here() -> Iterator[Loopback]:
    with loopback() as host:
        yield host


def sleepy(directory: Path) -> Path:
    program = directory / "sleepy.py"
    program.write_text(SLEEPY)
    return program


@pytest.mark.slow
def test_workers_that_have_not_arrived_are_named(here: Loopback, tmp_path: Path) -> None:
    """What is wrong with the host is said too: here, a low limit of open files."""
    words = map(str, ("-n", 3, sleepy(tmp_path), tmp_path, "1", "2"))
    limited = ["prlimit", "--nofile=900:900", sys.executable, "-m", "syncline", "run", *words]
    run = Running(here, command=limited)
    line = run.line_with("waiting for worker 1 (not connected) and worker 2 (has no model yet) for 1")
    assert "its program loads, or has not called syncline.connect() yet" in line
    assert "has not called session.distribute() or session.tables() yet" in line
    run.line_with("this host: wrong open files: a process may open 900; raise the limit before the run starts")
    (tmp_path / "go").touch()
    assert run.end() == 0, run.text


@pytest.mark.slow
def test_a_task_of_slurm_that_has_not_started_is_named(here: Loopback, tmp_path: Path) -> None:
    environment = {
        "SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "localhost", "SLURM_PROCID": "0", "SLURM_NODEID": "0", "SLURM_LOCALID": "0",
        "SYNCLINE_KEY": SECRET,
    }  # fmt: skip
    run = Running(here, "--slurm", "--port", free_port(), sleepy(tmp_path), tmp_path, "", "", **environment)
    line = run.line_with("waiting for host 1 of 2 to start for 1")
    assert "check the way between the hosts with syncline doctor --listen here and --join there" in line
    run.interrupt()
    assert run.end() == 130, run.text


@pytest.mark.slow
def test_workers_of_torchrun_say_for_whom_they_wait(here: Loopback, tmp_path: Path) -> None:
    """Worker 0 has not connected yet, so there is no coordinator."""
    pytest.importorskip("torch")
    program = sleepy(tmp_path)
    words = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-id", "x", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
    runs = []
    for node in range(2):
        conf = ["--rdzv-conf", f"is_host={'true' if node == 0 else 'false'}", "--local-addr", "127.0.0.1"]
        command = [sys.executable, "-m", "torch.distributed.run", *words, *conf, str(program), str(tmp_path), "0", ""]
        runs.append(Running(here, command=command, SYNCLINE_KEY=SECRET, OMP_NUM_THREADS="1"))
    line = runs[1].line_with("worker 1 waits for worker 0 for 1")
    assert "to check the way: syncline doctor --listen on the first host" in line
    (tmp_path / "go").touch()
    assert [run.end() for run in runs] == [0, 0], "".join(run.text for run in runs)
