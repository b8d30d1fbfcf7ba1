"""A joiner in `gradients` mode takes its replica from a live worker that has done the step before its first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.layout import VALUE_BYTES
from syncline.messages import Message
from syncline.sim.processes import Client
from syncline.sim.replica import Replica

if TYPE_CHECKING:
    from syncline.sim.world import World


class Handed(Message, frozen=True, tag="state"):
    """Worker to worker: parameters and optimizer state, for a joiner that starts with iteration `progress`."""

    progress: int


class Handover:
    """Pairs joiners with donors; the replica travels over the network like any message."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.waiting: dict[int, list[Client]] = {}
        """Joiners, by the iteration that a donor must have reached."""

    def ask(self, joiner: Client, first: int) -> None:
        """A joiner may start with iteration `first`, once it has a replica."""
        joiner.iteration = first
        for donor in self._world.clients.values():
            if donor is not joiner and donor.alive and not donor.joining and donor.iteration == first:
                self._send(donor, joiner)
                return
        self.waiting.setdefault(first, []).append(joiner)

    def serve(self, donor: Client) -> None:
        """A worker has come to its next iteration: somebody may have waited for that."""
        for joiner in self.waiting.pop(donor.iteration, ()):
            self._send(donor, joiner)

    def _send(self, donor: Client, joiner: Client) -> None:
        world, twin = self._world, donor.replica.twin()
        size = world.problem.layout.size * VALUE_BYTES * twin.state_arrays()
        if world.recording:
            world.trace.record(world.agenda.now, donor.id, joiner.id, Handed(0, joiner.iteration), size)
        world.network.send(donor.id, joiner.id, joiner.number, size, self._arrive, (joiner, joiner.step, twin))

    def _arrive(self, joiner: Client, step: int, twin: Replica) -> None:
        if joiner.alive and joiner.step == step:
            joiner.replica = twin
            self._world.last_answer = self._world.agenda.now
            self._world.go_on(joiner, joiner.iteration)
