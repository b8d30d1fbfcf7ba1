"""Runs a training job in the simulator, in virtual time, with the same report."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from syncline.recipes.job import RecipeJob
from syncline.sim.faults import Slow
from syncline.sim.outcome import Outcome
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.world import World
from syncline.strategies.protocol import Strategy


def simulate(job: RecipeJob, strategy: Strategy, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
    """Train in virtual time: a step takes 0.1 s, and messages take no time."""
    slow = tuple(Slow(0.0, worker, factor) for worker, factor in job.slow.items())
    scenario = Scenario(Cluster(job.workers), strategy, job.iterations or 1, job.seed, slow, stop=job.stop)
    outcome = World(scenario, job.problem(), spans=True).run(progress)
    found = outcome.report
    return {"schema": found.pop("schema"), "engine": "sim", "lane": None, **found, "workers": _rows(job, outcome)}


def _rows(job: RecipeJob, outcome: Outcome) -> list[dict[str, Any]]:
    """What each worker did, in virtual seconds."""
    seconds: defaultdict[tuple[int, str], float] = defaultdict(float)
    ends: defaultdict[int, float] = defaultdict(float)
    steps: Counter[int] = Counter()
    for span in outcome.spans or ():
        seconds[span.worker, span.what] += span.stop - span.start
        steps[span.worker] += span.what == "compute"
        ends[span.worker] = max(ends[span.worker], span.stop)
    return [
        {
            "worker": worker,
            "iterations": steps[worker],
            "virtual_seconds": ends[worker],
            "compute_seconds": seconds[worker, "compute"],
            "waiting_seconds": seconds[worker, "wait"],
        }
        for worker in range(job.workers)
    ]
