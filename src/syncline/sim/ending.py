"""The end of a simulated run: what gates have held back is sent, figures are read, and all get the final parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Fetch
from syncline.errors import RunError, Stalled
from syncline.nodes.phase import Phase
from syncline.sim.outcome import Outcome, final_pieces, gap, judge, replica_gap, server_pieces
from syncline.sim.processes import SimulatedWorker

if TYPE_CHECKING:
    from syncline.sim.world import World


def end_run(world: World) -> Outcome:
    """All iterations are done: what the run has come to."""
    keeps, pieces = world.strategy.keeps, final_pieces(world)
    apart = replica_gap(world, pieces)
    _send_rest(world)
    outcome = judge(world, server_pieces(world) if keeps else pieces, apart)
    if keeps:
        _closing_pull(world, outcome.train_progress)
    return outcome


def _send_rest(world: World) -> None:
    """What gates have held back is sent when workers leave: all leave then; with [dispatch] nobody does.

    As long as anybody sends, nobody is gone, so that all of it counts alike.
    """
    agenda = world.agenda
    rest = [worker for worker in world.workers.values() if worker.alive and world.scenario.dispatch is None]
    if not any(worker.node.holds_back or worker.node.phase is Phase.LEAVING for worker in rest):
        return
    while leaving := [worker for worker in rest if worker.alive and worker.node.phase is Phase.RUNNING]:
        world.last_words = []

        def let_go(worker: SimulatedWorker, _: None) -> None:
            if worker.node.phase is Phase.RUNNING:
                world.faults.leave(worker)

        for worker in leaving:
            agenda.at(worker.frozen_until, worker.number, let_go, worker, None)
        agenda.drain()
        events, world.last_words = world.last_words, None
        for event in events:
            world.to_coordinator(None, event)
        agenda.drain()
    agenda.drain()
    world.trace.flush()
    for worker in rest:
        if worker.alive and worker.node.is_waiting:
            raise Stalled(f"worker {worker.number} could not send what it had held back, and still waits")


def _closing_pull(world: World, progress: int) -> None:
    """Let what is under way arrive, then give every member the final parameters; this is in no figure."""
    world.stop_recording()
    world.agenda.drain()
    members = world.members() if world.scenario.dispatch is None else []
    for worker in members:
        worker.driver.tell(Fetch(progress - 1), world.agenda.now)
    world.agenda.drain()
    final = server_pieces(world)
    for worker in members:
        if worker.alive and gap(worker.model.pieces, final):
            raise RunError(f"worker {worker.number} ended without the final parameters")
