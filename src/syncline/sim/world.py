"""The world performs the effects of all nodes in virtual time, one event after another.

The strategy makes the nodes; they are the same as in a real run. The world owns the clock, the links, the processors
and the workers' replicas; it treats all kinds of node alike. pace.py decides when a worker computes, fault_script.py
applies faults, ending.py ends a run, and outcome.py collects its figures.
"""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import inf

import numpy as np

from syncline.draw import Draw
from syncline.effects import (
    Admit,
    Change,
    Deliver,
    Dismiss,
    Event,
    Fail,
    Finish,
    Idle,
    Load,
    Loaded,
    Ready,
    Received,
    Reject,
    Save,
    Saved,
    Send,
    SetTimer,
    Timer,
)
from syncline.errors import GoneError, PeerError, RunError, UsageError
from syncline.layout import BUCKET_VALUES, VALUE_BYTES, Bucket
from syncline.messages import COORDINATOR, Member, NodeId, Params, Push, TreeMap, View, server_id, worker_id
from syncline.nodes.driver import Driver, driver_of
from syncline.nodes.phase import Phase
from syncline.sim.agenda import NO_WORKER, Action, Agenda
from syncline.sim.bucket_cargo import CargoTable
from syncline.sim.curve import Curve
from syncline.sim.ending import end_run
from syncline.sim.fault_script import FaultScript
from syncline.sim.faults import CrashServer
from syncline.sim.held_answers import server_driver
from syncline.sim.link_turns import network_of
from syncline.sim.network import Links, Transfer
from syncline.sim.node_faults import NODE_FAULTS, NodeScript, check_node_faults
from syncline.sim.outcome import Outcome, look
from syncline.sim.pace import ITERATIONS, Pace, pace_of
from syncline.sim.problem import Problem
from syncline.sim.processes import PeerLink, SimulatedServer, SimulatedWorker
from syncline.sim.read_values import ReadValues
from syncline.sim.replica_transfer import ReplicaTransfer
from syncline.sim.scenario import Cluster, Scenario
from syncline.sim.server_crashes import ServerCrashes
from syncline.sim.server_moves import check_placements, ruler
from syncline.sim.trace import Record, TraceLog
from syncline.sim.two_pass_steps import Passes
from syncline.sim.worker_model import Steps, WorkerModel
from syncline.strategies.mode import Mode
from syncline.strategies.protocol import Job

MOST_BUCKETS = 100_000
"""With more buckets a simulation would take too long."""


