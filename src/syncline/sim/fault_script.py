"""Applies the scripted faults of a scenario to the processes of a world."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Change, Depart, Enter, Lost
from syncline.sim.agenda import NO_WORKER
from syncline.sim.faults import (
    AddServer,
    Crash,
    CrashServer,
    Fault,
    Freeze,
    Join,
    Leave,
    RemoveServer,
    Restart,
    Slow,
    Switch,
)
from syncline.sim.node_faults import NODE_FAULTS
from syncline.sim.processes import SimulatedWorker

if TYPE_CHECKING:
    from syncline.sim.world import World


class FaultScript:
    """Schedules the faults of a scenario and applies each at its time."""

    def __init__(self, world: World) -> None:
        self._world = world

    def schedule(self) -> None:
        for fault in self._world.scenario.faults:
            worker = getattr(fault, "worker", NO_WORKER)
            self._world.agenda.at(fault.at, worker, self._apply, worker, fault)

    def _apply(self, worker: int, fault: Fault) -> None:
        world = self._world
        if world.ended is not None:
            return
        match fault:
            case Switch(sync=model, server=number, release=release):
                world.change(number, Change(model, release))
            case AddServer():
                world.add_server()
            case RemoveServer(server=number):
                world.remove_server(number)
            case CrashServer():
                assert world.crashes is not None, "the world has seen this fault"
                world.crashes.apply(fault)
            case _ if isinstance(fault, NODE_FAULTS):
                world.nodes.apply(fault)
            case Join():
                self._enter(world.add_worker(worker, 0, world.view_maker.view))
            case _:
                process = world.workers.get(worker)
                if process is not None:
                    self._apply_to_worker(process, fault)

    def _apply_to_worker(self, worker: SimulatedWorker, fault: Crash | Restart | Freeze | Slow | Leave) -> None:
        match fault:
            case Crash(detect=detect) if worker.alive:
                self._crash(worker)
                self._declare_dead_in(worker, detect)
            case Restart():
                self._crash(worker)
                incarnation = worker.node.incarnation + 1
                self._enter(self._world.add_worker(worker.number, incarnation, self._world.view_maker.view))
            case Freeze() if worker.alive:
                self._freeze(worker, fault)
            case Slow():
                self._slow(worker, fault)
            case Leave():
                worker.leaving = True
                if worker.done:
                    self.leave(worker)

    def leave(self, worker: SimulatedWorker) -> None:
        worker.driver.tell(Depart(), self._world.agenda.now)

    def _crash(self, worker: SimulatedWorker) -> None:
        worker.alive = False
        worker.step += 1
        self._world.stop_awaiting(worker)
        if self._world.network is not None:
            self._world.network.forget(worker.id)
        self._world.transfer.donor_lost(worker)

    def _enter(self, worker: SimulatedWorker) -> None:
        worker.driver.tell(Enter(), self._world.agenda.now)

    def _freeze(self, worker: SimulatedWorker, fault: Freeze) -> None:
        now = self._world.agenda.now
        since = max(worker.frozen_until, now)
        worker.frozen_until = max(worker.frozen_until, now + fault.duration)
        if worker.step_stop >= now:
            self._world.pace.postpone(worker, worker.frozen_until - since)
        if fault.detect is not None and fault.detect < fault.duration:
            self._declare_dead_in(worker, fault.detect)

    def _slow(self, worker: SimulatedWorker, fault: Slow) -> None:
        worker.factor = fault.factor
        worker.slowed += 1
        if fault.duration is not None:
            over = fault.at + fault.duration
            self._world.agenda.at(over, worker.number, self._speed_up, worker, worker.slowed)

    def _speed_up(self, worker: SimulatedWorker, slowed: int) -> None:
        if worker.slowed == slowed:
            worker.factor = 1.0

    def _declare_dead_in(self, worker: SimulatedWorker, seconds: float) -> None:
        lost = Lost(worker.number, worker.node.incarnation)
        self._world.agenda.at(self._world.agenda.now + seconds, worker.number, self._declare_dead, worker, lost)

    def _declare_dead(self, worker: SimulatedWorker, lost: Lost) -> None:
        self._world.stop_awaiting(worker)
        self._world.to_coordinator(None, lost)
