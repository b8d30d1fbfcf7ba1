"""One model on a server: its shard, the workers that train it, and what lies between them.

1. The leader's parameters come in bucket by bucket (`Seed`), before them what the rule remembers of an earlier run, if
   there was one. What arrives before they are whole waits.
2. A worker on the same host hands over its memory with its first frame: a push is read where it lies, an answer is
   written where it is used. From any other worker, payloads ride on the wire.
3. Whatever a worker sends is checked before anything is written or judged; a bad frame costs its sender the connection.
4. When the placement changes, buckets go to other servers and come from them (handovers.py). An answer to a member that
   has not found its way here yet is kept for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from time import monotonic
from typing import Protocol

import numpy as np

from syncline.draw import Draw
from syncline.effects import Change, Deliver, Event, Fail, Received, Reject, Send, SetTimer, Timer
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Abort, Begin, Figures, NodeAddress, Noted, Read, Seed, Take, Whole, layout_of
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.server.handovers import HandoverInbox, HandoverOutbox
from syncline.engines.server.message_trace import MessageTrace
from syncline.errors import PeerError, SynclineError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values
from syncline.messages import COORDINATOR, PAYLOAD, Handover, Moved, NodeId, Pull, Push, Skipped, View, server_id
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.driver import Driver
from syncline.nodes.protocol import Keeper
from syncline.rules import LARGEST
from syncline.strategies.protocol import Job
from syncline.strategies.settings import strategy_in

FAR = 1 << 20
"""No pull is for an iteration that is further than this from what a shard has closed."""

MOST_EARLY = 1 << 10
"""How many requests in names that are not known here yet may wait, beside one for each bucket."""


@dataclass(eq=False, slots=True)
class WorkerPeer:
    """A worker as a server knows it, on its connection for one model."""

    id: NodeId
    incarnation: int
    wire: Connection
    memory: LaneMemory
    shared: bool
    asked: dict[Bucket, int] = field(default_factory=dict)
    """The iteration whose push or pull is not answered yet: it may come again, but no other, so nothing piles up."""
    early: list[Push | Pull] = field(default_factory=list)
    """Of these, what waits for the first parameters; gone with the peer."""
    reads: list[Read] = field(default_factory=list)
    """Readings that wait for a bucket, or for a view."""

    @property
    def who(self) -> tuple[int, int]:
        return self.id.number, self.incarnation


class Out(Protocol):
    """How a held model sends: at once, or as soon as the socket takes it; `lasting`: nobody will write the payload."""

    def __call__(
        self, wire: Connection, message: Frame, payload: memoryview | None = None, *, lasting: bool = False
    ) -> None: ...


class HeldModel:
    """The buckets of one model that this server holds."""

    def __init__(
        self,
        id: NodeId,
        begin: Begin,
        coordinator: Connection,
        trace: MessageTrace,
        out: Out,
        lose: Callable[[Connection, str], None],
        call: Callable[[HeldModel, int], Connection],
        later: Callable[[float, Callable[[], None]], None],
    ) -> None:
        """`call`: open a connection to another server, or `RunError`. `later`: do something after so many seconds."""
        self.id = id
        self.name = begin.model
        self.coordinator = coordinator
        self.layout = layout_of(begin.tables)
        self.workers: dict[tuple[int, int], WorkerPeer] = {}
        self._out = out
        self._lose = lose
        self._trace = trace
        self._later = later
        self._begin = begin
        self._keeper: Keeper | None = None
        self._view = begin.view
        held = begin.view.holders[id.number] if id.number < len(begin.view.holders) else ()
        self._pieces = {bucket: np.zeros(bucket.size, np.float32) for bucket in held}
        self._unseeded = set(self._pieces)
        self._strategy = strategy_in(begin.settings)
        self.word = begin.word
        self.places: dict[int, NodeAddress] = dict(enumerate(begin.servers))
        self.givers: dict[int, Connection] = {}
        """The servers that this one has called."""
        self._call = call
        self._meter = self._strategy.meter()
        self._inbox = HandoverInbox(id.number, begin.view.holders, self._strategy.memory_types)
        self._outbox = HandoverOutbox()
        self._owed: dict[tuple[int, int], list[tuple[Frame, Payload | None]]] = {}
        """Answers to members that are not connected yet."""
        self._remembered: dict[Bucket, dict[str, Values]] = {}
        """What the rule remembers from an earlier run."""
        self._cut = bucket_map_of(begin.view.holders)
        self._leader = next((each for each in begin.view.members if each.worker == begin.leader), None)
        self._views: list[View] = []
        self._members = {(each.worker, each.incarnation) for each in begin.view.members}
        self._named = set(self._members)
        """The members whose first iteration is named."""
        self._pushed = 0
        self._pulled = 0
        if not self._unseeded:
            self._open()

    @property
    def is_open(self) -> bool:
        """Are the first parameters whole?"""
        return self._keeper is not None

    def _open(self) -> None:
        """The first parameters are whole: make the node, and let in what has waited."""
        begin = self._begin
        job = Job(self.layout, Draw(int(begin.settings["seed"])), remote=True)
        self._keeper = self._strategy.keeper(self.id.number, job, begin.view, self._pieces)
        self._driver = Driver(self.id, self._keeper, self, [self._meter, *([self._trace] if self._trace.on else [])])
        for bucket, memory in self._remembered.items():
            for name, values in memory.items():
                self._keeper.remember(bucket, name, values)
        self._remembered.clear()
        views, self._views = self._views, []
        for view in views:
            self.see(view)
        self._catch_up()

    def is_member(self, peer: WorkerPeer) -> bool:
        return self._has_member(peer.who)

    def may_ask(self, peer: WorkerPeer) -> bool:
        """Is this worker a member, or about to be one?"""
        return peer.who in self._members

    def _has_member(self, who: tuple[int, int]) -> bool:
        return self._keeper is not None and who in self._named

    def see(self, view: View) -> None:
        """A new view."""
        if self._keeper is None:
            self._views.append(view)
            return
        if view.view <= self._view.view:
            return
        self._view = view
        self._members = {(each.worker, each.incarnation) for each in view.members}
        self._named = {(each.worker, each.incarnation) for each in view.members if each.first is not None}
        givers = self._inbox.adopt(view)
        self._handle(Received(COORDINATOR, view))
        cut = bucket_map_of(view.holders)
        if cut is not self._cut:
            self._cut = cut
            for peer in self.workers.values():
                self._forget_moved(peer)
        self._owed = {who: answers for who, answers in self._owed.items() if self._has_member(who)}
        for number in givers:
            self._out(self.givers.get(number) or self._call(self, number), Take(self._inbox.view))
        self._catch_up()

    def change(self, change: Change) -> None:
        """Go on under another sync model; nobody asks for that before all hold the first parameters."""
        self._handle(change)

    def _forget_moved(self, peer: WorkerPeer) -> None:
        """What is not answered here any more, because it is another server's, may be asked for again."""
        me = self.id
        peer.asked = {name: asked for name, asked in peer.asked.items() if self._cut.holder.get(name) == me}

    # Other servers.

    def ask(self, number: int, wire: Connection, message: Frame) -> None:
        """Another server wants what is its own by now."""
        if not isinstance(message, Take):
            raise PeerError(f"{type(message).__name__} from a server that takes")
        self._outbox.ask(number, wire, message.view)
        self._deliver()

    def taker_lost(self, number: int, wire: Connection) -> None:
        self._outbox.forget(number, wire)

    def giver_lost(self, number: int, reason: str) -> None:
        """The connection to a server has ended; if it was to hand over something, that is lost."""
        self.givers.pop(number, None)
        if self._inbox.awaits(number):
            what = f"{server_id(number)} is gone before it has handed over all{reason and ': ' + reason}"
            self._out(self.coordinator, Abort(what))

    def _deliver(self) -> None:
        for wire, message, payload in self._outbox.due():
            self._out(wire, message, payload.data, lasting=True)

    def handover_sink(self, number: int, message: Frame, size: int) -> memoryview:
        if not isinstance(message, Handover):
            raise PeerError(f"{type(message).__name__} with a payload from a server that gives")
        self._inbox.check(number, message, size)
        return memoryview(bytearray(size))

    def take_over(self, number: int, message: Frame, payload: memoryview | None) -> None:
        """A bucket has arrived; if it carried a payload, it was checked."""
        if not isinstance(message, Handover) or payload is None:
            raise PeerError(f"{type(message).__name__} from a server that gives")
        self._handle(Received(server_id(number), message, np.frombuffer(payload, np.uint8)))
        self._inbox.arrived(message)
        self._catch_up()

    def enter(self, peer: WorkerPeer) -> None:
        """A worker has found its way here: give it what is owed to it."""
        self.workers[peer.who] = peer
        for message, payload in self._owed.pop(peer.who, ()):
            self._answer(peer, message, payload)

    def _catch_up(self) -> None:
        """Judge what has waited for this view; what is wrong with it costs its sender, not whoever brought the view."""
        for peer in list(self.workers.values()):
            early, peer.early = peer.early, []
            reads, peer.reads = peer.reads, []
            try:
                for message in early:
                    self._request(peer, message)
                for read in reads:
                    self._read(peer, read)
            except PeerError as error:
                self._lose(peer.wire, str(error))

    # From workers.

    def sink(self, peer: WorkerPeer, message: Frame, size: int) -> memoryview:
        """Where the payload of this message goes."""
        if peer.shared or not isinstance(message, Push | Seed):
            raise PeerError(f"{type(message).__name__} with a payload")
        bucket = message.bucket
        self._check(peer, message, True)
        written = message.size if isinstance(message, Push) else 0
        if size != (written or bucket.size * VALUE_BYTES):
            raise PeerError(f"{type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        return peer.memory.update(bucket).data.cast("B")[:size]

    def _check(self, peer: WorkerPeer, message: Push | Pull | Seed, carried: bool) -> None:
        """May this worker send this, now?"""
        if message.bucket not in self._cut.holder:
            self._check_name(peer, message)
        if isinstance(message, Seed):
            if not self._awaits(peer, message.bucket):
                raise PeerError(f"a seed of {message.bucket} that nobody waits for")
            if message.memory and message.memory not in self._strategy.remembers:
                raise PeerError(f"a seed of {message.memory!r}, which this rule does not remember")
        elif message.incarnation != peer.incarnation:
            raise PeerError(f"{type(message).__name__} of incarnation {message.incarnation} from {peer.incarnation}")
        elif peer.asked.get(message.bucket, message.progress) != message.progress:
            raise PeerError(f"{type(message).__name__} of {message.bucket} before the last one was answered")
        if isinstance(message, Push):
            self._check_push(message)
        carries = not peer.shared and (isinstance(message, Seed) or (isinstance(message, Push) and not message.empty))
        if carried != carries:
            raise PeerError(f"{type(message).__name__} {'with' if carried else 'without'} a payload")

    def _check_name(self, peer: WorkerPeer, message: Push | Pull | Seed) -> None:
        """Can this be a bucket of an earlier view, or, if the worker knows a later one, of that?"""
        name, cut = message.bucket, self._cut
        view = -1 if self._keeper is None else self._view.view
        if name.start >= name.stop or isinstance(message, Seed):
            raise PeerError(f"{name} is no bucket of this model")
        if not cut.is_row(name) and (message.view <= view or cut.around(name) is None):
            raise PeerError(f"{name} is no bucket of this model")
        if len(peer.asked) > len(cut.holder) + MOST_EARLY:
            raise PeerError("too much in names that are not known yet")

    def _check_push(self, push: Push) -> None:
        if push.progress < 0:
            raise PeerError(f"a push for iteration {push.progress}")
        if push.lr is not None and not (isfinite(push.lr) and 0 <= push.lr <= LARGEST):
            raise PeerError(f"a push with the learning rate {push.lr}")
        if not 0 <= push.size <= push.bucket.size * VALUE_BYTES:
            raise PeerError(f"a push of {push.bucket} in {push.size:,} bytes")
        if push.skipped is not Skipped.NOTHING and not push.empty:
            raise PeerError(f"a push of {push.bucket} that is skipped, and is not")

    def _awaits(self, peer: WorkerPeer, bucket: Bucket) -> bool:
        leader = self._leader
        return leader is not None and peer.who == (leader.worker, leader.incarnation) and bucket in self._unseeded

    def frame(self, peer: WorkerPeer, message: Frame, carried: bool) -> None:
        """A worker's frame; `carried`: its payload was read, and the frame checked, already."""
        if isinstance(message, Push | Pull | Seed):
            if not carried:
                self._check(peer, message, False)
            if isinstance(message, Seed):
                self._seed(peer, message)
            else:
                peer.asked[message.bucket] = message.progress
                self._request(peer, message)
        elif isinstance(message, Read) and self._keeper is not None:
            if len(peer.reads) > len(self._cut.holder):
                raise PeerError("more readings than buckets")
            self._read(peer, message)
        else:
            raise PeerError(f"{type(message).__name__} from a worker")

    def _seed(self, peer: WorkerPeer, seed: Seed) -> None:
        bucket = seed.bucket
        if seed.memory:
            self._remembered.setdefault(bucket, {})[seed.memory] = peer.memory.update(bucket).copy()
            self._out(peer.wire, Noted(bucket))
            return
        self._pieces[bucket][:] = peer.memory.update(bucket)
        self._unseeded.discard(bucket)
        if not self._unseeded:
            self._open()

    def _request(self, peer: WorkerPeer, message: Push | Pull) -> None:
        if self._keeper is None:
            peer.early.append(message)
            return
        if isinstance(message, Pull):
            closed = self._keeper.counts().progress
            if not -1 <= message.progress < closed + FAR:
                raise PeerError(f"a pull of iteration {message.progress}, where {closed} are closed")
        payload: Payload | None = None
        if isinstance(message, Push) and not message.empty:
            payload = peer.memory.update(message.bucket)
            if message.size:
                payload = payload.view(np.uint8)[: message.size]
            self._pushed += payload.nbytes
        self._handle(Received(peer.id, message, payload))

    def _read(self, peer: WorkerPeer, read: Read) -> None:
        assert self._keeper is not None
        bucket, name = read.bucket, read.memory
        held, view = self._keeper.param(bucket), self._view.view
        if read.view > view or bucket in self._inbox:
            peer.reads.append(read)
            return
        if held is None:
            if not self._cut.is_row(bucket) or read.view == view:
                raise PeerError(f"{bucket} is not here")
            self._out(peer.wire, Moved(view, peer.incarnation, -1, bucket))
            return
        if not name:
            self._give(peer, Whole(bucket), held, peer.memory.param(bucket))
        elif name in self._strategy.remembers:
            self._give(peer, Whole(bucket, name), self._keeper.remembered(bucket)[name], peer.memory.update(bucket))
        else:
            raise PeerError(f"nothing called {name!r} is remembered of {bucket}")

    # The node.

    def _handle(self, event: Event) -> None:
        self._driver.tell(event, monotonic())

    def send(self, me: NodeId, send: Send) -> None:
        to, message, payload = send.to, send.message, send.payload
        if to.role == "coordinator":
            self._out(self.coordinator, message)
        elif type(message) is Handover:
            self._hand_over(to.number, message, payload)
        else:
            who = (to.number, message.incarnation)  # type: ignore[attr-defined]
            peer = self.workers.get(who)
            if peer is not None:
                self._answer(peer, message, payload)
            elif self._has_member(who):
                self._owed.setdefault(who, []).append((message, None if payload is None else payload.copy()))

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        raise SynclineError(f"a server has no application to deliver {deliver} to")

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        self._later(timer.seconds, lambda: self._handle(Timer(timer.key)))

    def reject(self, me: NodeId, reject: Reject) -> None:
        for peer in [each for each in self.workers.values() if each.id == reject.peer]:
            self._lose(peer.wire, reject.reason)

    def fail(self, me: NodeId, fail: Fail) -> None:
        raise fail.error

    def _hand_over(self, server: int, message: Handover, payload: Payload | None) -> None:
        assert payload is not None
        if payload.nbytes > PAYLOAD:
            what = f"{message.bucket} cannot move: it takes {payload.nbytes:,} bytes with all that waits in it"
            self._out(self.coordinator, Abort(what))
            return
        self._outbox.put(server, message, payload)
        self._deliver()

    def _answer(self, peer: WorkerPeer, message: Frame, payload: Payload | None) -> None:
        bucket = message.bucket  # type: ignore[union-attr]
        peer.asked.pop(bucket, None)
        if payload is None:
            self._out(peer.wire, message)
        else:
            if message.progress >= 0:  # type: ignore[union-attr]  # what all start with is in no figure
                self._pulled += payload.nbytes
            place: Payload = peer.memory.param(bucket)
            if payload.dtype != place.dtype:
                place = place.view(payload.dtype)[: payload.size]
            self._give(peer, message, payload, place)

    def _give(self, peer: WorkerPeer, message: Frame, values: Payload, place: Payload) -> None:
        """Values to a worker: into this place of its memory, or over the wire."""
        if peer.shared:
            place[:] = values
            self._out(peer.wire, message)
        else:
            self._out(peer.wire, message, values.data)

    def finish(self) -> Figures | None:
        """It is over: what was counted, if anything began."""
        self._trace.close()
        keeper = self._keeper
        if keeper is None:
            return None
        counts = keeper.counts()
        return Figures(
            self.id.number,
            counts.updates,
            counts.dropped,
            self._meter.delayed_pulls,
            counts.progress,
            self._pushed,
            self._pulled,
            self.name,
            not keeper.params(),
            counts.pushes_skipped,
            counts.fetches_skipped,
        )