class World:
    """One simulated run; the host of all its nodes."""

    # Python shares the keys of instance dictionaries up to 30 attributes only; beyond that, slots are a fifth faster.
    __slots__ = (
        "_applied",
        "_backwards",
        "_cargo",
        "_cargo_table",
        "_coordinator",
        "_free_running",
        "_fresh",
        "_handling",
        "_initial",
        "_most",
        "_of_means",
        "_record",
        "_server_driver",
        "_sizes",
        "_steps",
        "_to_server",
        "_to_worker",
        "_under_way",
        "_within",
        "agenda",
        "awaited",
        "buckets",
        "crashes",
        "curve",
        "draw",
        "ended",
        "ended_servers",
        "faults",
        "finished",
        "held_events",
        "iterations_done",
        "job",
        "last_answer",
        "last_members",
        "meter",
        "mode",
        "network",
        "nodes",
        "pace",
        "problem",
        "recording",
        "scenario",
        "servers",
        "stopped_by",
        "strategy",
        "to_server",
        "trace",
        "transfer",
        "view_maker",
        "watch",
        "workers",
    )

    def __init__(
        self,
        scenario: Scenario,
        problem: Problem,
        *,
        spans: bool = False,
        trace: TraceLog | None = None,
        every: int | None = None,
    ) -> None:
        """`spans`: record when each worker computes and waits, for a chart. `trace`: records every message.

        `every`: measure the model after every so many iterations of all workers together (`Outcome.curve`). Without
        it, a run that stops at a loss or an accuracy measures the model once per round of its workers.
        """
        scenario.check()
        self.scenario = scenario
        self.problem = problem
        self.strategy = scenario.strategy.fitted(scenario.cluster.workers)
        self.mode = scenario.strategy.mode
        self._of_means = self.mode is Mode.GRADIENTS
        self.agenda = Agenda()
        self.meter = scenario.strategy.meter(spans)
        self.trace = trace or TraceLog()
        self.trace.count_as_pushed(scenario.strategy.pushes)
        target = scenario.stop.has_target
        self.curve = Curve(scenario.cluster.workers if every is None and target else every)
        self.draw = Draw(scenario.seed)
        self.recording = True
        self.ended: float | None = None
        """When the last iteration was done. From then on no faults happen and no worker computes."""
        self.stopped_by = ITERATIONS
        """What ended the run: "iterations", or a key of the scenario's stop."""
        self._most: float = inf if scenario.stop.updates is None else scenario.stop.updates
        self.last_answer = 0.0
        self.iterations_done = 0
        self.awaited = 0
        """How many workers the run still waits for."""
        self.finished = 0
        self.network = network_of(
            self.agenda, scenario.cluster.links, self._host_of if scenario.cluster.colocated else None
        )
        """None: messages take no time."""
        self.held_events: list[Event] | None = None
        """Events held back from the coordinator while the leaving workers send their last updates; None: not now."""
        self.faults = FaultScript(self)
        self.nodes = NodeScript(self)
        self.transfer = ReplicaTransfer(self)
        crashes = any(isinstance(fault, CrashServer) for fault in scenario.faults)
        self.crashes = ServerCrashes(self) if crashes else None
        self._steps = Steps()
        self._record: Callable[[Record], None] = self.trace.record
        self._handling = handling = scenario.cluster.handling
        busy = handling or scenario.cluster.apply or scenario.cluster.delay_cost
        self._to_worker: Action = self._queue_at_worker if handling else self.to_worker
        self._applied = scenario.strategy.applied
        self._free_running = scenario.strategy.free_running
        self._under_way: Counter[PeerLink] = Counter()
        """How many messages are on their way from one worker process to another, if the workers want to know."""
        self.last_members: list[SimulatedWorker] | None = None
        """The members at the end of the run, once they leave; None: the run has not ended."""
        self._server_driver = server_driver(self)
        self._build()
        self._to_server: Action = self._queue_at_server if busy else self.to_server
        self.pace: Pace = pace_of(self)
        self._fresh = self.pace.fresh if isinstance(self.pace, Passes) and self.pace.early else None
        """Called for every answer; None: a worker computes only after all answers have arrived."""

    def _build(self) -> None:
        strategy, layout = self.strategy, self.problem.layout
        cut = layout.size // strategy.bucket_values
        if cut > MOST_BUCKETS:
            usual = strategy.bucket_values == BUCKET_VALUES
            problem = (
                f"a model of {layout.size:,} parameters makes about {cut:,} buckets, more than {MOST_BUCKETS:,}; "
                f"use at most {MOST_BUCKETS * strategy.bucket_values:,} parameters, or larger buckets (strategy.bucket)"
            )
            raise UsageError("model.parameters" if usual else "strategy.bucket", problem)
        hop, update = _costs(self.scenario.cluster, VALUE_BYTES * layout.size)
        first = Job(layout, self.draw, hop_seconds=hop, update_seconds=update)
        topology = strategy.topology(first, range(strategy.servers))
        self.buckets = strategy.buckets(layout, topology)
        self._backwards = list(enumerate(self.buckets))[::-1]
        self._initial = self.problem.start(self.buckets)
        if self.scenario.stop.has_target and self.problem.quality(self._initial) is None:
            raise UsageError("stop", "loss and accuracy need a problem whose quality() measures the model")
        made_up = any(bucket.size != piece.size for bucket, piece in zip(self.buckets, self._initial, strict=True))
        self._sizes = strategy if made_up else strategy.plain()
        if made_up:  # only the sizes of made-up updates matter, so they are not encoded
            self.strategy = strategy.plain()
        self._cargo_table = CargoTable(self.buckets, self._sizes, layout)
        self._cargo = self._cargo_table.of
        self._within = ruler(self.buckets, self._initial)
        self.job = Job(
            layout,
            self.draw,
            finite=not self.problem.always_finite,
            within=self._within,
            first=dict(zip(self.buckets, self._initial, strict=True)),
            weigh=self._weight if made_up else None,
            hop_seconds=hop,
            update_seconds=update,
            servers_fail=any(isinstance(fault, (*NODE_FAULTS, CrashServer)) for fault in self.scenario.faults),
        )
        check_placements(self.scenario, self.job, topology)
        topology = strategy.topology(self.job, range(strategy.servers))
        check_node_faults(self.scenario, self.job, topology)
        members = tuple(Member(worker, 0, 0) for worker in range(self.scenario.cluster.workers))
        view = View(0, members, topology)
        self.view_maker = self.strategy.coordinator(self.job, view)
        self.watch = self.strategy.watch(self.view_maker, lambda: [each.node for each in self.servers if each.alive])
        self.to_server: Action = self._tell_server if self.watch is None else self._tell_watched_server
        if self.crashes is not None:
            self.to_server = self._tell_live_server
        self._coordinator = Driver(COORDINATOR, self.view_maker, self)
        self.servers: list[SimulatedServer] = []
        self.ended_servers: list[SimulatedServer] = []
        """Processes of servers that have been started again since."""
        for _ in range(strategy.servers):
            self._start_server(view)
        self.workers: dict[int, SimulatedWorker] = {}
        for member in members:
            self.add_worker(member.worker, 0, view)

    def _host_of(self, node: NodeId) -> int:
        """The host of a worker or server: that of the server with the same number, or of the worker's tree node."""
        tree = self.view_maker.view.topology
        return tree.node_of(node.number) if node.role == "worker" and isinstance(tree, TreeMap) else node.number

    def _weight(self, bucket: Bucket) -> tuple[int, int]:
        """The largest number of bytes that a bucket's update and its parameters take on the wire."""
        cargo = self._cargo_table.add(bucket)
        return cargo.pushed, cargo.pulled

    # Processes that join and leave.

    def _start_server(self, view: View) -> SimulatedServer:
        number = len(self.servers)
        held = self.strategy.held_by(number, view, self.buckets)
        pieces = {bucket: self._initial[self._cargo[bucket].place].copy() for bucket in held}
        node = self.strategy.keeper(number, self.job, view, pieces)
        server = SimulatedServer(node, self._server_driver(server_id(number), node))
        self.servers.append(server)
        return server

    def start_server(self, number: int, incarnation: int) -> None:
        """Start a server process in a run that is under way, from the checkpoints of the one before it."""
        pieces = {bucket: self._initial[self._cargo[bucket].place].copy() for bucket in self.buckets}
        before = self.servers[number] if number < len(self.servers) else None
        saved = {} if before is None else before.saved
        node = self.strategy.restored(number, self.job, self.view_maker.view, pieces, saved)
        server = SimulatedServer(node, self._server_driver(server_id(number), node))
        server.incarnation, server.saved = incarnation, dict(saved)
        if before is None:
            self.servers.append(server)
        else:
            server.processor = before.processor
            self.ended_servers.append(before)
            self.servers[number] = server
            self._cargo_table.forget_snapshots()

    def end_server(self, number: int) -> None:
        """A server process ends, and what it has not begun to send is lost."""
        self.servers[number].alive = False
        if self.network is not None:
            self.network.forget(server_id(number))

    def add_server(self) -> None:
        """Start a server process with the sync model of the others, and admit it to the run."""
        view, number = self.view_maker.view, len(self.servers)
        others = self.servers[next(each for each, held in enumerate(view.holders) if held)]
        server = self._start_server(view)
        server.driver.tell(others.node.in_force(), self.agenda.now)
        if self.scenario.cluster.colocated and number in self.workers:
            server.processor = self.workers[number].processor
        self.to_coordinator(None, Admit(number))

    def remove_server(self, number: int) -> None:
        self.to_coordinator(None, Dismiss(number))

    def change(self, server: int | None, change: Change) -> None:
        """Give a server, or all of them, another sync model."""
        for each in self.servers if server is None else [self.servers[server]]:
            self.to_server(each, change)

    def add_worker(self, number: int, incarnation: int, view: View) -> SimulatedWorker:
        """Start a worker process; it must join unless the view lists it as a member."""
        node = self.strategy.trainer(number, incarnation, self.job, view)
        observers = (self.meter,) if self.meter.observes == "worker" else ()
        driver = driver_of(worker_id(number), node, self, observers)
        model = WorkerModel(self.problem, self._initial, steps=self._steps)
        worker = SimulatedWorker(node, driver, model, joining=node.phase is Phase.JOINING)
        if self.scenario.cluster.colocated and (host := self._host_of(driver.me)) < len(self.servers):
            worker.processor = self.servers[host].processor
        self.workers[number] = worker
        if self.crashes is not None:
            self.crashes.begin(number, incarnation)
        self.awaited += 1
        return worker

    def first_reads(self) -> ReadValues:
        """What a worker has read when it starts."""
        return ReadValues(self.buckets, self._initial, self._within)

    def run(self, progress: Callable[[int, int], None] | None = None) -> Outcome:
        """Run to the end; calls `progress(iterations done, iterations in total)` regularly."""
        with np.errstate(over="ignore", invalid="ignore"), _no_collections():
            self.faults.schedule()
            for server in self.servers if self.strategy.announces else ():
                first = Received(COORDINATOR, self.view_maker.view)
                self.agenda.at(0.0, NO_WORKER, self.to_server, server, first)
            for worker in self.workers.values():
                self.agenda.at(0.0, worker.number, self._start, worker, 0)
            self.pace.run(progress)
            if self.ended is None:
                self.ended = self.agenda.now
            return end_run(self)

    # A worker's iterations.

    def _start(self, worker: SimulatedWorker, iteration: int) -> None:
        if worker.frozen_until > self.agenda.now:
            self.agenda.at(worker.frozen_until, worker.number, self._start, worker, iteration)
        elif worker.alive:
            self.go_on(worker, iteration)

    def go_on(self, worker: SimulatedWorker, iteration: int) -> None:
        """Start a worker's next iteration, or finish the worker."""
        worker.iteration = iteration
        if worker.leaving or iteration >= self.pace.last:
            self.finish(worker)
        else:
            worker.joining = False
            self.pace.begin(worker)

    def finish(self, worker: SimulatedWorker) -> None:
        worker.done = True
        self.finished += worker.awaited
        if self._free_running and not worker.leaving:
            worker.driver.tell(Finish(), self.agenda.now)
        self.stop_awaiting(worker)
        if worker.leaving:
            self.faults.leave(worker)

    def stop_awaiting(self, worker: SimulatedWorker) -> None:
        self.awaited -= worker.awaited
        worker.awaited = False
        self._end_if_all_done()

    def _end_if_all_done(self) -> None:
        """End the run when all awaited workers are done, or it was stopped, and no bucket moves between servers."""
        done = self.ended is not None or (self.finished > 0 and self.awaited == 0)
        unnoticed = self.crashes is not None and self.crashes.unnoticed
        self.agenda.over = done and not self.view_maker.moving and not unnoticed

    def stop(self, reason: str) -> None:
        """End the run now; what workers compute is not waited for. `reason`: a key of the scenario's stop."""
        if self.ended is not None:
            return
        self.ended = self.last_answer = self.agenda.now
        self.stopped_by = reason
        for worker in self.workers.values():
            worker.done = worker.alive and not worker.joining
        if not any(worker.done for worker in self.workers.values()):
            raise RunError(f"no worker is left at {self.agenda.now:g} s: all have crashed, left or been declared dead")
        self._end_if_all_done()

    def train(self, worker: SimulatedWorker) -> None:
        """Compute one update, and hand it over bucket by bucket, last layers first."""
        tell, now = worker.driver.tell, self.agenda.now
        updates = worker.model.update(self.mode, worker.number, worker.iteration)
        pieces = worker.model.pieces
        for place, bucket in self._backwards:
            tell(Ready(bucket, updates[place], None, pieces[place]), now)
        if self._free_running and not worker.done and worker.node.progress >= self.pace.last:
            self._iterated(worker, worker.node.progress)  # its last step needs no permission for another

    # The host of the nodes.

    def send(self, source: NodeId, send: Send) -> None:
        to, message, agenda = send.to, send.message, self.agenda
        payload, size, kind = send.payload, 0, type(message)
        whom: int | SimulatedServer | PeerLink | None
        if kind is Params:
            size = message.size  # type: ignore[attr-defined]
            if not size:
                cargo = self._cargo[message.bucket]  # type: ignore[attr-defined]
                if cargo.version != message.version or cargo.holder is not source:  # type: ignore[attr-defined]
                    cargo.version, cargo.snapshot = message.version, payload.copy()  # type: ignore[attr-defined, union-attr]
                    cargo.holder = source
                payload, size = cargo.snapshot, cargo.pulled
            arrive = self._to_worker
            whom = worker = to.number
        elif kind is Push:
            if payload is not None:
                size = message.size or self._cargo[message.bucket].pushed  # type: ignore[attr-defined]
            worker, arrive, whom = source.number, self._to_server, self.servers[to.number]
        else:
            if kind is View:
                self._cargo_table.learn(message.holders)  # type: ignore[attr-defined]
            if send.of_replica:
                payload = np.concatenate(self.workers[source.number].model.pieces)
            elif send.of_copy:
                assert self.crashes is not None, "only a crash makes workers send copies"
                payload = self.crashes.copy(source.number, message.bucket)  # type: ignore[attr-defined]
            if payload is not None:
                size = self._sizes.message_bytes(self.problem.layout, message, payload)
                payload = payload.copy()
            worker, arrive, whom = self._arrival(source, to)
            if self._free_running and to.role == source.role:
                link = PeerLink(self.workers[source.number], self.workers[to.number])
                self._under_way[link] += 1
                arrive, whom = self._to_peer, link
            if self.watch is not None and to.role == source.role == "server":
                until = self.nodes.broken.get(frozenset((source.number, to.number)), 0.0)
                if until > agenda.now:
                    agenda.at(until, NO_WORKER, self._send_later, source, send)
                    return
                self.watch.sent(source, to, size)
        record = self._record
        record((agenda.now, source, to, message, size))
        if self.network is None:
            at_once = agenda.at_once
            at_once((worker, arrive, whom, Received(source, message, payload)))
        else:
            event = Received(source, message, payload)
            self.network.send(Transfer(source, to, worker, size, arrive, whom, event))

    def _send_later(self, source: NodeId, send: Send) -> None:
        """The link between two servers works again."""
        if self.servers[source.number].alive:
            self.send(source, send)

    def _arrival(self, source: NodeId, to: NodeId) -> tuple[int, Action, int | SimulatedServer | None]:
        """For other messages: the number of the worker at either end, the action on arrival, and its target."""
        if to.role == "worker":
            return to.number, self._to_worker, to.number
        if to.role == "server":
            worker = source.number if source.role == "worker" else NO_WORKER
            return worker, self._to_server, self.servers[to.number]
        return source.number, self.to_coordinator, None

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        worker, bucket = self.workers[me.number], deliver.bucket
        if self.crashes is not None:
            self.crashes.reads(me.number).take(deliver)
        cargo = self._cargo.get(bucket)
        place = -1 if cargo is None else cargo.place
        if place < 0:  # it is a part of a piece
            place = bisect_right(self.buckets, bucket.start, key=lambda each: each.start) - 1
            worker.model.take_part(self.mode, place, self._within(self.buckets[place], bucket), deliver)
        else:
            worker.model.take(self.mode, place, deliver)
        if self._fresh is not None and self.ended is None:
            self._fresh(worker, place)
        following = deliver.next
        if following is None or not self.recording:
            return
        if worker.done:  # it is leaving, and this answers its last push
            self.last_answer = self.agenda.now
        elif not worker.joining:
            self._iterated(worker, following)
        else:
            self.last_answer = self.agenda.now
            if self._of_means:
                self.transfer.ask(worker, following)
            else:
                self.go_on(worker, following)

    def _iterated(self, worker: SimulatedWorker, following: int) -> None:
        """A worker has done an iteration, and goes on with the following one."""
        self.last_answer = self.agenda.now
        self.iterations_done = done = self.iterations_done + 1
        if self._of_means:
            worker.model.whole()
        reached = look(self, worker) if done >= self.curve.due else ""
        if worker.leaving or following >= self.pace.last:
            self.go_on(worker, following)
        else:
            worker.iteration = following
            self.pace.begin(worker)
        if reached or done >= self._most:
            self.stop(reached or "updates")
        if self.transfer.waiting:
            self.transfer.serve(worker)

    def fail(self, me: NodeId, fail: Fail) -> None:
        if not isinstance(fail.error, GoneError):
            raise fail.error
        worker = self.workers[me.number]
        worker.alive = False
        worker.step += 1
        self.stop_awaiting(worker)

    def reject(self, me: NodeId, reject: Reject) -> None:
        raise PeerError(f"{reject.peer} broke the protocol: {reject.reason}")

    def save(self, me: NodeId, save: Save) -> None:
        """A checkpoint takes no time."""
        server = self.servers[me.number]
        if self.job.servers_fail:
            server.saved[save.bucket] = save
        self.agenda.at(self.agenda.now, NO_WORKER, self.to_server, server, Saved(save.bucket, save.serial))

    def load(self, me: NodeId, load: Load) -> None:
        """A checkpoint of a server that is lost; reading it takes no time."""
        found = self.servers[load.server].saved.get(load.bucket)
        state, payload = (None, None) if found is None else (found.state, found.payload)
        event = Loaded(load.bucket, load.server, state, payload)
        self.agenda.at(self.agenda.now, NO_WORKER, self.to_server, self.servers[me.number], event)

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        over = self.agenda.now + timer.seconds
        if me.role == "worker":
            self.agenda.at(over, me.number, self.to_worker, me.number, Timer(timer.key))
        elif me.role == "server":
            self.agenda.at(over, NO_WORKER, self.to_server, self.servers[me.number], Timer(timer.key))
        else:
            self.agenda.at(over, NO_WORKER, self.to_coordinator, None, Timer(timer.key))

    # Arrivals.

    def _queue_at_server(self, server: SimulatedServer, event: Received) -> None:
        """Deliver a message after the server has spent its time on the earlier messages and on this one."""
        message, seconds = event.message, self._handling
        if type(message) is Push or type(message) in self._applied:
            if event.payload is not None:
                pushed = getattr(message, "size", 0) or self._cargo[message.bucket].pushed  # type: ignore[attr-defined]
                seconds += server.node.sums * pushed / (self.scenario.cluster.apply or inf)
        elif not seconds:
            self.to_server(server, event)
            return
        done = server.processor.take(self.agenda.now, seconds)
        server.busy += seconds
        worker = event.source.number if event.source.role == "worker" else NO_WORKER
        self.agenda.at(done, worker, self.to_server, server, event)

    def _to_peer(self, link: PeerLink, event: Received) -> None:
        """A worker's message arrives at another worker; if it was the last under way, tell its sender."""
        source, to = link.source.number, link.to.number
        if self.workers[to] is link.to:
            self._to_worker(to, event)
        self._under_way[link] -= 1
        if not self._under_way[link] and self.workers[source] is link.source:
            use = None if self.network is None else self.network.use(link.source.id)
            self.agenda.at_once((source, self.to_worker, source, Idle(link.to.id, use=use)))

    def _queue_at_worker(self, number: int, event: Received) -> None:
        """Deliver a message after the worker has spent its time on the earlier messages and on this one."""
        done = self.workers[number].processor.take(self.agenda.now, self._handling)
        self.agenda.at(done, number, self.to_worker, number, event)

    def _tell_server(self, server: SimulatedServer, event: Event) -> None:
        server.driver.tell(event, self.agenda.now)

    def _tell_live_server(self, server: SimulatedServer, event: Event) -> None:
        if server.alive:
            server.driver.tell(event, self.agenda.now)

    def _tell_watched_server(self, server: SimulatedServer, event: Event) -> None:
        assert self.watch is not None, "somebody measures the servers"
        if server.alive:
            self.watch.before(self.agenda.now)
            server.driver.tell(event, self.agenda.now)
            if self.ended is not None:
                self.watch.after(self.agenda.now)

    def to_worker(self, number: int, event: Event) -> None:
        worker, now = self.workers[number], self.agenda.now
        if not worker.alive:
            return
        if worker.frozen_until > now:
            self.agenda.at(worker.frozen_until, number, self.to_worker, number, event)
            return
        worker.driver.tell(event, now)
        if worker.joining and worker.node.phase is Phase.RUNNING and worker.node.progress >= self.pace.last:
            self.finish(worker)  # it joined after all iterations were done

    def to_coordinator(self, _: None, event: Event) -> None:
        if self.held_events is not None:
            self.held_events.append(event)
            return
        self._coordinator.tell(event, self.agenda.now)
        if self.watch is not None:
            self._end_left_servers()
        if not self.awaited or self.ended is not None:
            self._end_if_all_done()

    def _end_left_servers(self) -> None:
        """The processes of nodes that have left the tree end."""
        named = self.view_maker.servers | self.view_maker.movers
        for number, server in enumerate(self.servers):
            if number not in named:
                server.alive = False

    # The end.

    def members(self) -> list[SimulatedWorker]:
        """The workers that have done all their iterations and are still members."""
        if self.last_members is not None:
            return self.last_members
        named = {(member.worker, member.incarnation) for member in self.view_maker.view.members}
        return [
            worker
            for worker in self.workers.values()
            if worker.done
            and not worker.joining
            and worker.alive
            and worker.node.phase is Phase.RUNNING
            and (worker.number, worker.node.incarnation) in named
        ]

    def stop_recording(self) -> None:
        """Stop recording: no figure counts what happens from now on."""
        self.recording = False
        self._record = _ignore
        processes: Iterable[SimulatedServer | SimulatedWorker] = (*self.servers, *self.workers.values())
        for process in processes:
            process.driver.close_observers()


def simulate(
    scenario: Scenario,
    problem: Problem,
    *,
    every: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Outcome:
    """Run a scenario to its end; `every`: measure the model after every so many iterations of all workers (`curve`)."""
    return World(scenario, problem, every=every).run(progress)


def _costs(cluster: Cluster, size: int) -> tuple[float, float]:
    """What a strategy could measure: the delay of a message, and what an update of `size` bytes costs a server."""
    links = cluster.links or Links()
    return links.latency, size / links.bandwidth + size / (cluster.apply or inf)


def _ignore(_: Record) -> None:
    """Record nothing."""


@contextmanager
def _no_collections() -> Iterator[None]:
    """Pause Python's garbage collector: events are many and short-lived, and form no reference cycles."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
