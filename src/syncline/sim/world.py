"""The world: performs in virtual time what the nodes ask for, one event after another.

The nodes are those of the real engines. The world owns the clock, the wires and the replicas; pace.py says when a
worker computes, fault_script.py what befalls it, outcome.py what a run has come to.
"""

from __future__ import annotations

import dataclasses
import gc
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf

import numpy as np

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.effects import Admit, Deliver, Effect, Event, Fail, Fetch, Ready, Received, Send, SetTimer, Timer
from syncline.errors import GoneError, RunError, Stalled, UsageError
from syncline.layout import Bucket
from syncline.messages import COORDINATOR, Handover, Member, NodeId, Params, Push, Settled, View
from syncline.nodes.server.bucket_map import bucket_map_of
from syncline.nodes.server.coordinator import Coordinator
from syncline.nodes.server.meter import Meter
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.worker import Phase, Worker
from syncline.placement import checked
from syncline.sim.agenda import NO_WORKER, Action, Agenda
from syncline.sim.bucket_cargo import cargo_of
from syncline.sim.curve import Curve
from syncline.sim.fault_script import FaultScript
from syncline.sim.held_answers import answers_of
from syncline.sim.link_turns import network_of
from syncline.sim.network import Transfer
from syncline.sim.outcome import Outcome, final_pieces, gap, judge, look, replica_gap, server_pieces
from syncline.sim.pace import Pace, pace_of
from syncline.sim.problem import Problem
from syncline.sim.processes import SimulatedServer, SimulatedWorker
from syncline.sim.replica_transfer import ReplicaTransfer as ReplicaHandover
from syncline.sim.scenario import Scenario
from syncline.sim.server_moves import check_placements, handover_bytes, replacing, ruler
from syncline.sim.trace import TraceLog
from syncline.sim.two_pass_steps import Passes
from syncline.sim.worker_model import Steps, WorkerModel
from syncline.strategies.server.strategy import Mode
from syncline.sync import Release, SyncModel

MOST_BUCKETS = 100_000
"""Beyond that a simulation would hardly end."""


