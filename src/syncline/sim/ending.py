"""The end of a simulated run.

Workers send what their gates held back, the figures are read, and every member gets the final parameters.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from syncline.effects import Fetch
from syncline.errors import RunError, Stalled
from syncline.layout import Values
from syncline.nodes.phase import Phase
from syncline.sim.outcome import Outcome, final_pieces, gap, judge, replica_gap, server_pieces
from syncline.sim.pace import ITERATIONS
from syncline.sim.processes import SimulatedWorker

if TYPE_CHECKING:
    from syncline.sim.world import World


def end_run(world: World) -> Outcome:
    """Finish a run whose iterations are all done, and return its outcome."""
    outcome = _end(world)
    return outcome if world.watch is None else replace(outcome, tree=world.watch.figures(world.ended or 0.0))


def _end(world: World) -> Outcome:
    if world.strategy.free_running and world.stopped_by == ITERATIONS:
        world.agenda.settle()  # what takes no time has arrived
    keeps, pieces = world.strategy.keeps, final_pieces(world)
    found_gap = replica_gap(world, pieces)
    if world.stopped_by != ITERATIONS and world.scenario.dispatch is None:
        return judge(world, pieces, found_gap)  # as it is now: messages in flight and held back updates do not count
    if world.strategy.free_running:
        return judge(world, _exchange_rest(world, pieces), found_gap)
    _send_rest(world)
    outcome = judge(world, server_pieces(world) if keeps else pieces, found_gap)
    if keeps:
        _closing_pull(world, outcome.train_progress)
    return outcome


def _send_rest(world: World) -> None:
    """Let all workers leave, so that they send what their gates held back. With [dispatch] no worker leaves.

    The coordinator hears of departures only after all workers have sent, so that every update gets the same weight.
    """
    agenda = world.agenda
    rest = [worker for worker in world.workers.values() if worker.alive and world.scenario.dispatch is None]
    if not any(worker.node.holds_back or worker.node.phase is Phase.LEAVING for worker in rest):
        return
    while leaving := [worker for worker in rest if worker.alive and worker.node.phase is Phase.RUNNING]:
        world.held_events = []

        def let_go(worker: SimulatedWorker, _: None) -> None:
            if worker.node.phase is Phase.RUNNING:
                world.faults.leave(worker)

        for worker in leaving:
            agenda.at(worker.frozen_until, worker.number, let_go, worker, None)
        agenda.drain()
        events, world.held_events = world.held_events, None
        for event in events:
            world.to_coordinator(None, event)
        agenda.drain()
    agenda.drain()
    world.trace.flush()
    for worker in rest:
        if worker.alive and worker.node.is_waiting:
            raise Stalled(f"worker {worker.number} is still waiting for an answer to the updates that it had held back")


def _exchange_rest(world: World, pieces: list[Values]) -> list[Values]:
    """Let the workers send each other everything that they owe; return the final model. No figure counts this.

    `pieces`: the final model if no member is left.
    """
    world.stop_recording()
    world.last_members = members = world.members()
    for worker in world.workers.values():
        if worker.alive and worker.node.phase is Phase.RUNNING:
            world.agenda.at(worker.frozen_until, worker.number, _depart, worker, world)
    world.agenda.drain()
    return members[0].model.pieces if members else pieces


def _depart(worker: SimulatedWorker, world: World) -> None:
    world.faults.leave(worker)


def _closing_pull(world: World, progress: int) -> None:
    """Deliver the messages in flight, then give every member the final parameters. No figure counts these messages."""
    world.stop_recording()
    world.agenda.drain()
    members = world.members() if world.scenario.dispatch is None else []
    for worker in members:
        worker.driver.tell(Fetch(progress - 1), world.agenda.now)
    world.agenda.drain()
    final = server_pieces(world)
    most = world.strategy.rounding * max(float(np.abs(piece).max(initial=0)) for piece in final)
    for worker in members:
        if worker.alive and gap(worker.model.pieces, final) > most:
            raise RunError(f"worker {worker.number} ended without the final parameters")
