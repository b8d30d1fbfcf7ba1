"""The outcome of a run: its figures and the final model."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import isfinite, nan
from typing import TYPE_CHECKING, Any

import numpy as np

from syncline.errors import RunError
from syncline.layout import Bucket, Values
from syncline.messages import server_id
from syncline.nodes.meter import Span
from syncline.nodes.peer_losses import loss_figures, loss_line
from syncline.nodes.protocol import Counts, Keeper, Trainer
from syncline.nodes.staleness import Histogram, merged
from syncline.sim.curve import Point
from syncline.sim.pace import ITERATIONS
from syncline.sim.problem import Quality
from syncline.sim.report import report
from syncline.sim.scenario import Scenario
from syncline.sim.server_crashes import crash_lines

if TYPE_CHECKING:
    from syncline.sim.processes import SimulatedWorker
    from syncline.sim.world import World

_UNKNOWN = Quality(nan, nan)
"""The quality of a made-up model."""


@dataclass(frozen=True)
class Outcome:
    """The figures of a run, named as in the report, and the final model by bucket."""

    scenario: Scenario
    virtual_seconds: float
    train_progress: int
    updates: int
    dropped_updates: int
    pushes_skipped: int
    fetches_skipped: int
    replica_gap: float
    bottleneck: str
    trace_sha256: str
    iterations_done: int
    """Of all workers together."""
    stopped_by: str
    """What ended the run: "iterations", or a key of the scenario's stop."""
    delayed_pulls: int
    waiting_seconds: float
    compute_seconds: float
    bytes_pushed: int
    bytes_pulled: int
    bytes_wire: int
    staleness: Histogram = field(repr=False)
    """How many updates had each staleness, counted per bucket."""
    spans: tuple[Span, ...] | None = field(repr=False)
    """When each worker computed and waited; None unless they were recorded."""
    buckets: tuple[Bucket, ...] = field(repr=False)
    pieces: list[Values] = field(repr=False)
    quality: Quality | None = None
    curve: tuple[Point, ...] = field(default=(), repr=False)
    """The learning curve; empty unless `every` was given."""
    notes: tuple[str, ...] = ()
    events: int = 0
    tree: dict[str, Any] | None = field(default=None, repr=False)
    """The figures of a tree: hops, bytes per link, staleness over time; None with other strategies."""
    deaths: list[dict[str, Any]] | None = None
    """What has reached whom of each dead worker's updates; None unless workers send each other updates."""
    restored: dict[str, int] | None = None
    """What was restored and lost when servers crashed; None unless one could crash."""
    partitions: int = 0
    """Into how many ranges the workers cut the model at the end; 0 unless workers send each other parts of it."""

    @property
    def report(self) -> dict[str, Any]:
        """The figures, under the keys that the documentation of the report lists."""
        return report(self)

    def model_vector(self) -> Values:
        return np.concatenate(self.pieces)


def judge(world: World, pieces: list[Values], found_gap: float) -> Outcome:
    """Collect the outcome of a finished world. `pieces` is the final model, `found_gap` the replica gap."""
    counts = [node.counts() for node in counting(world)]
    if not isfinite(world.last_answer):
        raise RunError("virtual time overflowed to infinity; check that all times are in seconds")
    world.meter.close(world.last_answer)
    for bucket, piece in zip(world.buckets, pieces, strict=True):
        table = world.problem.layout.first_not_finite(bucket, piece)
        if table is not None:
            raise RunError(
                f"table {table.name!r} of the final model contains NaN or infinity; try a smaller learning rate"
            )
    trace_sha256 = world.trace.sha256()  # this also completes the sums of bytes
    return Outcome(
        scenario=world.scenario,
        virtual_seconds=world.last_answer,
        train_progress=_train_progress(world),
        updates=sum(each.updates for each in counts),
        dropped_updates=sum(each.dropped for each in counts),
        pushes_skipped=sum(each.pushes_skipped for each in counts),
        fetches_skipped=sum(each.fetches_skipped for each in counts),
        replica_gap=found_gap,
        bottleneck=_bottleneck(world),
        trace_sha256=trace_sha256,
        iterations_done=world.iterations_done,
        stopped_by=world.stopped_by,
        delayed_pulls=world.meter.delayed_pulls,
        waiting_seconds=world.meter.waiting_seconds,
        compute_seconds=world.meter.compute_seconds,
        bytes_pushed=world.trace.bytes_pushed,
        bytes_pulled=world.trace.bytes_pulled,
        bytes_wire=world.trace.bytes_wire,
        staleness=dict(merged(each.staleness for each in counts)),
        spans=None if world.meter.spans is None else tuple(world.meter.spans),
        buckets=world.buckets,
        pieces=pieces,
        quality=world.problem.quality(pieces),
        curve=tuple(world.curve.points),
        notes=(*_notes(world), *crash_lines(counts)),
        restored=_crash_figures(counts) if world.crashes is not None else None,
        events=world.agenda.happened,
        deaths=_deaths(world) if world.strategy.free_running else None,
        partitions=max((each.partitions for each in counts), default=0),
    )


