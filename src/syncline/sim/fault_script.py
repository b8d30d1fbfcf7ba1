"""What befalls the processes of a world, by script."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Change, Depart, Dismiss, Enter, Lost
from syncline.sim.agenda import NO_WORKER
from syncline.sim.faults import (
    AddServer,
    Crash,
    Fault,
    Freeze,
    Join,
    Leave,
    RemoveServer,
    Restart,
    Slow,
    Switch,
)
from syncline.sim.processes import SimulatedWorker

if TYPE_CHECKING:
    from syncline.sim.world import World


class FaultScript:
    """Performs the faults of a scenario."""

    def __init__(self, world: World) -> None:
        self._world = world

    def schedule(self) -> None:
        for fault in self._world.scenario.faults:
            worker = NO_WORKER if isinstance(fault, Switch | AddServer | RemoveServer) else fault.worker
            self._world.agenda.at(fault.at, worker, self._befall, worker, fault)

    def _befall(self, worker: int, fault: Fault) -> None:
        world = self._world
        if world.ended is not None:
            return
        match fault:
            case Switch(sync=model, server=number, release=release):
                for server in world.servers if number is None else [world.servers[number]]:
                    world.at_server(server, Change(model, release))
            case AddServer():
                world.add_server()
            case RemoveServer(server=number):
                world.to_coordinator(world.coordinator, Dismiss(number))
            case Join():
                self._enter(world.add_client(worker, 0, world.coordinator.view))
            case _:
                client = world.clients.get(worker)
                if client is not None:
                    self._strike(client, fault)

    def _strike(self, client: SimulatedWorker, fault: Crash | Restart | Freeze | Slow | Leave) -> None:
        match fault:
            case Crash(detect=detect) if client.alive:
                self._crash(client)
                self._declare_dead_in(client, detect)
            case Restart():
                self._crash(client)
                incarnation = client.node.incarnation + 1
                self._enter(self._world.add_client(client.number, incarnation, self._world.coordinator.view))
            case Freeze() if client.alive:
                self._freeze(client, fault)
            case Slow():
                self._slow(client, fault)
            case Leave():
                client.leaving = True
                if client.done:
                    self.leave(client)

    def leave(self, client: SimulatedWorker) -> None:
        self._world.perform(client.id, client.node.handle(Depart(), self._world.agenda.now))

    def _crash(self, client: SimulatedWorker) -> None:
        client.alive = False
        client.step += 1
        self._world.stop_awaiting(client)
        if self._world.network is not None:
            self._world.network.forget(client.id)
        self._world.handover.donor_lost(client)

    def _enter(self, client: SimulatedWorker) -> None:
        self._world.perform(client.id, client.node.handle(Enter(), self._world.agenda.now))

    def _freeze(self, client: SimulatedWorker, fault: Freeze) -> None:
        now = self._world.agenda.now
        since = max(client.frozen_until, now)
        client.frozen_until = max(client.frozen_until, now + fault.duration)
        if client.step_stop >= now:
            self._world.pace.postpone(client, client.frozen_until - since)
        if fault.detect is not None and fault.detect < fault.duration:
            self._declare_dead_in(client, fault.detect)

    def _slow(self, client: SimulatedWorker, fault: Slow) -> None:
        client.factor = fault.factor
        client.slowed += 1
        if fault.duration is not None:
            over = fault.at + fault.duration
            self._world.agenda.at(over, client.number, self._speed_up, client, client.slowed)

    def _speed_up(self, client: SimulatedWorker, slowed: int) -> None:
        if client.slowed == slowed:
            client.factor = 1.0

    def _declare_dead_in(self, client: SimulatedWorker, seconds: float) -> None:
        lost = Lost(client.number, client.node.incarnation)
        self._world.agenda.at(self._world.agenda.now + seconds, client.number, self._declare_dead, client, lost)

    def _declare_dead(self, client: SimulatedWorker, lost: Lost) -> None:
        self._world.stop_awaiting(client)
        self._world.to_coordinator(self._world.coordinator, lost)
