"""Runs that write checkpoints: how they end, and what they leave."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from engine import Run


def end_of(run: Run) -> str:
    """Wait for the end of a run that succeeds; returns the digest of the parameters, which is one for all workers."""
    assert run.ends() == 0, run.story()
    (digest,) = {line.split()[-1] for line in run.out.splitlines() if "digest" in line}
    return digest


def kill_all(run: Run) -> None:
    """Kill every process of a run at once."""
    for pid in run.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    run.process.wait()
    run.gone()


def whole_steps(folder: Path) -> list[int]:
    return sorted(int(path.parent.name.removeprefix("step-")) for path in folder.glob("step-*/checkpoint.json"))
