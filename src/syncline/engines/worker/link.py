"""A worker's side of a run: the host of its node. It waits only in calls of the program that wait."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic

import numpy as np
from msgspec.structs import replace

from syncline.codecs import Bytes
from syncline.draw import Draw
from syncline.effects import (
    Collect,
    Deliver,
    Depart,
    Enter,
    Event,
    Fail,
    Fetch,
    Finish,
    Received,
    Reject,
    Send,
    SetTimer,
    Timer,
)
from syncline.engines.message_trace import MessageTrace
from syncline.engines.net import tokens
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    Abort,
    Begin,
    ChangeReply,
    ChangeRequest,
    CheckpointDue,
    CheckpointWritten,
    Declare,
    EpochBegun,
    Hello,
    Laid,
    Lifted,
    Listening,
    Noted,
    Peers,
    Pulse,
    Reach,
    Reached,
    Read,
    Refused,
    Seated,
    Share,
    Welcome,
    Whole,
    layout_of,
)
from syncline.engines.net.frames import Frame
from syncline.engines.net.lasting import RESUME_SECONDS
from syncline.engines.net.wiring import Wiring, connect_coordinator
from syncline.engines.process import say
from syncline.engines.process_state import host
from syncline.engines.worker.change_requests import ChangeRequests
from syncline.engines.worker.coordinator_news import CoordinatorNews
from syncline.engines.worker.last_read import LastRead
from syncline.engines.worker.lost_servers import LostServers
from syncline.engines.worker.peer_figures import peer_figures
from syncline.engines.worker.peer_lanes import LOST_SECONDS, PeerLanes
from syncline.engines.worker.peer_sending import IdleLinks
from syncline.engines.worker.reads import PendingReads
from syncline.engines.worker.server_lanes import ServerLanes
from syncline.engines.worker.traffic import NO_COORDINATOR, Traffic
from syncline.errors import GoneError, PeerError, RunError, SynclineError, UsageError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Table, Values
from syncline.messages import (
    COORDINATOR,
    Gone,
    Holders,
    Message,
    Moved,
    NodeId,
    Params,
    Push,
    View,
    server_id,
    worker_id,
)
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.driver import driver_of
from syncline.nodes.phase import Phase
from syncline.nodes.protocol import Collected, Collector, Trainer
from syncline.strategies.allowed_parts import AllowedParts
from syncline.strategies.protocol import Job
from syncline.strategies.settings import strategy_in

WELCOME_SECONDS = 5.0
"""Seconds in which the coordinator must answer; otherwise the peer is not a coordinator."""

NOBODY = server_id(-1)

START_SECONDS = 3600.0
"""Seconds that a worker waits for the others at the start."""


class WorkerLink:
    """Connections to the coordinator, to servers and to other workers, the worker's memory, and its node."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring if wiring.token else dataclasses.replace(wiring, token=tokens.new_token())
        self.news = CoordinatorNews()
        self._traffic = Traffic(self, self._awaits)
        self._servers = ServerLanes(wiring, self._traffic)
        self._changes = ChangeRequests(self._traffic)
        self._sitting = False
        self._views: list[View | Reach] = []
        """Messages that arrived before the node was made."""
        self.node: Trainer | None = None
        self.following: int | None = None
        """The next iteration, once the current one is complete; until then None."""
        self.members: tuple[int, ...] = ()
        """The live workers of this model, as of the latest view that this worker has."""
        self._peers: PeerLanes | None = None
        """Connections to other workers, if the strategy uses them."""
        self._aside: dict[NodeId, Bytes] = {}
        """Payloads that were received into a separate buffer, until the node handles their message."""
        self._former: set[NodeId] = set()
        """Servers that hold nothing any more, but may still answer."""
        self._read_by: list[tuple[NodeId, Read]] = []
        """Reads of other workers that wait until this one has the initial values."""
        self._has_first = False
        self._idle: IdleLinks | None = None
        """Tells the node which links are idle, if the strategy wants to know."""
        self._lost_servers: LostServers | None = None
        """What happens when a server dies whose buckets can be restored."""
        self._last_read: LastRead | None = None
        """What is left of a bucket when a server dies, if that can be restored."""
        self._introduced: set[NodeId] = set()
        """The servers whose address this worker was told."""
        self._last_push: dict[Bucket, Message] = {}
        self._trace: MessageTrace | None = None

    @property
    def error(self) -> SynclineError | None:
        """Why this worker cannot continue."""
        return self._traffic.error

    @property
    def changed(self) -> Mapping[str, str]:
        """The settings that have changed since this worker began."""
        return self.news.changed

    def _awaits(self) -> bool:
        return self.node is not None and self.node.is_waiting

    # Start.

    def connect(self, known: Welcome | None = None) -> Welcome:
        """Connect to the coordinator, and return its answer. `known`: its answer on the first connection."""
        number, token = int(self._wiring.worker or -1), self._wiring.token
        hello = Hello(self._wiring.run, "worker", number, pid=os.getpid(), host=host(), token=token)
        if known is not None:
            hello = replace(hello, run=known.run, number=known.worker, incarnation=known.incarnation, again=True)
        self._traffic.add(COORDINATOR, connect_coordinator(self._wiring, hello))
        patience = WELCOME_SECONDS + (RESUME_SECONDS if self._wiring.lasting else 0)
        self._traffic.wait(lambda: self.news.welcome is not None, patience)
        assert self.news.welcome is not None
        return self.news.welcome

    def another(self) -> WorkerLink:
        """Open a link for another model, since a connection is for one model."""
        made = WorkerLink(self._wiring)
        made.connect(self.news.welcome)
        return made

    def share(self, kind: str, data: bytes, notice: str = "") -> list[bytes]:
        """All-gather: send a value, and return the values of all workers; `notice`: a line to print after a while."""
        self.news.gathered = None
        self._traffic.send(COORDINATOR, Share(kind, data))
        self._traffic.wait(lambda: self.news.gathered is not None, notice=notice)
        assert self.news.gathered is not None
        return list(self.news.gathered.data)

    def change(self, models: tuple[str, ...], sync: tuple[str, ...], release: str) -> None:
        """Change the sync model or the release of these models on all servers."""
        self._changes.ask(ChangeRequest(0, sync, release, models))

    def reshape(self, models: tuple[str, ...], topology: str) -> None:
        """Change who talks to whom."""
        self._changes.ask(ChangeRequest(0, models=models, topology=topology))

    def merge(self, nodes: tuple[int, ...]) -> None:
        """Let one server take the place of several."""
        self._changes.ask(ChangeRequest(0, merge=nodes))

    def tell(self, message: Pulse | EpochBegun | CheckpointWritten | CheckpointDue) -> None:
        """Tell the coordinator something that needs no answer; do nothing if the coordinator is gone."""
        if COORDINATOR in self._traffic:
            self._traffic.send(COORDINATOR, message)

    def begin(self, declare: Declare) -> Begin:
        """Declare the model, and wait until all workers have declared it."""
        self._traffic.send(COORDINATOR, declare)
        self._traffic.wait(lambda: self.news.begin is not None, START_SECONDS)
        begin = self.news.begin
        assert begin is not None
        try:
            self._set_up(begin, declare)
        except PeerError as error:
            raise self._failed(PeerError(f"{COORDINATOR} broke the protocol: {error}")) from None
        return begin

    def _set_up(self, begin: Begin, declare: Declare) -> None:
        """Check the coordinator's answer, connect to the servers, and make the node."""
        welcome = self.news.welcome
        assert welcome is not None
        layout, view = layout_of(declare.tables), begin.view
        if begin.tables != declare.tables or len(view.holders) not in (0, len(begin.servers)):
            raise PeerError("it sent Begin with a model or servers that do not match the declaration")
        AllowedParts(self._wiring.allow_parts).check(begin.settings, declare.wishes)
        try:
            self.strategy = strategy_in(begin.settings)
            job = Job(layout, Draw(int(begin.settings["seed"])), remote=True, own_workers=begin.own_workers)
        except (KeyError, ValueError) as error:
            raise PeerError(f"it sent invalid settings: {error}") from None
        me, incarnation = welcome.worker, welcome.incarnation
        self.me = worker_id(me)
        self._all = self.strategy.buckets(layout, view.topology)
        self._serving = self._servers_in(view)
        self._introduced |= self._serving
        holders, whole = self._placement(view), len(begin.servers) > max(self._serving, default=NOBODY).number
        if not self.strategy.peers and not (whole and bucket_map_of(holders).covers(layout.size)):
            raise PeerError("it sent Begin with servers that do not hold the whole model")
        hello = Hello(
            welcome.run,
            "worker",
            me,
            incarnation,
            pid=os.getpid(),
            host=host(),
            model=declare.model,
            word=begin.word,
        )
        self._note_members(view)
        self._leader = begin.leader
        places = {each.number: begin.servers[each.number] for each in sorted(self._serving)}
        if self.strategy.survives_servers:
            places = {number: place for number, place in places.items() if place.host}  # the others may return
        self.memory = self._servers.open(places, layout.size, hello, self.strategy.messages)
        if self.strategy.restores_servers:
            reached = (self._traffic, self._servers)
            told = (self.handle, self._from_coordinator)
            self._lost_servers = LostServers(self.memory, holders, reached, told, self.strategy.adds_own_changes)
            self._last_read = self._lost_servers.last_read
        self._reads = PendingReads(view.view, holders, self._send_control)
        self._neighbours = self.strategy.neighbours(self.me, view)
        self._founders = {(member.worker, member.incarnation) for member in view.members}
        if self.strategy.peers:
            self._meet(hello, joins=begin.leader < 0)
        self.node = self.strategy.trainer(me, incarnation, job, view)
        self._trace = MessageTrace(self._wiring.trace, self.me, declare.model, incarnation)
        self._driver = driver_of(self.me, self.node, self, [self._trace] if self._trace.on else [])
        if self.strategy.free_running:
            assert self._peers is not None
            self._idle = IdleLinks(self._traffic, self._peers, self.handle)
            self._traffic.after_turns(self._idle.tell)
        self.buckets = self.node.buckets
        for each in self._views:
            self._from_coordinator(each)

    def _meet(self, hello: Hello, joins: bool) -> None:
        """Connect to the workers that are neighbours."""
        values = self.memory.params.size if self.strategy.free_running else 0
        self._peers = peers = PeerLanes(hello, self._wiring, self._traffic, self.strategy.messages, values)
        self._traffic.send(COORDINATOR, Listening(peers.listen()))
        self._traffic.wait(lambda: peers.known, START_SECONDS)
        peers.want(self._neighbours, joins=joins)
        self._traffic.wait(lambda: peers.ready or bool(self._views), START_SECONDS)

    def seed(self) -> None:
        """Leader: send the initial parameters, which are in `memory.updates`."""
        if not self.strategy.peers:
            self._reads.seed(self.buckets, self.memory)
            self._seed_copies()
            return
        self.memory.params[:] = self.memory.updates
        self._has_first = True
        for source, read in self._read_by:
            self._lend(source, read)

    def _seed_copies(self) -> None:
        """Send the initial parameters also to servers that hold the same buckets as another one."""
        begin = self.news.begin
        assert begin is not None
        seeded = set(bucket_map_of(self._placement(begin.view)).holder.items())
        for server in sorted(self._serving):
            held = self.strategy.held_by(server.number, begin.view, self._all)
            if held and (held[0], server) not in seeded:
                self._reads.seed_copies(server, held, self.memory)
        self.wait(lambda: not self._reads)

    def take_first(self) -> None:
        """Wait for the initial parameters."""
        if not self.strategy.peers:
            assert self.node is not None
            self.handle(Fetch(self.node.progress - 1))
            self.wait(lambda: self.following is not None)
            return
        assert self._peers is not None
        assert self.node is not None
        leader = worker_id(self._leader)
        if leader != self.me:
            if leader not in self._traffic:
                self._peers.call(leader)
                self._traffic.wait(lambda: leader in self._traffic, START_SECONDS)
            self._reads.read_from(leader, self.node.buckets)
            self.wait(lambda: not self._reads)
        if not isinstance(self.node, Collector) or self.node.may_start:
            self.following = self.node.progress

    def remind(self, name: str) -> None:
        """Leader, before `seed`: send `memory.updates` as the rule's state with this name."""
        self._reads.seed(self.buckets, self.memory, name)
        self.wait(lambda: not self._reads)

    @property
    def residuals(self) -> dict[Bucket, dict[str, Values]]:
        """The codec's residuals of each bucket."""
        assert self.node is not None
        return self.node.memories

    def go_on_from(self, iteration: int) -> None:
        """Continue after this many iterations of an earlier run: the codec draws the random numbers that follow."""
        assert self.node is not None
        self.node.earlier = iteration

    def recall(self, name: str = "") -> None:
        """Read the rule's state with this name into `memory.updates`, while no update is in flight; "": parameters."""
        with self._traffic.turn:
            self._reads.read(name)
        self.wait(lambda: not self._reads)

    def collect(self) -> Collected | None:
        """Get all updates of all workers, for a checkpoint; None if servers hold them."""
        node = self.node
        if not isinstance(node, Collector):
            return None
        self.handle(Collect())
        self.wait(lambda: node.collected is not None)
        return node.collected

    def resume(self, clocks: Mapping[int, int]) -> None:
        """Go on after so many updates of each worker, which the first values contain."""
        with self._traffic.turn:
            if isinstance(self.node, Collector):
                self.node.resume(clocks)

    def sit(self) -> None:
        """Wait until all workers that start together have the initial parameters."""
        self._sitting = True
        self._traffic.send(COORDINATOR, Seated())
        self.wait(lambda: self.news.go)
        self._sitting = False
        self._serve_always()
        leader = worker_id(self._leader)
        if self._peers is not None and leader not in self._neighbours:
            self._traffic.end(leader)

    def join(self) -> None:
        """Join a run that is already training."""
        self.handle(Enter())
        self.wait(lambda: self.following is not None)
        self._serve_always()

    def _serve_always(self) -> None:
        """Read and write in the background from now on, if workers send each other updates at their own pace."""
        if self.strategy.free_running:
            self._traffic.turn.wake()

    # The host of the node.

    def handle(self, event: Event) -> None:
        """Pass an event to the node, and perform its effects."""
        with self._traffic.turn:
            self._driver.tell(event, monotonic())
            if self._idle is not None:
                self._idle.tell()

    def send(self, me: NodeId, send: Send) -> None:
        to, message, payload = send.to, send.message, send.payload
        if to.role == "worker":
            assert self._peers is not None
            self._peers.send(to, message, self.memory.params.copy() if send.of_replica else payload)
            if self._idle is not None:
                self._idle.used(to)
            return
        if send.of_copy:
            if to in self._traffic:
                assert self._last_read is not None, "only a view with lost buckets asks for copies"
                copy = self._last_read.values(message.bucket)  # type: ignore[attr-defined]
                self._traffic.send(to, message, copy.data)
            return
        place = None
        if type(message) is Push and payload is not None:
            if self._servers.share(to):
                if self._last_push.get(message.bucket) is message:
                    return  # a push in shared memory cannot be lost, so a retry is not sent
                self._last_push[message.bucket] = message
            place = self.memory.lay(message.bucket, payload)
        if to in self._traffic or not self.strategy.survives_servers or to == COORDINATOR:
            self._servers.send(to, message, place)  # else its node sends it again later

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        self.memory.deliver(deliver)
        if self._last_read is not None:
            self._last_read.delivered(deliver.bucket)
        if deliver.next is not None:
            self.following = deliver.next

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        self._traffic.loop.call_later(timer.seconds, lambda: self.handle(Timer(timer.key)))

    def reject(self, me: NodeId, reject: Reject) -> None:
        self.broke(reject.peer, PeerError(reject.reason))

    def fail(self, me: NodeId, fail: Fail) -> None:
        raise self._failed(fail.error) if isinstance(fail.error, GoneError) else fail.error

    def ungiven(self) -> list[Bucket]:
        """The buckets of the current iteration that the program has not finished."""
        assert self.node is not None
        with self._traffic.turn:
            return [] if self.following is not None else [each for each in self.buckets if not self.node.is_given(each)]

    def wait(self, done: Callable[[], bool]) -> None:
        """Read and write until `done()`."""
        self._traffic.wait(done)

    def _send_control(self, to: NodeId, message: Frame, place: Payload | None = None) -> None:
        if to.role == "worker":
            self._traffic.send(to, message, None if place is None else place.data)
        else:
            self._servers.send(to, message, place)

    # Messages.

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        """Return memory for a payload; the message is checked before anything is written to the program's memory."""
        if source == COORDINATOR or self.node is None or self._servers.share(source):
            raise PeerError(f"it sent {type(message).__name__} with a payload, which it may not")
        if isinstance(message, Whole):
            if not self._reads.asked(source, message.bucket) or size != message.bucket.size * VALUE_BYTES:
                raise PeerError(f"it sent {message.bucket} in {size:,} bytes, which was not requested")
            memory = self.memory
            return (memory.update if message.memory else memory.param)(message.bucket).data.cast("B")
        if not isinstance(message, Message):
            raise PeerError(f"it sent {type(message).__name__} with a payload, which it may not")
        place = self.node.place_of(source, message, size)
        if place is not None:
            if self._last_read is not None:
                self._last_read.receiving(source, place)
            return self.memory.param(place).data.cast("B")
        self._aside[source] = np.empty(size, np.uint8)
        return self._aside[source].data

    def take(self, source: NodeId, message: Frame, payload: memoryview | None) -> None:
        if type(message) is Params and self.node is not None and source.role != "coordinator":  # nearly all of them
            self._tell_node(source, message, payload is not None)
            if self._former:
                self._let_go()
        else:
            self._take_other(source, message, payload)

    def _take_other(self, source: NodeId, message: Frame, payload: memoryview | None) -> None:
        if isinstance(message, Refused):
            raise self._failed(UsageError("run", message.reason) if message.usage else RunError(message.reason))
        if isinstance(message, Abort):
            raise self._failed(RunError(message.reason))
        if source == COORDINATOR:
            self._from_coordinator(message)
        elif self.node is None and not isinstance(message, Read):
            raise PeerError(f"it sent {type(message).__name__} before the model began")
        elif isinstance(message, Read | Whole | Noted):
            self._on_read(source, message, payload is not None)
        elif isinstance(message, Moved) and self._reads.asked(source, message.bucket):
            self._reads.moved(source, message)
        elif isinstance(message, Laid | Lifted) and self._peers is not None:
            self._peers.on_memory(source, message)
        elif isinstance(message, Message):
            self._tell_node(source, message, payload is not None)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which it may not send to a worker")
        if self._former:
            self._let_go()

    def _tell_node(self, source: NodeId, message: Message, carried: bool) -> None:
        """Pass a training message to the node, with its payload, which arrived with it or is in shared memory."""
        if source.role == "worker" and type(message) not in self.strategy.messages:
            raise PeerError(f"it sent {type(message).__name__}, which a worker may not send")
        aside = self._aside.pop(source, None) if carried else None
        payload: Payload | None = None
        if type(message) is Params:
            if carried == self._servers.share(source):
                raise PeerError(f"it sent Params {'with' if carried else 'without'} a payload")
            if self._last_read is not None:
                self._last_read.arrived(source, message.bucket)
            payload = self._params_of(message, aside)
        elif aside is not None:
            payload = aside if getattr(message, "size", 0) else aside.view(np.float32)
        elif source.role == "worker":
            self._tell_node_in_place(source, message)
            return
        self.handle(Received(source, message, payload))

    def _tell_node_in_place(self, source: NodeId, message: Message) -> None:
        """Pass a worker's message to the node, with its payload if that is in shared memory."""
        assert self._peers is not None
        laid = self._peers.laid(source)
        payload: Payload | None = None
        if laid is not None:
            assert self.node is not None
            self.node.place_of(source, message, laid.size)
            payload = laid if getattr(message, "size", 0) else laid.view(np.float32)
        self.handle(Received(source, message, payload))
        if laid is not None:
            self._peers.lift(source)

    def _params_of(self, params: Params, aside: Bytes | None) -> Payload:
        """The payload of these parameters."""
        if aside is not None:
            return aside if params.size else aside.view(np.float32)
        place = self.memory.param(params.bucket)
        if not params.size:
            return place
        if not 0 < params.size <= place.nbytes:
            raise PeerError(f"it sent Params of {params.bucket} in {params.size:,} bytes")
        return place.view(np.uint8)[: params.size]

    def _on_read(self, source: NodeId, message: Read | Whole | Noted, carried: bool) -> None:
        """Handle values that are read outside of any iteration."""
        if isinstance(message, Read):
            self._lend(source, message)
        elif not self._reads.asked(source, message.bucket):
            raise PeerError(f"it sent {message.bucket}, which was not requested")
        elif isinstance(message, Whole) and carried == self._servers.share(source):
            raise PeerError(f"it sent Whole {'with' if carried else 'without'} a payload")
        else:
            self._reads.arrived(source, message.bucket)

    def _lend(self, source: NodeId, read: Read) -> None:
        """Send another worker the initial values, once this worker has them."""
        bucket = read.bucket
        if source.role != "worker" or not 0 <= bucket.start < bucket.stop <= self.memory.params.size:
            raise PeerError(f"it asked for {bucket}, which it may not read")
        if not self._has_first:
            self._read_by.append((source, read))
        elif source in self._traffic:
            self._traffic.send(source, Whole(bucket), self.memory.param(bucket).data, lasting=False)

    def _from_coordinator(self, message: Frame) -> None:
        if isinstance(message, View | Reach) and self.node is None:
            self._views.append(message)
        elif self._lost_servers is not None and self._lost_servers.holds_back(message, self._servers_in):
            return
        elif isinstance(message, View):
            self._adopt(message)
        elif isinstance(message, Reach):
            self._introduced.add(server_id(message.server))
            if self.strategy.survives_servers:
                self._servers.let_go(server_id(message.server))  # it has started again
            self._servers.reach(message.server, message.place, partial(self._reached, message))
        elif isinstance(message, Gone) and self.node is not None:
            self.handle(Received(COORDINATOR, message))
        elif isinstance(message, Peers) and self._peers is not None:
            self._peers.learn(message)
        elif isinstance(message, ChangeReply):
            self._changes.heard(message)
        elif not self.news.heard(message):
            raise PeerError(f"it sent {type(message).__name__}, which the coordinator may not send now")

    def _reached(self, reach: Reach, problem: str) -> None:
        """Tell the coordinator whether this worker could connect to a server that joins."""
        if COORDINATOR in self._traffic:
            self._traffic.send(COORDINATOR, Reached(reach.server, problem, reach.arrival))

    # Members and connections.

    def _adopt(self, view: View) -> None:
        """Adopt a view: update the neighbours, and pass it to the node."""
        assert self.node is not None
        neighbours, serving = self.strategy.neighbours(self.me, view), self._servers_in(view)
        for each in serving if self.strategy.restores_servers or not self.strategy.survives_servers else ():
            died = self.strategy.restores_servers and each in self._introduced
            if each not in self._traffic and self._is_active and not died:
                raise PeerError(f"it sent a view in which {each} holds buckets, but never its address")
        self._note_members(view)
        self._neighbours = neighbours
        self._former, self._serving = (self._former | self._serving) - serving, serving
        if self._peers is not None and self._is_active:
            who = {(each.worker, each.incarnation) for each in view.members} - self._founders
            self._peers.want(neighbours, {worker_id(number): incarnation for number, incarnation in who})
        if self._lost_servers is not None:
            self._lost_servers.check_copies(view, self._placement(view))
        known = len(self.node.losses)
        self.handle(Received(COORDINATOR, view))
        for loss in self.node.losses[known:]:
            say(f"syncline: {loss}")
        self._reads.adopt(view.view, self._placement(view))
        self._let_go()

    def keep_base(self, table: Table, base: Values) -> None:
        """The program changes the parameters of this table in the lane's memory, and keeps here what it has read."""
        if self._last_read is not None:
            with self._traffic.turn:
                self._last_read.keep_base(table, base)

    def taken(self, name: str) -> None:
        """The program has copied the new values of this table to its base."""
        if self._last_read is not None:
            with self._traffic.turn:
                self._last_read.taken(name)

    def _servers_in(self, view: View) -> frozenset[NodeId]:
        return frozenset(map(server_id, self.strategy.servers_of(view)))

    def _placement(self, view: View) -> Holders:
        return self.strategy.holders_for(self.me, view, self._all)

    def _note_members(self, view: View) -> None:
        self.members = tuple(member.worker for member in view.members)

    def _waits_for(self, id: NodeId) -> bool:
        return self.node is None or self.node.waits_for(id) or self._reads.waits_for(id)

    def _let_go(self) -> None:
        """Close the connections to servers that hold nothing and owe no answer."""
        for server in [each for each in self._former if not self._waits_for(each)]:
            self._former.discard(server)
            self._servers.let_go(server)

    def greet(self, wire: Connection, message: Frame) -> None:
        """Another worker has connected."""
        if self._peers is None:
            raise PeerError("it connected to a worker that accepts no connections")
        self._peers.greet(wire, message)

    def broke(self, source: NodeId, error: PeerError) -> None:
        if source.role == "worker" and self._peers is not None:
            self._peers.broke(source, error)
        else:
            raise self._failed(PeerError(f"{source} broke the protocol: {error}")) from None

    def lost(self, id: NodeId, reason: str) -> None:
        if id == COORDINATOR:
            if self._needs_coordinator():
                raise self._failed(RunError(NO_COORDINATOR.format(f" ({reason})")))
            if self._peers is not None and self._is_active:
                self._peers.check_lost()
            for server in self._serving if self._last_read is not None else ():
                self._check_lost(server, f"so is the coordinator, so nobody takes over its part ({reason})")
        elif id.role == "worker":
            self._peer_lost(id, reason)
        else:
            self._servers.forget(id)
            if self._lost_servers is not None and self.node is not None:
                self._lost_servers.died(id)
            if self.strategy.survives_servers and COORDINATOR in self._traffic and not self._reads.waits_for(id):
                self._traffic.loop.call_later(LOST_SECONDS, partial(self._check_lost, id, reason))
            elif self._waits_for(id) or (self._is_active and id in self._serving):
                self._traffic.hear_why()
                raise self._failed(RunError(f"{id} is gone: {reason}"))

    def _check_lost(self, server: NodeId, reason: str) -> None:
        """Fail if a server is gone that this worker waits for, and neither it nor a view without it has come."""
        if self._traffic.coordinator_away:
            self._traffic.loop.call_later(LOST_SECONDS, partial(self._check_lost, server, reason))
            return
        if server not in self._traffic and server in self._neighbours and self._is_active:
            raise self._failed(RunError(f"{server} is gone: {reason}"))

    def _peer_lost(self, id: NodeId, reason: str) -> None:
        assert self._peers is not None
        self._aside.pop(id, None)
        if self._is_active:
            self._peers.lost(id, reason)

    @property
    def _is_active(self) -> bool:
        """Is this worker still in the run?"""
        return self.node is None or self.node.phase is not Phase.GONE

    def _needs_coordinator(self) -> bool:
        """Is this worker joining or leaving, which needs the coordinator?"""
        return not self.news.ended and (self.node is None or self._sitting or self.node.phase is not Phase.RUNNING)

    def _failed(self, error: SynclineError) -> SynclineError:
        return self._traffic.fail(error)

    # End.

    def finish(self) -> None:
        """The last step is done: `leave` then waits until the other workers have done theirs."""
        self.handle(Finish())

    @property
    def sent_bytes(self) -> int:
        """The bytes that this worker has sent to other workers."""
        return 0 if self._peers is None else self._peers.sent_bytes

    def leave(self) -> None:
        self.handle(Depart())
        self.wait(lambda: self.node is not None and self.node.phase is Phase.GONE)
        if self.strategy.free_running and COORDINATOR in self._traffic:
            assert self.node is not None, "it has left"
            self._traffic.send(COORDINATOR, peer_figures(self.node, self.sent_bytes))

    def read_final(self) -> None:
        """Wait until the last member has left, and read the final parameters."""
        self.wait(lambda: self.news.ended)
        self.recall()

    def close(self) -> None:
        self._traffic.close()
        self._servers.close()
        if self._trace is not None:
            self._trace.close()
