"""Simulates the compared job on separate machines with 1 Gbit links, from what was measured on this machine.

1. Each machine has a worker and a server. A step takes as long as the step of a worker that computed alone here,
   multiplied by the factor of a slow machine. Updates are made up, but as large as the model. One process has one
   machine.
2. docs/cluster.md compares these simulated links with real ones. A machine sends nothing while it computes.
3. DDP is not simulated but estimated: the slowest machine's step, and then its ring moves 2 (n - 1) / n times the model
   over each link. The estimate ignores the overhead of its messages, which favours DDP.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from syncline.draw import Draw
from syncline.engines.coordinator.network_defaults import between_hosts
from syncline.layout import VALUE_BYTES, Layout
from syncline.nodes.meter import Span
from syncline.recipes.job import RecipeJob
from syncline.recipes.turns import ALONE, DDP, syncs
from syncline.sim.compute import Lognormal
from syncline.sim.faults import Slow
from syncline.sim.problem import Layers
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.tcp_links import GOODPUT, HANDLING, tcp_links
from syncline.sim.world import World
from syncline.spec import parse
from syncline.strategies.settings import settle, strategy_of
from syncline.sync import Drop

LINK_BITS = 1e9
"""Bits per second of each link, in each direction."""

ITERATIONS = 100
"""Iterations of each simulated worker."""


class Measured(msgspec.Struct, frozen=True):
    """What worker 0 measured while the others waited, in seconds of processor time."""

    step_seconds: float
    """A step on one worker's batch."""
    round_seconds: float
    """A step of one process on the batches of all workers."""
    tables: list[tuple[str, tuple[int, ...]]]
    """The names and shapes of the model's tables."""


def simulated_machines(job: RecipeJob, measured: Measured) -> dict[str, Any]:
    """Images per second of every system, with one machine per worker."""
    layout = Layout.of(measured.tables)
    machines = _Machines(job, measured.step_seconds, layout)
    alone = job.batch * job.workers / measured.round_seconds
    rows = [{"system": ALONE, "images_per_second_equal": alone, "images_per_second": alone}]
    for sync in ("", *syncs(job)):
        equal, slow = (machines.rate(sync, factors) for factors in ({}, job.slow))
        system = f"Syncline, {sync}" if sync else DDP
        rows.append({"system": system, "images_per_second_equal": equal, "images_per_second": slow})
    return {
        "machines": job.workers,
        "link_bits_per_second": LINK_BITS,
        "model_bytes": layout.size * VALUE_BYTES,
        "rows": rows,
    }


class _Machines:
    """The simulated machines, each with a worker and a server."""

    def __init__(self, job: RecipeJob, seconds: float, layout: Layout) -> None:
        self._job = job
        self._seconds = seconds
        self._layout = layout

    def rate(self, sync: str, slow: dict[int, float]) -> float:
        """Images per second; `slow` gives the factors of the slow workers."""
        if not sync:
            return self._job.batch * self._job.workers / self._ring_step(slow)
        return self._job.batch * self._batches_per_second(sync, slow)

    def _ring_step(self, slow: dict[int, float]) -> float:
        hosts = self._job.workers
        moved = 2 * (hosts - 1) / hosts * self._layout.size * VALUE_BYTES
        return self._seconds * max([1.0, *slow.values()]) + moved * 8 / (LINK_BITS * GOODPUT)

    def _batches_per_second(self, sync: str, slow: dict[int, float]) -> float:
        """Batches per second until the first worker is done; a round of `drop` counts k batches."""
        scenario = self._scenario(sync, slow)
        shares = [table.size / self._layout.size for table in self._layout.tables]
        spans: Sequence[Span] = World(scenario, Layers(self._layout, shares, Draw(0)), spans=True).run().spans or ()
        steps = [(span.worker, span.stop) for span in spans if span.what == "compute"]
        over = min(max(stop for worker, stop in steps if worker == each) for each in {worker for worker, _ in steps})
        done = [worker for worker, stop in steps if stop <= over]
        model = parse("sync", sync)
        if isinstance(model, Drop):
            return model.k * max(map(done.count, done)) / over
        return len(done) / over

    def _scenario(self, sync: str, slow: dict[int, float]) -> Scenario:
        hosts = self._job.workers
        bucket = between_hosts(self._layout.size // hosts)
        settled = settle({"job": {"sync": sync}, "hosts": bucket}, hosts, hosts)
        words = {key: word for key, (word, _) in settled.items()}
        links = tcp_links(LINK_BITS / 8)
        cluster = Cluster(hosts, Lognormal(self._seconds), links, colocated=True, handling=HANDLING)
        faults = tuple(Slow(0.0, worker, factor) for worker, factor in slow.items())
        return Scenario(cluster, strategy_of(words, hosts), ITERATIONS, faults=faults)
