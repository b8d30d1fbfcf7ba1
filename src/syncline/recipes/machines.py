"""The same job on machines of their own, joined by 1 Gbit links: simulated, from what was measured on this one.

1. Each machine has a worker and a server. Its step takes as long as that of a worker that computed alone here; the slow
   machine's, so many times as long. Updates are made up, but as large as the model. One process has one machine.
2. The links are those that docs/cluster.md compares with real ones. Nothing is sent while a machine computes.
3. DDP is no protocol of ours: its step is the slowest machine's, and then its ring moves 2 (n - 1) / n times the model
   over each link. What its messages cost beside that is left out, in its favour.
"""

from __future__ import annotations

from typing import Any

import msgspec

from syncline.draw import Draw
from syncline.engines.coordinator.bucket_size import between_hosts
from syncline.layout import VALUE_BYTES, Layout
from syncline.recipes.job import RecipeJob
from syncline.recipes.turns import ALONE, DDP, syncs
from syncline.sim.compute import Lognormal
from syncline.sim.faults import Slow
from syncline.sim.network import Links
from syncline.sim.problem import Layers
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.world import World
from syncline.spec import parse
from syncline.strategies.settings import settle, strategy_of
from syncline.sync import Drop

LINK_BITS = 1e9
"""Of each link, each way, in a second."""

GOODPUT = 1448 / 1514
"""What TCP leaves of them for values, in frames of 1,500 bytes."""

WINDOW = 1 << 18
"""Bytes that a connection has on its way before others have their turn on a link."""

HANDLING = 100e-6
"""Seconds that a message takes a processor."""

ITERATIONS = 100
"""Of each worker."""


class Measured(msgspec.Struct, frozen=True):
    """What worker 0 found, while the others waited; seconds are of processor time."""

    step_seconds: float
    """Of one worker's batch."""
    round_seconds: float
    """Of all workers' batches, in one step of one process."""
    tables: list[tuple[str, tuple[int, ...]]]
    """Of the model: names and shapes."""


def simulated_machines(job: RecipeJob, measured: Measured) -> dict[str, Any]:
    """Images a second of every system, on as many machines as the job has workers."""
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
    """A worker and a server on each of as many machines as the job has workers."""

    def __init__(self, job: RecipeJob, seconds: float, layout: Layout) -> None:
        self._job = job
        self._seconds = seconds
        self._layout = layout

    def rate(self, sync: str, slow: dict[int, float]) -> float:
        """Images a second, with workers that are so many times slower."""
        if not sync:
            return self._job.batch * self._job.workers / self._ring_step(slow)
        return self._job.batch * self._batches_per_second(sync, slow)

    def _ring_step(self, slow: dict[int, float]) -> float:
        hosts = self._job.workers
        moved = 2 * (hosts - 1) / hosts * self._layout.size * VALUE_BYTES
        return self._seconds * max([1.0, *slow.values()]) + moved * 8 / (LINK_BITS * GOODPUT)

    def _batches_per_second(self, sync: str, slow: dict[int, float]) -> float:
        """Until the first worker is done; a round of `drop` counts what it takes."""
        scenario = self._scenario(sync, slow)
        shares = [table.size / self._layout.size for table in self._layout.tables]
        spans = World(scenario, Layers(self._layout, shares, Draw(0)), spans=True).run().meter.spans or []
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
        links = Links(LINK_BITS / 8 * GOODPUT, turn=WINDOW)
        cluster = Cluster(hosts, Lognormal(self._seconds), links, colocated=True, handling=HANDLING)
        faults = tuple(Slow(0.0, worker, factor) for worker, factor in slow.items())
        return Scenario(cluster, strategy_of(words, hosts), ITERATIONS, faults=faults)
