"""A worker's part in `syncline train --compare`: one process, DDP with gloo and Syncline take turns.

1. Every system starts with the same parameters and trains with the same optimizer on the same batches.
2. The clock starts when all workers are ready, and stops when the workers have trained on all batches of the turn
   (turns.py). The accuracy is computed afterwards.
3. The slow worker sleeps after it has computed its gradient and before it sends it: for the same time under every
   system, a multiple of the step of one worker alone. One process has no slow worker.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from statistics import median
from time import perf_counter, sleep, thread_time

import msgspec
import numpy as np

from syncline.engines.net.control import Pulse
from syncline.engines.net.wiring import Wiring
from syncline.engines.worker.session import NumpySession
from syncline.layout import Bucket, Values
from syncline.recipes.job import RecipeJob
from syncline.recipes.machines import Measured
from syncline.recipes.run_end import SharedSteps
from syncline.recipes.timings import Timing, Timings, write_timings
from syncline.recipes.torch_loop import TorchLoop, join_gloo
from syncline.recipes.torch_problem import TorchProblem
from syncline.recipes.trainee import Trainee
from syncline.recipes.turns import ALONE, Turn, turns

WARM, TIMED = 10, 30
"""Steps that one worker does alone to measure a step: first those to warm up, then those that count."""


@dataclass
class ComparedTurn:
    """One worker's part in one turn."""

    turn: Turn
    job: RecipeJob
    session: NumpySession
    problem: TorchProblem
    first: Values
    """The initial parameters."""
    pause: float
    """Seconds that this worker sleeps in every step."""
    ends: list[float] = field(default_factory=list)
    """The time at the end of each of its steps."""

    def run(self) -> list[Timing]:
        """Train; worker 0 returns the timing, the others nothing."""
        system = self._syncline if self.turn.sync else self._alone if self.turn.system == ALONE else self._ddp
        params = system()
        shared = self.session.share("ends", msgspec.json.encode(self.ends))
        if self.session.rank:
            return []
        return [self._timing(params, [msgspec.json.decode(each, type=list[float]) for each in shared])]

    def _alone(self) -> Values:
        """Worker 0 alone trains on all batches of a round in one step; the others wait."""
        batches = replace(self.problem.batches, workers=1, batch=self.job.batch * self.job.workers)
        loop = TorchLoop(self.problem, self.first, batches, 0)
        self._timed(loop.step, (lambda: loop.iterations < self.turn.rounds) if self.session.rank == 0 else _never)
        return loop.params

    def _ddp(self) -> Values:
        loop = TorchLoop(self.problem, self.first, self.problem.batches, self.session.rank)
        loop.under_ddp(self.pause)
        self._timed(loop.step, lambda: loop.iterations < self.turn.rounds)
        return loop.params

    def _syncline(self) -> Values:
        exchange = self.session.replica(self.turn.name)
        trainee = Trainee(self.problem, exchange, lambda _: sleep(self.pause) if self.pause else None)
        trainee.declare(self.first, {"sync": self.turn.sync})
        more = self._fewer_in_all() if self.turn.round is None else lambda: trainee.iteration < self.turn.rounds
        self._timed(trainee.step, more, trainee.pulse)
        self.session.drop(exchange)
        return trainee.params

    def _fewer_in_all(self) -> Callable[[], bool]:
        """A test whether the workers together have done fewer steps than there are batches."""
        steps = SharedSteps(Path(self.job.directory) / f"steps of {self.turn.name}")
        told = 0

        def fewer() -> bool:
            nonlocal told
            new, told = len(self.ends) - told, len(self.ends)
            return steps.add(new) < self.turn.batches

        return fewer

    def _timed(
        self, step: Callable[[], None], more: Callable[[], bool], pulse: Callable[[], Pulse] | None = None
    ) -> None:
        """Wait until all workers are ready, then take steps while `more()`, and tell the launcher the progress."""
        self.session.barrier()
        self.began = perf_counter()
        while more():
            step()
            self.ends.append(perf_counter())
            told = Pulse(len(self.ends)) if pulse is None else pulse()
            self.session.pulse(msgspec.structs.replace(told, model=self.turn.name))

    def _timing(self, params: Values, ends: list[list[float]]) -> Timing:
        """The timing of this turn, from the times of all workers."""
        turn = self.turn
        over = self.ends[-1] if turn.round else sorted(end for each in ends for end in each)[turn.batches - 1]
        quality = self.problem.quality([params])
        pulse = Pulse(len(self.ends), loss=quality.loss, accuracy=quality.accuracy, model=turn.name)
        self.session.pulse(pulse, now=True)
        images = turn.trained * self.job.batch
        return Timing(turn.system, turn.slow, turn.repeat, over - self.began, images, quality.accuracy)


def _never() -> bool:
    return False


def start(job: RecipeJob, repeat: int) -> tuple[TorchProblem, Values]:
    """The problem with this repeat's seed, and its initial parameters."""
    problem = msgspec.structs.replace(job, seed=job.seed + repeat).problem()
    assert isinstance(problem, TorchProblem), "all recipes are"
    (first,) = problem.start([Bucket(0, problem.layout.size)])
    return problem, first


def compare(job: RecipeJob) -> int:
    """Time all systems; worker 0 writes the timings to the job's directory."""
    with NumpySession().start(Wiring.read(os.environ)) as session:
        session.replica("all").declare({"all": np.zeros(1)}, {})  # the run waits only for workers that declare a model
        join_gloo(Path(job.directory) / "gloo", session.rank, session.size)
        measured = _measure(job, session)
        late = [measured.step_seconds * (job.slow.get(worker, 1.0) - 1) for worker in range(job.workers)]
        timings = [timing for turn in _each(job, session, late[session.rank]) for timing in turn.run()]
        session.barrier()
        if session.rank == 0:
            write_timings(Path(job.directory), Timings(timings, measured, late))
    return 0


def _each(job: RecipeJob, session: NumpySession, late: float) -> Iterator[ComparedTurn]:
    """This worker's part in every turn; the turns of one seed share a problem."""
    for repeat, some in groupby(turns(job), lambda turn: turn.repeat):
        problem, first = start(job, repeat)
        for turn in some:
            yield ComparedTurn(turn, job, session, problem, first, late if turn.slow else 0.0)


def _measure(job: RecipeJob, session: NumpySession) -> Measured:
    """Worker 0 measures a step and a round while the others wait, and shares the results."""
    problem, first = start(job, 0)
    batches = problem.batches
    round_batches = replace(batches, workers=1, batch=job.batch * job.workers)
    seconds = [
        _step_seconds(TorchLoop(problem, first, each, 0)) for each in (batches, round_batches) if not session.rank
    ]
    shared = session.share("seconds", msgspec.json.encode(seconds))
    step, whole_round = msgspec.json.decode(shared[0], type=tuple[float, float])
    return Measured(step, whole_round, [(table.name, table.shape) for table in problem.layout.tables])


def _step_seconds(loop: TorchLoop) -> float:
    """The median step in seconds of processor time, which excludes other work on the machine."""
    found = []
    for _ in range(WARM + TIMED):
        began = thread_time()
        loop.step()
        found.append(thread_time() - began)
    return median(found[WARM:])
