"""A training run as one worker sees it: its iterations, a look at the model now and then, and what it leaves behind."""

from __future__ import annotations

import os
from pathlib import Path
from time import monotonic, sleep

import numpy as np

from syncline.engines.net.wiring import Wiring
from syncline.engines.saving.folder import MODEL
from syncline.engines.worker.session import NumpySession
from syncline.engines.worker.table_checkpoints import TableCheckpoints
from syncline.layout import Bucket, Values
from syncline.nodes.staleness import condensed
from syncline.recipes.job import RecipeJob
from syncline.recipes.outcome import WorkerFigures, leave_figures, leave_vectors
from syncline.recipes.run_end import RunEnd
from syncline.recipes.trainee import Trainee
from syncline.sim.problem import Problem, Quality

LOOK_SECONDS = 1.0
"""Between two looks at how good the model is, at least; and ten times as long as a look takes.

A run that stops at a loss or an accuracy has only the second limit."""


def train(job: RecipeJob) -> int:
    """Train, and leave the figures and the model in the job's directory."""
    problem = job.problem()
    (first,) = problem.start([Bucket(0, problem.layout.size)])
    with NumpySession().start(Wiring.read(os.environ)) as session, np.errstate(over="ignore", invalid="ignore"):
        exchange = session.replica(MODEL)
        slow = job.slow.get(session.rank, 1.0)
        trainee = Trainee(problem, exchange, lambda seconds: sleep((slow - 1) * seconds) if slow > 1 else None)
        trainee.declare(first, {}, TableCheckpoints(session.checkpoints, exchange, session.size, trainee))
        if not job.members_change:  # a worker that joins would wait for those that train
            session.barrier()
        began = monotonic()
        end = RunEnd(job, session.rank, exchange.strategy.synchronous)
        _iterate(
            session, trainee, problem if session.rank == 0 else None, end, 0.0 if job.stop.has_target else LOOK_SECONDS
        )
        ended = monotonic()
        if session.checkpoints.writer is not None:
            session.checkpoints.writer.finish()
        if end.leaves_first:
            trainee.leave()
        evaluator = min(map(int, session.share("trained", str(session.rank).encode())))
        own, final = trainee.params, trainee.final()
        quality = problem.quality([final]) if session.rank == evaluator else None
        session.pulse(trainee.pulse(*(quality or ())), now=True)
        figures = WorkerFigures(
            session.rank,
            trainee.iterations,
            trainee.computed,
            trainee.waited,
            trainee.most_stale,
            began,
            ended,
            quality,
            {key: (word, exchange.origins[key]) for key, word in exchange.settings.items()},
            end.reason,
            exchange.link.sent_bytes,
            list(exchange.losses) if exchange.strategy.free_running else None,
            condensed(exchange.counts().staleness),
            exchange.counts().partitions,
        )
        leave_vectors(Path(job.directory), session.rank, own, final)
        leave_figures(Path(job.directory), figures)
    return 0


def _iterate(session: NumpySession, trainee: Trainee, problem: Problem | None, end: RunEnd, pause: float) -> None:
    """Train until the end; with a problem, look at how good the model is, at most every `pause` seconds."""
    look = monotonic() + pause
    while not end.is_over(trainee.iteration):
        trainee.step()
        quality = None
        if problem is not None and monotonic() >= look:
            quality, look = _look(problem, trainee.params, pause)
            session.pulse(trainee.pulse(*quality), now=True)
        else:
            session.pulse(trainee.pulse())
        end.stepped(trainee.iteration, quality)


def _look(problem: Problem, params: Values, pause: float) -> tuple[Quality, float]:
    """How good the model is, and when to look again."""
    began = monotonic()
    quality = problem.quality([params])
    assert quality is not None, "a recipe can tell how good its model is"
    now = monotonic()
    return quality, now + max(pause, 10 * (now - began))
