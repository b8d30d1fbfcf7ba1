"""Measures how long a step takes on this machine: of a recipe in this process, of a program in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec

from syncline.draw import Draw
from syncline.engines.guard import kill_session
from syncline.engines.launch.child import inherited
from syncline.engines.process import end_with_parent
from syncline.errors import RunError, UsageError
from syncline.layout import Bucket, Layout
from syncline.plan.model import OPTION
from syncline.plan.probe import Probed
from syncline.recipes import build
from syncline.sim.worker_model import WorkerModel
from syncline.strategies.mode import Mode

STEPS, LEAST = 8, 3
"""The number of timed steps, and the least number from which a median is taken."""

PATIENCE = 120.0
"""The seconds after which a program is ended that has not done its steps."""


def measured_recipe(name: str, workers: int, batch: int, data: Path | None) -> tuple[Layout, float]:
    """The layout of a recipe, and the seconds of a step of one worker on all cores."""
    problem = build(name, draw=Draw(0), workers=workers, batch=batch, data=data)
    model = WorkerModel(problem, problem.start([Bucket(0, problem.layout.size)]))
    times = []
    for iteration in range(2 + STEPS):
        began = perf_counter()
        model.update(Mode.CHANGES, 0, iteration)
        times.append(perf_counter() - began)
    return problem.layout, median(times[2:])


def measured_program(words: Sequence[str]) -> tuple[Layout, float]:
    """The layout of the model that a program trains, and the seconds of a step; it is ended after some steps."""
    with TemporaryDirectory(prefix="syncline-plan-") as folder:
        file, log = Path(folder) / "probed.json", Path(folder) / "output"
        code = _run([str(file), str(STEPS), *words], log)
        if not file.exists():
            _refuse(words[0], code, log)
        probed = msgspec.json.decode(file.read_bytes(), type=Probed)
    if len(probed.seconds) < LEAST:
        problem = f"{words[0]!r} ended after {len(probed.seconds) + 1} steps, too few to measure; let it do at least"
        raise UsageError(OPTION, f"{problem} {LEAST + 2}, or give --step and a list of layers")
    return Layout.of(probed.tables), median(probed.seconds)


def _run(words: Sequence[str], log: Path) -> int:
    """Run the probe to its end, and return its exit code."""
    parent = os.getpid()
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "syncline.plan.probe", *words],
            env=inherited(os.environ, {}),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            preexec_fn=lambda: end_with_parent(parent),
            start_new_session=True,
        )
        try:
            return process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            problem = f"{words[2]!r} did not do {STEPS + 2} steps within {PATIENCE:.0f} s"
            raise UsageError("--step", f"{problem}; give the time of a step, and a list of layers as MODEL") from None
        finally:
            kill_session(process.pid)
            process.wait()


def _refuse(program: str, code: int, log: Path) -> None:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    if code:
        raise RunError(f"{program!r} failed with exit code {code}: {lines[-1] if lines else 'it printed nothing'}")
    problem = f"{program!r} ended without training a model; it must call syncline.connect() and declare a model"
    raise UsageError(OPTION, problem)
