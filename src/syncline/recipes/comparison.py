"""Seconds to 95 % with a straggler: one process, DDP with gloo, and Syncline's sync models, in one run of processes.

1. Every system starts with the same parameters, has the same optimizer and deals the same batches. All take their turn,
   several times over with another seed each, so that the noise of the machine hits all of them alike.
2. The clock is worker 0's. It keeps a copy of its parameters every few steps; how good they are is looked at
   afterwards, outside the time. The others stop when worker 0 has done its steps.
3. The straggler sleeps when its gradient is whole, before it hands it in: for the same time under every system, so many
   times as long as a gradient takes there while all compute. One process has no straggler.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from time import perf_counter, sleep
from typing import NamedTuple

import msgspec
import numpy as np

from syncline.engines.net.control import Pulse
from syncline.engines.net.wiring import Wiring
from syncline.engines.worker.session import NumpySession
from syncline.layout import Bucket, Values
from syncline.recipes.job import Job
from syncline.recipes.rivals import TorchLoop, join_gloo
from syncline.recipes.timings import REPEATS, SYNCS, TARGET, Timing, leave_timings
from syncline.recipes.torch_problem import TorchProblem
from syncline.recipes.trainee import Trainee

EVERY = 4
"""Steps between two copies of the parameters."""

WARM = 50
"""Gradients that are computed before anything is timed."""


class Mark(NamedTuple):
    """The parameters after so many steps of worker 0, and so many seconds."""

    steps: int
    seconds: float
    params: Values


@dataclass
class Race:
    """One worker's part in one round of all systems."""

    job: Job
    session: NumpySession
    repeat: int
    pause: float
    """Seconds that this worker is late in each step."""

    def run(self) -> list[Timing]:
        """Every system in turn; only worker 0 has something to tell of it."""
        self.problem, self.first = start(self.job, self.repeat)
        return [timing for name, system in self._systems() for timing in self._judged(name, system())]

    def _systems(self) -> Iterator[tuple[str, Callable[[], list[Mark]]]]:
        """Every system's name, and how to run it."""
        for batch in (self.job.batch, self.job.batch * self.job.workers):
            name = f"one process, batch {batch}"
            yield name, lambda name=name, batch=batch: self._alone(name, batch)  # type: ignore[misc]
        yield "DDP, gloo", lambda: self._ddp("DDP, gloo")
        for sync in SYNCS:
            yield f"Syncline, {sync}", lambda sync=sync: self._syncline(f"Syncline, {sync}", sync)  # type: ignore[misc]

    def _alone(self, name: str, batch: int) -> list[Mark]:
        """Worker 0 by itself; the others wait."""
        loop = TorchLoop(self.problem, self.first)
        batches = replace(self.problem.batches, workers=1, batch=batch)
        steps = loop.steps(batches, 0, self.job.iterations if self.session.rank == 0 else 0)
        return self._timed(self._told(name, steps), lambda: loop.params)

    def _ddp(self, name: str) -> list[Mark]:
        loop = TorchLoop(self.problem, self.first)
        loop.under_ddp(self.pause)
        steps = loop.steps(self.problem.batches, self.session.rank, self.job.iterations)
        return self._timed(self._told(name, steps), lambda: loop.params)

    def _syncline(self, name: str, sync: str) -> list[Mark]:
        exchange = self.session.replica(f"{name}, {self.repeat}")
        trainee = Trainee(self.problem, exchange, lambda _: sleep(self.pause) if self.pause else None)
        trainee.declare(self.first, {"sync": sync})
        marks = self._timed(self._steps(name, trainee), lambda: trainee.params)
        self.session.drop(exchange)
        return marks

    def _steps(self, name: str, trainee: Trainee) -> Iterator[int]:
        """Worker 0 takes its steps, and the others theirs until it is done."""
        over = Path(self.job.directory) / f"{name}, {self.repeat}, is over"
        while trainee.iteration < self.job.iterations if self.session.rank == 0 else not over.exists():
            trainee.step()
            self.session.pulse(msgspec.structs.replace(trainee.pulse(), model=name))
            yield trainee.iterations
        if self.session.rank == 0:
            over.touch()

    def _told(self, name: str, steps: Iterator[int]) -> Iterator[int]:
        """The same steps; the launcher hears of them."""
        for done in steps:
            self.session.pulse(Pulse(done, model=name))
            yield done

    def _timed(self, steps: Iterator[int], params: Callable[[], Values]) -> list[Mark]:
        """Take the steps from when all are ready, and keep what worker 0 comes to."""
        self.session.barrier()
        marks, began = [], perf_counter()
        for done in steps:
            if self.session.rank == 0 and (done % EVERY == 0 or done == self.job.iterations):
                marks.append(Mark(done, perf_counter() - began, params()))
        return marks

    def _judged(self, name: str, marks: Sequence[Mark]) -> list[Timing]:
        """When it was good enough for the first time, and how good it is at the end."""
        if not marks:
            return []
        found = [(mark, self.problem.quality([mark.params])) for mark in marks]
        there = next((mark for mark, quality in found if quality.accuracy >= TARGET), None)
        last, quality = found[-1]
        self.session.pulse(Pulse(last.steps, loss=quality.loss, accuracy=quality.accuracy, model=name), now=True)
        seconds, steps = (None, None) if there is None else (there.seconds, there.steps)
        return [Timing(name, self.repeat, seconds, steps, last.seconds / last.steps, quality.accuracy)]


def start(job: Job, repeat: int) -> tuple[TorchProblem, Values]:
    """The problem with this repeat's seed, and its first parameters."""
    problem = msgspec.structs.replace(job, seed=job.seed + repeat).problem()
    assert isinstance(problem, TorchProblem), "all recipes are"
    (first,) = problem.start([Bucket(0, problem.layout.size)])
    return problem, first


def compare(job: Job) -> int:
    """Time all systems, and have worker 0 leave the timings in the job's directory."""
    problem, first = start(job, 0)
    with NumpySession().start(Wiring.read(os.environ)) as session:
        session.replica("all").declare({"all": np.zeros(1)}, {})  # who trains nothing would not be waited for
        join_gloo(Path(job.directory) / "gloo", session.rank, session.size)
        session.barrier()
        gradient = _gradient_seconds(problem, first, session.rank)
        pause = gradient * (job.slow.get(session.rank, 1.0) - 1)
        pauses = session.share("pause", str(pause).encode())
        timings = [timing for repeat in range(REPEATS) for timing in Race(job, session, repeat, pause).run()]
        session.barrier()
        if session.rank == 0:
            leave_timings(Path(job.directory), timings, [float(each) for each in pauses])
    return 0


def _gradient_seconds(problem: TorchProblem, first: Values, rank: int) -> float:
    """What a gradient takes while all workers compute; what happens once in a process is then over, too."""
    found = []
    for iteration in range(WARM):
        began = perf_counter()
        problem.gradient([first], rank, iteration)
        found.append(perf_counter() - began)
    return mean(found[WARM // 2 :])
