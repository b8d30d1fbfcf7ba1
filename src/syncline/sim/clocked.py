"""Workers compute by the clock: a step takes its compute time, and the worker sends all its updates at the end."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NoReturn

from syncline.errors import RunError, Stalled
from syncline.sim.agenda import NO_WORKER, Action
from syncline.sim.compute import BLOCK
from syncline.sim.processes import SimulatedWorker

if TYPE_CHECKING:
    from syncline.sim.pace import Progress
    from syncline.sim.world import World

NEVER = -inf

_TICK = 4096
"""The number of events between two calls of `progress` and two flushes of the trace."""


class Clocked:
    """Every worker's step takes as many virtual seconds as the scenario's compute times say."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.last: float = inf if world.scenario.stop.replaces_iterations else world.scenario.iterations
        self._agenda = world.agenda
        self._compute = world.scenario.cluster.compute
        self._ended: Action = self._computed

    def begin(self, worker: SimulatedWorker) -> None:
        agenda, iteration = self._agenda, worker.iteration
        if iteration >= worker.block_stop:
            self._plan(worker, iteration)
        worker.step = step = worker.step + 1
        worker.step_start = now = agenda.now
        worker.step_stop = stop = now + worker.block[iteration - worker.block_start] * worker.factor
        agenda.at(stop, worker.number, self._ended, worker, step)

    def _seconds(self, worker: SimulatedWorker, iteration: int) -> float:
        """How long this iteration takes if it begins now."""
        if iteration >= worker.block_stop:
            self._plan(worker, iteration)
        return worker.block[iteration - worker.block_start] * worker.factor

    def _plan(self, worker: SimulatedWorker, iteration: int) -> None:
        """Draw the compute times of the block that holds this iteration. A worker never returns to an earlier block."""
        number = iteration // BLOCK
        worker.block = self._compute.block(worker.number, number, self._world.draw)
        worker.block_start = number * BLOCK
        worker.block_stop = worker.block_start + BLOCK

    def postpone(self, worker: SimulatedWorker, seconds: float) -> None:
        worker.step += 1
        worker.step_stop += seconds
        self._agenda.at(worker.step_stop, worker.number, self._ended, worker, worker.step)

    def _computed(self, worker: SimulatedWorker, step: int) -> None:
        world = self._world
        if worker.step != step or world.ended is not None:
            return
        worker.step_stop = NEVER
        world.meter.computed(worker.number, worker.step_start, self._agenda.now)
        world.train(worker)

    def run(self, progress: Progress | None) -> None:
        world, agenda = self._world, self._world.agenda
        seconds = world.scenario.stop.seconds
        if seconds is not None:
            agenda.at(seconds, NO_WORKER, self._time_over, None, None)
        while not agenda.over:
            if not agenda.run(_TICK):
                self._stalled()
            world.trace.flush()
            if progress is not None:
                progress(world.iterations_done, self._total())

    def _time_over(self, _: None, __: None) -> None:
        self._world.stop("seconds")

    def _total(self) -> int:
        """How many iterations the run will have; under a limit of seconds, an estimate."""
        world, stop = self._world, self._world.scenario.stop
        if stop.updates is not None:
            return stop.updates
        if stop.seconds is not None:
            return round(world.iterations_done * stop.seconds / (self._agenda.now or stop.seconds))
        return world.scenario.cluster.workers * world.scenario.iterations

    def _stalled(self) -> NoReturn:
        world = self._world
        now = f"{world.agenda.now:g} s"
        if not world.awaited:
            raise RunError(f"no worker is left at {now}: all have crashed, left or been declared dead")
        if world.transfer.waiting:
            joiner = next(iter(world.transfer.waiting.values()))[0]
            raise RunError(
                f"worker {joiner.number} joined at {now}, but in mode 'gradients' only workers hold the parameters, "
                "and no live worker has them any more; use mode 'changes' or 'rule', where the servers hold them"
            )
        left = [worker for worker in world.workers.values() if worker.awaited]
        who = ", ".join(f"worker {worker.number} at iteration {worker.iteration}" for worker in left[:8])
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        raise Stalled(f"the run deadlocked at {now}: no event is left; still waiting: {who}{more}")
