"""What a run has come to."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import isfinite, nan
from typing import TYPE_CHECKING

import numpy as np

from syncline.errors import RunError
from syncline.layout import Bucket, Values
from syncline.messages import server_id
from syncline.nodes.meter import Meter
from syncline.nodes.protocol import Keeper, Trainer
from syncline.sim.curve import Point
from syncline.sim.problem import Quality
from syncline.sim.scenario import Scenario
from syncline.sim.trace import TraceLog

if TYPE_CHECKING:
    from syncline.sim.processes import SimulatedWorker
    from syncline.sim.world import World

_UNKNOWN = Quality(nan, nan)
"""Of a made-up model."""


@dataclass(frozen=True)
class Outcome:
    """The figures of a run (the report's keys, where they have one) and the final model by bucket."""

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
    meter: Meter = field(repr=False)
    trace: TraceLog = field(repr=False)
    buckets: tuple[Bucket, ...] = field(repr=False)
    pieces: list[Values] = field(repr=False)
    quality: Quality | None = None
    curve: tuple[Point, ...] = field(default=(), repr=False)
    """How good the model was on the way, if the world was asked to look."""
    notes: tuple[str, ...] = ()
    events: int = 0

    def model_vector(self) -> Values:
        return np.concatenate(self.pieces)


def judge(world: World, pieces: list[Values], apart: float) -> Outcome:
    """Read the outcome off a world that has run to its end with this model; `apart`: its replica gap by then."""
    counts = [node.counts() for node in counting(world)]
    if not isfinite(world.last_answer):
        raise RunError("virtual time has grown beyond all numbers; are all times in seconds?")
    world.meter.close(world.last_answer)
    for bucket, piece in zip(world.buckets, pieces, strict=True):
        table = world.problem.layout.first_not_finite(bucket, piece)
        if table is not None:
            raise RunError(
                f"table {table.name!r} of the final model holds NaN or infinity; try a smaller learning rate"
            )
    return Outcome(
        scenario=world.scenario,
        virtual_seconds=world.last_answer,
        train_progress=_train_progress(world),
        updates=sum(each.updates for each in counts),
        dropped_updates=sum(each.dropped for each in counts),
        pushes_skipped=sum(each.pushes_skipped for each in counts),
        fetches_skipped=sum(each.fetches_skipped for each in counts),
        replica_gap=apart,
        bottleneck=_bottleneck(world),
        trace_sha256=world.trace.sha256(),
        meter=world.meter,
        trace=world.trace,
        buckets=world.buckets,
        pieces=pieces,
        quality=world.problem.quality(pieces),
        curve=tuple(world.curve.points),
        notes=_notes(world),
        events=world.agenda.happened,
    )


def look(world: World, worker: SimulatedWorker) -> None:
    """Add a point to the curve; in `gradients` mode the model is that of a worker that has just finished a step."""
    pieces = server_pieces(world) if world.strategy.keeps else worker.model.pieces
    quality = world.problem.quality(pieces) or _UNKNOWN
    world.trace.flush()
    pushed, pulled = world.trace.bytes_pushed, world.trace.bytes_pulled
    world.curve.add(Point(world.agenda.now, world.iterations_done, *quality, pushed, pulled))


def gap(some: Sequence[Values], others: Sequence[Values]) -> float:
    """The largest difference between two models."""
    return max(float(np.abs(a - b).max(initial=0)) for a, b in zip(some, others, strict=True))


def server_pieces(world: World) -> list[Values]:
    """A copy of the parameters as the servers hold them, in the order of the buckets."""
    held = {name: params for server in world.servers for name, params in server.node.params().items()}
    order = sorted(held)
    starts = [bucket.start for bucket in order]
    rows = ((bisect_left(starts, whole.start), bisect_left(starts, whole.stop)) for whole in world.buckets)
    return [np.concatenate([held[piece] for piece in order[first:last]]) for first, last in rows]


def _train_progress(world: World) -> int:
    """The least V; rounds after the last iteration, which close for want of members, do not count."""
    holding = [server.node for server in world.servers if server.node.params()]
    nodes: Sequence[Keeper | Trainer] = holding or [worker.node for worker in world.members()]
    least = min((node.counts().progress for node in nodes), default=0)
    return int(min(least, world.pace.last))


def counting(world: World) -> Sequence[Keeper | Trainer]:
    """The nodes whose counts are the run's: the servers, or, where there are none, the workers."""
    if world.servers:
        return [server.node for server in world.servers]
    return [worker.node for worker in world.workers.values()]


def final_pieces(world: World) -> list[Values]:
    """The servers' parameters; in `gradients` mode, where they live in the workers, those of a worker that is done."""
    if world.strategy.keeps:
        return server_pieces(world)
    done = world.members() or [worker for worker in world.workers.values() if worker.done]
    return done[0].model.pieces


def replica_gap(world: World, pieces: Sequence[Values]) -> float:
    """The largest difference between a replica and the servers' model; in `gradients` mode, between two replicas."""
    replicas = [worker.model.pieces for worker in world.members()]
    if world.strategy.keeps or not replicas:
        return max((gap(replica, pieces) for replica in replicas), default=0.0)
    highest = [reduce(np.maximum, same) for same in zip(*replicas, strict=True)]
    lowest = [reduce(np.minimum, same) for same in zip(*replicas, strict=True)]
    return gap(highest, lowest)


def _bottleneck(world: World) -> str:
    """The largest share of the run's time.

    A worker computing or parked, on average; one link, by its busier direction or its latency; one node's updates.
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
    if world.scenario.dispatch is not None:
        return ("with [dispatch] there is no clock: a turn counts as one second, and compute times have no effect",)
    faults, end = world.scenario.faults, world.ended
    assert end is not None, "it has run to its end"
    late = sum(fault.at > end for fault in faults)
    return (f"{late} of {len(faults)} faults came after the end of the run and had no effect",) if late else ()