class World:
    """One simulated run of the server strategy."""

    def __init__(
        self,
        scenario: Scenario,
        problem: Problem,
        *,
        spans: bool = False,
        trace: TraceLog | None = None,
        every: int | None = None,
    ) -> None:
        """`spans`: note who did what when, for a picture. `trace`: where every message is written down.

        `every`: look how good the model is after so many iterations of all workers together (`Outcome.curve`).
        """
        scenario.check()
        self.scenario = scenario
        self.problem = problem
        self.mode = scenario.strategy.mode
        self._of_means = self.mode is Mode.GRADIENTS
        self.agenda = Agenda()
        self.meter = Meter(spans)
        self.trace = trace or TraceLog()
        self.curve = Curve(every)
        self.draw = Draw(scenario.seed)
        self.recording = True
        self.ended: float | None = None
        """When the last iteration was done: nothing befalls anybody any more, and nobody computes."""
        self.last_answer = 0.0
        self.iterations_done = 0
        self.awaited = 0
        """How many workers the run still waits for."""
        self.finished = 0
        self.network = network_of(self.agenda, scenario.cluster.links, scenario.cluster.colocated)
        """None: messages take no time."""
        self._last_words: list[Event] | None = None
        """What the coordinator is told while workers send what they have held back; None: they do not."""
        self.accidents = FaultScript(self)
        self.handover = ReplicaHandover(self)
        self._steps = Steps()
        self._record = self.trace.record
        self._answers = answers_of(self)
        self._handling = handling = scenario.cluster.handling
        busy = handling or scenario.cluster.apply or scenario.cluster.delay_cost
        self._to_worker: Action = self._queue_at_worker if handling else self.to_worker
        self._to_server: Action = self._queue_at_server if busy else self.at_server
        self._build()
        self.pace: Pace = pace_of(self)
        self._fresh = self.pace.fresh if isinstance(self.pace, Passes) and self.pace.early else None
        """Told of every answer; None: nobody computes before all have come."""

    def _build(self) -> None:
        strategy, layout = self.scenario.strategy, self.problem.layout
        cut = layout.size // strategy.bucket_values
        if cut > MOST_BUCKETS:
            raise UsageError("strategy.bucket", f"cuts the model into about {cut:,} buckets; make it larger")
        ranges = checked(strategy.placement, layout, strategy.servers)
        held = tuple(strategy.buckets(layout, each) for each in ranges)
        self.buckets = tuple(sorted(bucket for each in held for bucket in each))
        self._backwards = list(enumerate(self.buckets))[::-1]
        self._initial = self.problem.start(self.buckets)
        self._codecs: tuple[Codec, Codec] = (Dense(), Dense())
        made_up = any(bucket.size != piece.size for bucket, piece in zip(self.buckets, self._initial, strict=True))
        if made_up:  # such updates are not worth writing: only their sizes count
            self._codecs = (strategy.codec, strategy.reply_codec)
            strategy = dataclasses.replace(strategy, codec=Dense(), reply_codec=Dense())
        self._strategy = strategy
        self._cargo = {
            bucket: cargo_of(bucket, self._codecs, layout, place) for place, bucket in enumerate(self.buckets)
        }
        self._within = ruler(self.buckets, self._initial)
        replace = replacing(strategy.placement, layout)
        check_placements(self.scenario, replace, held)
        members = tuple(Member(worker, 0, 0) for worker in range(self.scenario.cluster.workers))
        view = View(0, members, held)
        self.coordinator = Coordinator(view, replace)
        self.servers = [
            SimulatedServer(self._shard(number, view, strategy.sync[number], strategy.release))
            for number in range(strategy.servers)
        ]
        self._parts = dataclasses.replace(
            strategy.parts(layout, self.draw),
            finite=not self.problem.always_finite,
            within=self._within,
            first=dict(zip(self.buckets, self._initial, strict=True)),
            weigh=self._weight if made_up else None,
        )
        self.clients: dict[int, SimulatedWorker] = {}
        for member in members:
            self.add_client(member.worker, 0, view)

    def _weigh(self, buckets: Iterable[Bucket]) -> None:
        """Buckets that a move has cut are cargo of their own."""
        for bucket in buckets:
            if bucket not in self._cargo:
                self._cargo[bucket] = cargo_of(bucket, self._codecs, self.problem.layout)

    def _shard(self, number: int, view: View, model: SyncModel, release: Release) -> Shard:
        terms = dataclasses.replace(
            self._strategy.terms(0, self.problem.layout, self.draw), model=model, release=release, within=self._within
        )
        held = view.holders[number] if number < len(view.holders) else ()
        pieces = {bucket: self._initial[self._cargo[bucket].place].copy() for bucket in held}
        shard = Shard(number, pieces, terms, view)
        for bucket in shard.buckets.values():
            if bucket.teller is not None:
                bucket.teller.all_hold(view.members, bucket.params)
        return shard

    def add_server(self) -> None:
        """A server process starts, and is admitted; it has the sync model of the others."""
        number, others = len(self.servers), self.servers[min(self.coordinator.servers)].shard.terms
        server = SimulatedServer(self._shard(number, self.coordinator.view, others.model, others.release))
        if self.scenario.cluster.colocated and number in self.clients:
            server.processor = self.clients[number].processor
        self.servers.append(server)
        self.to_coordinator(self.coordinator, Admit(number))

    def add_client(self, number: int, incarnation: int, view: View) -> SimulatedWorker:
        """A worker process starts; it must join unless the view names it."""
        node = Worker(number, incarnation, self._parts, view)
        replica = WorkerModel(self.problem, self._initial, steps=self._steps)
        client = SimulatedWorker(node, replica, joining=node.phase is Phase.JOINING)
        if self.scenario.cluster.colocated and number < len(self.servers):
            client.processor = self.servers[number].processor
        self.clients[number] = client
        self.awaited += 1
        return client

    def run(self, progress: Callable[[int, int], None] | None = None) -> Outcome:
        """Run to the end; `progress(iterations done, of how many)` is called now and then."""
        with np.errstate(over="ignore", invalid="ignore"), _no_collections():
            self.accidents.schedule()
            for client in self.clients.values():
                self.agenda.at(0.0, client.number, self._start, client, 0)
            self.pace.run(progress)
            self.ended = self.agenda.now
            keeps, pieces = self.scenario.strategy.rule.keeps, final_pieces(self)
            apart = replica_gap(self, pieces)
            self._send_rest()
            outcome = judge(self, server_pieces(self) if keeps else pieces, apart)
            if keeps:
                self._closing_pull(outcome.train_progress)
            return outcome

    def _weight(self, bucket: Bucket) -> tuple[int, int]:
        """The bytes of a bucket's update and of its parameters on the wire, at most."""
        return self._cargo[bucket].pushed, self._cargo[bucket].pulled

    # A worker's iterations.

    def _start(self, client: SimulatedWorker, iteration: int) -> None:
        if client.frozen_until > self.agenda.now:
            self.agenda.at(client.frozen_until, client.number, self._start, client, iteration)
        elif client.alive:
            self.go_on(client, iteration)

    def go_on(self, client: SimulatedWorker, iteration: int) -> None:
        """A worker starts its next iteration, or is done."""
        client.iteration = iteration
        if client.leaving or iteration >= self.pace.last:
            self.finish(client)
        else:
            client.joining = False
            self.pace.begin(client)

    def finish(self, client: SimulatedWorker) -> None:
        client.done = True
        self.finished += client.awaited
        self.stop_awaiting(client)
        if client.leaving:
            self.accidents.leave(client)

    def stop_awaiting(self, client: SimulatedWorker) -> None:
        self.awaited -= client.awaited
        client.awaited = False
        self._end_if_all_done()

    def _end_if_all_done(self) -> None:
        """The run is over when nobody is awaited any more, and nothing of the model is on its way."""
        self.agenda.over = self.finished > 0 and self.awaited == 0 and not self.coordinator.moving

    def train(self, client: SimulatedWorker) -> None:
        """Compute one update for real, and hand it over bucket by bucket, last layers first."""
        node, now = client.node, self.agenda.now
        updates = client.replica.update(self.mode, client.number, client.iteration)
        pieces = client.replica.pieces
        for place, bucket in self._backwards:
            self.perform(client.id, node.handle(Ready(bucket, updates[place], None, pieces[place]), now))

    # Effects.

    def perform(self, source: NodeId, effects: Iterable[Effect]) -> None:
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self.send(source, effect)  # type: ignore[arg-type]
            elif kind is Deliver:
                self._deliver(self.clients[source.number], effect)  # type: ignore[arg-type]
            elif kind is Fail:
                self._fail(self.clients[source.number], effect)  # type: ignore[arg-type]
            else:
                self._set_timer(self.clients[source.number], effect)  # type: ignore[arg-type]

    def send(self, source: NodeId, send: Send) -> None:
        to, message, agenda = send.to, send.message, self.agenda
        payload, size, kind = send.payload, 0, type(message)
        whom: int | SimulatedServer | Coordinator
        if kind is Params:
            size = message.size  # type: ignore[union-attr]
            if not size:
                cargo = self._cargo[message.bucket]  # type: ignore[union-attr]
                if cargo.version != message.version:  # type: ignore[union-attr]
                    cargo.version, cargo.snapshot = message.version, payload.copy()  # type: ignore[union-attr]
                payload, size = cargo.snapshot, cargo.pulled
            arrive = self._to_worker
            whom = worker = to.number
        elif kind is Push:
            if payload is not None:
                size = message.size or self._cargo[message.bucket].pushed  # type: ignore[union-attr]
            worker, arrive, whom = source.number, self._to_server, self.servers[to.number]
        else:
            if kind is Handover:
                size = handover_bytes(message, self._cargo[message.bucket].pushed)  # type: ignore[union-attr, arg-type]
            worker, arrive, whom = self._arrival(source, to)
        if self.recording:
            record = self._record
            record((agenda.now, source, to, message, size))
        if self.network is None:
            at_once = agenda.at_once
            at_once((worker, arrive, whom, Received(source, message, payload)))
        else:
            event = Received(source, message, payload)
            self.network.send(Transfer(source, to, worker, size, arrive, whom, event))

    def _arrival(self, source: NodeId, to: NodeId) -> tuple[int, Action, int | SimulatedServer | Coordinator]:
        """Of any other message: the number of the worker at either end, how it arrives, and where."""
        if to.role == "worker":
            return to.number, self._to_worker, to.number
        if to.role == "server":
            worker = source.number if source.role == "worker" else NO_WORKER
            return worker, self._to_server, self.servers[to.number]
        return source.number, self.to_coordinator, self.coordinator

    def _deliver(self, client: SimulatedWorker, deliver: Deliver) -> None:
        cargo = self._cargo[deliver.bucket]
        place = cargo.place
        if place < 0:
            place = self._deliver_part(client, deliver)
        else:
            client.replica.fresh(self.mode, place, deliver.payload)
        if self._fresh is not None and self.ended is None:
            self._fresh(client, place, deliver.bucket)
        following = deliver.next
        if following is None or not self.recording:
            return
        self.last_answer = self.agenda.now
        if client.done:
            return  # it leaves, and these were its last words
        if client.joining:
            if self._of_means:
                self.handover.ask(client, following)
            else:
                self.go_on(client, following)
            return
        self.iterations_done += 1
        if self._of_means:
            client.replica.whole()
        if self.iterations_done >= self.curve.due:
            look(self, client)
        self.go_on(client, following)
        if self.handover.waiting:
            self.handover.serve(client)

    def _deliver_part(self, client: SimulatedWorker, deliver: Deliver) -> int:
        """A piece of a bucket: replicas stay in the buckets of the start; the place of the one that it is cut from."""
        place = bisect_right(self.buckets, deliver.bucket.start, key=lambda bucket: bucket.start) - 1
        where = self._within(self.buckets[place], deliver.bucket)
        client.replica.fresh_part(self.mode, place, where, deliver.payload)
        return place

    def _fail(self, client: SimulatedWorker, fail: Fail) -> None:
        if not isinstance(fail.error, GoneError):
            raise fail.error
        client.alive = False
        client.step += 1
        self.stop_awaiting(client)

    def _set_timer(self, client: SimulatedWorker, timer: SetTimer) -> None:
        over = self.agenda.now + timer.seconds
        self.agenda.at(over, client.number, self._to_worker, client.number, Timer(timer.key))

    # Arrivals.

    def _queue_at_server(self, server: SimulatedServer, event: Received) -> None:
        """A message first waits until the server has worked through those before it, and through itself."""
        message, seconds = event.message, self._handling
        if type(message) is Push:
            if event.payload is not None:
                seconds += (message.size or self._cargo[message.bucket].pushed) / (self.scenario.cluster.apply or inf)
        elif not seconds:
            self.at_server(server, event)
            return
        done = server.processor.take(self.agenda.now, seconds)
        server.busy += seconds
        worker = event.source.number if event.source.role == "worker" else NO_WORKER
        self.agenda.at(done, worker, self.at_server, server, event)

    def _queue_at_worker(self, number: int, event: Event) -> None:
        """The same for a worker; what it has asked for itself does not wait."""
        if type(event) is Received:
            done = self.clients[number].processor.take(self.agenda.now, self._handling)
            self.agenda.at(done, number, self.to_worker, number, event)
        else:
            self.to_worker(number, event)

    def at_server(self, server: SimulatedServer, event: Event) -> None:
        shard, now = server.shard, self.agenda.now
        effects = shard.handle(event, now)
        if self.recording:
            self.meter.handled(shard.number, event, effects, now)
        if self._answers is not None:
            effects = self._answers.keep_back(server, event, effects)
        self.perform(server.id, effects)

    def to_worker(self, number: int, event: Event) -> None:
        client, now = self.clients[number], self.agenda.now
        if not client.alive:
            return
        if client.frozen_until > now:
            self.agenda.at(client.frozen_until, number, self.to_worker, number, event)
            return
        self.perform(client.id, client.node.handle(event, now))
        if client.joining and client.node.phase is Phase.RUNNING and client.node.progress >= self.pace.last:
            self.finish(client)  # it joined when all had been done

    def to_coordinator(self, coordinator: Coordinator, event: Event) -> None:
        if self._last_words is not None:
            self._last_words.append(event)
            return
        moved = coordinator.moved
        effects = coordinator.handle(event, self.agenda.now)
        if coordinator.moved != moved:
            self._weigh(bucket_map_of(coordinator.view.holders).holder)
        self.perform(COORDINATOR, effects)
        if type(event) is Received and type(event.message) is Settled:
            self._end_if_all_done()

    # The end.

    def members(self) -> list[SimulatedWorker]:
        """The workers that have done all their iterations and are still members."""
        named = {(member.worker, member.incarnation) for member in self.coordinator.view.members}
        return [
            client
            for client in self.clients.values()
            if client.done
            and not client.joining
            and client.alive
            and client.node.phase is Phase.RUNNING
            and (client.number, client.node.incarnation) in named
        ]

    def _send_rest(self) -> None:
        """What gates have held back is sent when workers leave: all leave then; with [dispatch] nobody does.

        As long as anybody sends, nobody is gone, so that all of it counts alike.
        """
        rest = [client for client in self.clients.values() if client.alive and self.scenario.dispatch is None]
        if not any(client.node.holds_back or client.node.phase is Phase.LEAVING for client in rest):
            return
        while leaving := [client for client in rest if client.alive and client.node.phase is Phase.RUNNING]:
            self._last_words = []
            for client in leaving:
                self.agenda.at(client.frozen_until, client.number, self._let_go, client, None)
            self.agenda.drain()
            events, self._last_words = self._last_words, None
            for event in events:
                self.to_coordinator(self.coordinator, event)
            self.agenda.drain()
        self.agenda.drain()
        self.trace.flush()
        for client in rest:
            if client.alive and client.node.is_waiting:
                raise Stalled(f"worker {client.number} could not send what it had held back, and still waits")

    def _let_go(self, client: SimulatedWorker, _: None) -> None:
        if client.node.phase is Phase.RUNNING:
            self.accidents.leave(client)

    def _closing_pull(self, progress: int) -> None:
        """Let what is under way arrive, then give every member the final parameters; this is in no figure."""
        self.recording = False
        self.agenda.drain()
        members = self.members() if self.scenario.dispatch is None else []
        for client in members:
            self.perform(client.id, client.node.handle(Fetch(progress - 1), self.agenda.now))
        self.agenda.drain()
        final = server_pieces(self)
        for client in members:
            if client.alive and gap(client.replica.pieces, final):
                raise RunError(f"worker {client.number} ended without the final parameters")


def simulate(
    scenario: Scenario,
    problem: Problem,
    *,
    every: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Run a scenario to its end; `every`: look at the model after so many iterations of all workers (`curve`)."""
    return World(scenario, problem, every=every).run(progress)


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause the search for cycles: events are many, live briefly, and form none."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
