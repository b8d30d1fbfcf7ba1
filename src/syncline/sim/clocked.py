"""Each worker takes its own time: a step is over after its seconds, and all its updates leave then."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, NoReturn

from syncline.errors import RunError, Stalled
from syncline.sim.agenda import Action
from syncline.sim.compute import BLOCK
from syncline.sim.processes import SimulatedWorker

if TYPE_CHECKING:
    from syncline.sim.pace import Progress
    from syncline.sim.world import World

NEVER = -inf

_TICK = 4096
"""After how many events progress is told, and the trace is worked through."""


class Clocked:
    """Each worker takes its own time."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.last: float = world.scenario.iterations
        self._agenda = world.agenda
        self._compute = world.scenario.cluster.compute
        self._ended: Action = self._computed

    def begin(self, client: SimulatedWorker) -> None:
        agenda, iteration = self._agenda, client.iteration
        if iteration >= client.block_stop:
            self._plan(client, iteration)
        client.step = step = client.step + 1
        client.step_start = now = agenda.now
        client.step_stop = stop = now + client.block[iteration - client.block_start] * client.factor
        agenda.at(stop, client.number, self._ended, client, step)

    def _seconds(self, client: SimulatedWorker, iteration: int) -> float:
        """How long this iteration takes, begun now."""
        if iteration >= client.block_stop:
            self._plan(client, iteration)
        return client.block[iteration - client.block_start] * client.factor

    def _plan(self, client: SimulatedWorker, iteration: int) -> None:
        """Draw the seconds of the block that holds this iteration; the client never comes to an earlier one."""
        number = iteration // BLOCK
        client.block = self._compute.block(client.number, number, self._world.draw)
        client.block_start = number * BLOCK
        client.block_stop = client.block_start + BLOCK

    def postpone(self, client: SimulatedWorker, seconds: float) -> None:
        client.step += 1
        client.step_stop += seconds
        self._agenda.at(client.step_stop, client.number, self._ended, client, client.step)

    def _computed(self, client: SimulatedWorker, step: int) -> None:
        world = self._world
        if client.step != step or world.ended is not None:
            return
        client.step_stop = NEVER
        world.meter.computed(client.number, client.step_start, self._agenda.now)
        world.train(client)

    def run(self, progress: Progress | None) -> None:
        world, agenda = self._world, self._world.agenda
        total = world.scenario.cluster.workers * world.scenario.iterations
        while not agenda.over:
            if not agenda.run(_TICK):
                self._stalled()
            world.trace.flush()
            if progress is not None:
                progress(world.iterations_done, total)

    def _stalled(self) -> NoReturn:
        world = self._world
        now = f"{world.agenda.now:g} s"
        if not world.awaited:
            raise RunError(f"every worker is gone at {now}; nobody is left to train")
        if world.handover.waiting:
            joiner = next(iter(world.handover.waiting.values()))[0]
            raise RunError(
                f"worker {joiner.number} joined at {now}, but in mode 'gradients' the parameters live in the workers, "
                'and no live worker has them any more; mode "changes" or a rule keeps them on the servers'
            )
        left = [client for client in world.clients.values() if client.awaited]
        who = ", ".join(f"worker {client.number} at iteration {client.iteration}" for client in left[:8])
        more = f" and {len(left) - 8} more" if len(left) > 8 else ""
        raise Stalled(f"nothing can happen any more at {now}; still waiting: {who}{more}")
