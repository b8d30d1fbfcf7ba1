"""In mode `gradients`, a joiner gets its replica from a live worker that is about to begin the same iteration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.layout import VALUE_BYTES
from syncline.messages import ReplicaState
from syncline.sim.network import Transfer
from syncline.sim.processes import SimulatedWorker
from syncline.sim.worker_model import WorkerModel

if TYPE_CHECKING:
    from syncline.sim.world import World


class ReplicaTransfer:
    """Pairs joiners with donors. The donor sends its replica over the network like any message."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.waiting: dict[int, list[SimulatedWorker]] = {}
        """The joiners without a donor, by the iteration that a donor must have reached."""
        self._under_way: dict[SimulatedWorker, SimulatedWorker] = {}
        """The donor of each joiner whose replica has not arrived yet."""

    def ask(self, joiner: SimulatedWorker, first: int) -> None:
        """Find a donor for a joiner that starts with iteration `first`."""
        joiner.iteration = first
        donors = [each for each in self._world.workers.values() if each is not joiner and each.can_hand_over(first)]
        if not donors:
            self.waiting.setdefault(first, []).append(joiner)
            return
        donor = min(donors, key=lambda each: each.frozen_until)
        agenda = self._world.agenda
        if donor.frozen_until > agenda.now:
            agenda.at(donor.frozen_until, joiner.number, self.ask, joiner, first)
        else:
            self._send(donor, joiner)

    def serve(self, donor: SimulatedWorker) -> None:
        """A worker has reached its next iteration: send its replica to the joiners that wait for one."""
        for joiner in self.waiting.pop(donor.iteration, ()):
            self._send(donor, joiner)

    def donor_lost(self, donor: SimulatedWorker) -> None:
        """A worker has crashed: find another donor for the joiners that wait for its replica."""
        for joiner in [joiner for joiner, giver in self._under_way.items() if giver is donor]:
            del self._under_way[joiner]
            self.ask(joiner, joiner.iteration)

    def _send(self, donor: SimulatedWorker, joiner: SimulatedWorker) -> None:
        world, twin = self._world, donor.model.twin()
        size = world.problem.layout.size * VALUE_BYTES * twin.state_arrays()
        self._under_way[joiner] = donor
        if world.recording:
            message = ReplicaState(world.view_maker.view.view, joiner.node.incarnation, joiner.iteration)
            world.trace.record((world.agenda.now, donor.id, joiner.id, message, size))
        replica = (joiner.step, twin)
        if world.network is None:
            world.agenda.at_once((joiner.number, self._arrive, joiner, replica))
        else:
            world.network.send(Transfer(donor.id, joiner.id, joiner.number, size, self._arrive, joiner, replica))

    def _arrive(self, joiner: SimulatedWorker, replica: tuple[int, WorkerModel]) -> None:
        """A replica arrives at a joiner. `replica` is the joiner's step number at the time of sending, and the copy."""
        world, (step, twin) = self._world, replica
        if not joiner.alive or joiner.step != step:
            return
        if joiner.frozen_until > world.agenda.now:
            world.agenda.at(joiner.frozen_until, joiner.number, self._arrive, joiner, replica)
            return
        self._under_way.pop(joiner, None)
        joiner.model = twin
        world.last_answer = world.agenda.now
        world.go_on(joiner, joiner.iteration)
