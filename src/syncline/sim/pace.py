"""Decides when workers compute: by compute times (clocked.py, two_pass_steps.py) or by dispatch, without a clock."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, inf
from typing import TYPE_CHECKING, Protocol

from syncline.errors import Stalled
from syncline.sim.clocked import Clocked
from syncline.sim.dispatch import Dispatch, Pool
from syncline.sim.overlap import Overlap
from syncline.sim.processes import SimulatedWorker
from syncline.sim.two_pass_steps import Passes

if TYPE_CHECKING:
    from syncline.sim.world import World

ITERATIONS = "iterations"
"""What ended a run without a stop."""

Progress = Callable[[int, int], None]


class Pace(Protocol):
    last: float
    """A worker that reaches this iteration is done."""

    def begin(self, worker: SimulatedWorker) -> None:
        """A worker is ready to compute its current iteration."""
        ...

    def postpone(self, worker: SimulatedWorker, seconds: float) -> None:
        """The worker's current computation ends this many seconds later."""
        ...

    def run(self, progress: Progress | None) -> None:
        """Run until every worker that the run waits for is done."""
        ...


def pace_of(world: World) -> Pace:
    dispatch = world.scenario.dispatch
    if dispatch is not None:
        return Dispatched(world, dispatch)
    return Clocked(world) if world.scenario.overlap is Overlap.NONE else Passes(world)


class Dispatched:
    """Draws one worker at a time among those that are not waiting; a turn counts as one second."""

    def __init__(self, world: World, dispatch: Dispatch) -> None:
        self.last = inf
        self._world = world
        clients = world.scenario.cluster.workers
        self._ready = Pool(clients)
        self._dealer = dispatch.dealer(clients, world.draw)
        stop = world.scenario.stop
        limits = {"updates": stop.updates, "seconds": None if stop.seconds is None else ceil(stop.seconds)}
        given = {key: limit for key, limit in limits.items() if limit is not None}
        self._limit = min(given, key=lambda key: given[key]) if given else ITERATIONS
        self._turns = given.get(self._limit, clients * world.scenario.iterations)

    def begin(self, worker: SimulatedWorker) -> None:
        self._ready.add(worker.number)

    def postpone(self, worker: SimulatedWorker, seconds: float) -> None:
        raise AssertionError("a dispatched run has no faults")

    def run(self, progress: Progress | None) -> None:
        world, agenda = self._world, self._world.agenda
        agenda.drain()
        for turn in range(self._turns):
            if world.ended is not None:
                break
            if not self._ready:
                raise Stalled(f"the run deadlocked after {turn} turns: every worker is waiting")
            worker = world.workers[self._dealer.draw(turn, self._ready)]
            self._ready.remove(worker.number)
            agenda.now = turn + 1.0
            world.train(worker)
            agenda.drain()
            if turn % 256 == 0:
                world.trace.flush()
                if progress is not None:
                    progress(turn, self._turns)
        world.last_answer = agenda.now
        if world.ended is None:
            world.stopped_by = self._limit
        for worker in world.workers.values():
            worker.done = True
