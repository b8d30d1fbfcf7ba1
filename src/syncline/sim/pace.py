"""Decides when workers compute: by compute times (clocked.py, two_pass_steps.py) or by dispatch, without a clock."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Protocol

from syncline.errors import Stalled
from syncline.sim.clocked import Clocked
from syncline.sim.dispatch import Dispatch, Pool
from syncline.sim.overlap import Overlap
from syncline.sim.processes import SimulatedWorker
from syncline.sim.two_pass_steps import Passes

if TYPE_CHECKING:
    from syncline.sim.world import World

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
        self._turns = clients * world.scenario.iterations

    def begin(self, worker: SimulatedWorker) -> None:
        self._ready.add(worker.number)

    def postpone(self, worker: SimulatedWorker, seconds: float) -> None:
        raise AssertionError("a dispatched run has no faults")

    def run(self, progress: Progress | None) -> None:
        world, agenda = self._world, self._world.agenda
        agenda.drain()
        for turn in range(self._turns):
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
        world.last_answer = float(self._turns)
        for worker in world.workers.values():
            worker.done = True