def _crash_figures(counts: Sequence[Counts]) -> dict[str, int]:
    return {
        "restored_buckets": sum(each.restored for each in counts),
        "lost_updates": sum(each.lost for each in counts),
    }


def look(world: World, worker: SimulatedWorker) -> str:
    """Add a point to the curve, and return which target of the scenario's stop it reaches; "" if none.

    In mode `gradients` it measures the replica of the worker that just finished a step.
    """
    pieces = server_pieces(world) if world.strategy.keeps else worker.model.pieces
    quality = world.problem.quality(pieces) or _UNKNOWN
    world.trace.flush()
    pushed, pulled = world.trace.bytes_pushed, world.trace.bytes_pulled
    world.curve.add(Point(world.agenda.now, world.iterations_done, *quality, pushed, pulled))
    return world.scenario.stop.reached(quality)


def gap(some: Sequence[Values], others: Sequence[Values]) -> float:
    """The largest absolute difference between two models."""
    return max(float(np.abs(a - b).max(initial=0)) for a, b in zip(some, others, strict=True))


def server_pieces(world: World) -> list[Values]:
    """A copy of the servers' parameters, in the order of the buckets."""
    held = world.strategy.model([server.node for server in world.servers if server.alive])
    order = sorted(held)
    starts = [bucket.start for bucket in order]
    rows = ((bisect_left(starts, whole.start), bisect_left(starts, whole.stop)) for whole in world.buckets)
    return [np.concatenate([held[piece] for piece in order[first:last]]) for first, last in rows]


def _train_progress(world: World) -> int:
    """The lowest V. Rounds after the last iteration, which close because no member is left, do not count."""
    holding = [server.node for server in world.servers if server.alive and server.node.params()]
    nodes: Sequence[Keeper | Trainer] = holding or [worker.node for worker in world.members()]
    least = min((node.counts().progress for node in nodes), default=0)
    return int(min(least, world.pace.last))


def counting(world: World) -> Sequence[Keeper | Trainer]:
    """The nodes that count the run's updates: the servers, or the workers if there are no servers."""
    if world.servers:
        return [server.node for server in (*world.servers, *world.ended_servers)]
    return [worker.node for worker in world.workers.values()]


def final_pieces(world: World) -> list[Values]:
    """The servers' parameters; in mode `gradients`, where only workers hold them, those of a finished worker."""
    if world.strategy.keeps:
        return server_pieces(world)
    done = _furthest(world) or [worker for worker in world.workers.values() if worker.done]
    return done[0].model.pieces


def _furthest(world: World) -> list[SimulatedWorker]:
    """The members whose replicas have the last update: all, unless the run was stopped in the middle of a round."""
    members = world.members()
    if world.strategy.keeps or world.stopped_by == ITERATIONS:
        return members
    most = max((worker.iteration for worker in members), default=0)
    return [worker for worker in members if worker.iteration == most]


def replica_gap(world: World, pieces: Sequence[Values]) -> float:
    """The largest difference between a replica and the servers' model; in mode `gradients`, between two replicas."""
    replicas = [worker.model.pieces for worker in _furthest(world)]
    if world.strategy.keeps or not replicas:
        return max((gap(replica, pieces) for replica in replicas), default=0.0)
    highest = [reduce(np.maximum, same) for same in zip(*replicas, strict=True)]
    lowest = [reduce(np.minimum, same) for same in zip(*replicas, strict=True)]
    return gap(highest, lowest)


def _bottleneck(world: World) -> str:
    """What took the largest share of the run's time.

    The candidates: an average worker's computing or waiting; one link, by its busier direction or by its latency; one
    server's work on updates.
    """
    workers = len(world.workers)
    links = world.scenario.cluster.links
    latency = 0.0 if links is None else 2 * links.latency * world.iterations_done / workers
    used, node = world.network.busiest() if world.network else (0.0, None)
    times = [
        (world.meter.compute_seconds / workers, "compute"),
        (world.meter.waiting_seconds / workers, "sync"),
        (max(used, latency), f"link:{node or server_id(0)}"),
    ]
    times.extend((server.busy, f"apply:{server.id}") for server in world.servers if server.busy)
    return max(times, key=lambda each: each[0])[1]


def _notes(world: World) -> tuple[str, ...]:
    scenario, end = world.scenario, world.ended
    assert end is not None, "the run must have ended"
    found = []
    if scenario.dispatch is not None:
        found.append("[dispatch] has no clock: a turn counts as one second, and compute times have no effect")
    late = sum(fault.at > end for fault in scenario.faults)
    if late:
        found.append(f"{late} of {len(scenario.faults)} faults came after the end of the run and had no effect")
    if scenario.stop.has_target and world.stopped_by not in ("loss", "accuracy"):
        found.append(f"the model did not reach the target ({scenario.stop}) before the end of the run")
    found += [loss_line(row) for row in _deaths(world)]
    return tuple(found)


def _deaths(world: World) -> list[dict[str, Any]]:
    """What has reached the surviving workers of each dead worker's updates."""
    return loss_figures({number: each.node.losses for number, each in world.workers.items() if each.alive})
