"""A server process: one shard behind sockets. It never imports torch.

    python -m syncline.engines.server NUMBER        wiring comes in the environment (see wiring.py)

1. It connects to the coordinator, says where it listens, and is told what is trained (`Begin`).
2. The leader's parameters come in bucket by bucket (`Seed`); what arrives before they are whole waits.
3. A worker on the same host hands over its memory with its first frame: a push is read where it lies, an answer is
   written where it is used. From any other worker, payloads ride on the wire.
4. When the coordinator is gone the shard goes on until the membership must change; then it tells its workers why not.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from math import isfinite
from time import monotonic

import numpy as np

from syncline.draw import Draw
from syncline.effects import Effect, Event, Received, Send
from syncline.engines.control import (
    PROTOCOL,
    Abort,
    Begin,
    Ended,
    Figures,
    Hello,
    Read,
    Refused,
    Seated,
    Seed,
    Stop,
    Whole,
    layout_of,
)
from syncline.engines.frames import STRANGER, Frame
from syncline.engines.memory import Memory, map_segment
from syncline.engines.process import run, say
from syncline.engines.reactor import Reactor
from syncline.engines.settings import strategy_of
from syncline.engines.tracing import Tracing
from syncline.engines.watch import host
from syncline.engines.wire import Wire
from syncline.engines.wiring import Wiring, connect_coordinator, listen
from syncline.errors import PeerError, SynclineError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Values
from syncline.messages import COORDINATOR, Member, NodeId, Pull, Push, View, server_id, worker_id
from syncline.nodes.meter import Meter
from syncline.nodes.shard import Shard
from syncline.nodes.terms import Terms
from syncline.rules import LARGEST

FAR = 1 << 20
"""No pull is for an iteration that is further than this from what a shard has closed."""


@dataclass(eq=False, slots=True)
class Peer:
    """A worker as a server knows it."""

    id: NodeId
    incarnation: int
    wire: Wire
    shared: bool
    fd: int | None = None
    memory: Memory | None = None
    asked: set[Bucket] = field(default_factory=set)
    """Where a push or pull is not answered yet: there is no second one, so nothing that it sends can pile up."""
    early: list[Push | Pull] = field(default_factory=list)
    """Of these, what waits for the first parameters, or for a view that is not there yet; gone with the peer."""

    @property
    def who(self) -> tuple[int, int]:
        return self.id.number, self.incarnation


class Server:
    """One shard, its workers, and the coordinator."""

    def __init__(self, number: int, wiring: Wiring) -> None:
        self.number = number
        self.id = server_id(number)
        self.over = False
        self._wiring = wiring
        self._reactor = Reactor(self)
        self._tracing = Tracing(wiring.trace, self.id)
        self._meter = Meter()
        self._shard: Shard | None = None
        self._layout = Layout(())
        self._pieces: dict[Bucket, Values] = {}
        self._unseeded: set[Bucket] = set()
        self._begin: Begin | None = None
        self._leader: Member | None = None
        self._buckets: frozenset[Bucket] = frozenset()
        self._views: list[View] = []
        self._peers: dict[Wire, Peer] = {}
        self._workers: dict[tuple[int, int], Peer] = {}
        self._pushed = 0
        self._pulled = 0

    def run(self) -> int:
        """Serve until told to stop; the exit code."""
        unix, tcp = listen(self._reactor, self._wiring)
        hello = Hello(self._wiring.run, "server", self.number, pid=os.getpid(), host=host(), unix=unix, tcp=tcp)
        self._coordinator = connect_coordinator(self._wiring, hello)
        self._coordinator.trust()
        self._reactor.add(self._coordinator)
        while not self.over:
            self._reactor.turn(60.0)
        self._reactor.close()
        return 0

    # Frames.

    def sink(self, wire: Wire, message: Frame, size: int) -> memoryview:
        peer = self._peers.get(wire)
        if peer is None or peer.shared or peer.memory is None or not isinstance(message, Push | Seed):
            raise PeerError(f"{type(message).__name__} with a payload")
        bucket = message.bucket
        self._check(peer, message, True)
        if size != bucket.size * VALUE_BYTES:
            raise PeerError(f"{type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        return peer.memory.update(bucket).data.cast("B")

    def _check(self, peer: Peer, message: Push | Pull | Seed, carried: bool) -> None:
        """May this worker send this, now? Whatever it sends is checked before anything is written or judged."""
        if message.bucket not in self._buckets:
            raise PeerError(f"{message.bucket} is no bucket of this model")
        if isinstance(message, Seed):
            if not self._awaits(peer, message.bucket):
                raise PeerError(f"a seed of {message.bucket} that nobody waits for")
        elif message.incarnation != peer.incarnation:
            raise PeerError(f"{type(message).__name__} of incarnation {message.incarnation} from {peer.incarnation}")
        elif message.bucket in peer.asked:
            raise PeerError(f"{type(message).__name__} of {message.bucket} before the last one was answered")
        if isinstance(message, Push):
            self._check_push(message)
        carries = not peer.shared and (isinstance(message, Seed) or (isinstance(message, Push) and not message.empty))
        if carried != carries:
            raise PeerError(f"{type(message).__name__} {'with' if carried else 'without'} a payload")

    def _check_push(self, push: Push) -> None:
        if push.progress < 0:
            raise PeerError(f"a push for iteration {push.progress}")
        if push.lr is not None and not (isfinite(push.lr) and 0 <= push.lr <= LARGEST):
            raise PeerError(f"a push with the learning rate {push.lr}")

    def _awaits(self, peer: Peer, bucket: Bucket) -> bool:
        leader = self._leader
        return leader is not None and peer.who == (leader.worker, leader.incarnation) and bucket in self._unseeded

    def frame(self, wire: Wire, message: Frame, payload: memoryview | None) -> None:
        if wire is self._coordinator:
            self._from_coordinator(message)
        elif wire in self._peers:
            self._from_worker(self._peers[wire], message, payload is not None)
        else:
            self._greet(wire, message)

    def closed(self, wire: Wire, reason: str) -> None:
        peer = self._peers.pop(wire, None)
        if wire is self._coordinator:
            self._coordinator_lost()
        elif peer is not None:
            if reason:
                say(f"{self.id}: dropped {peer.id}: {reason}")
            self._workers.pop(peer.who, None)
            if self._coordinator.fileno() < 0 and not self.over and self._is_member(peer):
                self._orphaned(f"{peer.id} is gone")
        elif reason:
            say(f"{self.id}: sent a stranger away: {reason}")

    def _is_member(self, peer: Peer) -> bool:
        member = self._shard.terms.members.get(peer.id.number) if self._shard is not None else None
        return member is not None and member.incarnation == peer.incarnation

    def _coordinator_lost(self) -> None:
        """The shard needs none until the membership must change; without a shard or a worker there is nothing to do."""
        if self._shard is None or not self._workers:
            self.over = True

    def _orphaned(self, what: str) -> None:
        reason = f"{what}, so the membership must change, but the coordinator is dead"
        for peer in self._workers.values():
            self._out(peer.wire, Abort(reason))
        self.over = not self._workers

    def _greet(self, wire: Wire, message: Frame) -> None:
        if not isinstance(message, Hello) or message.role != "worker":
            raise PeerError("the first frame must say which worker this is")
        reason = self._why_not(message)
        if reason is not None:
            wire.send(Refused(reason))
            raise PeerError(reason)
        fd = os.dup(wire.fds[0]) if wire.fds else None
        peer = Peer(worker_id(message.number), message.incarnation, wire, fd is not None, fd)
        peer.memory = self._map(peer)
        self._reactor.known(wire, STRANGER)
        self._peers[wire] = self._workers[peer.who] = peer

    def _why_not(self, hello: Hello) -> str | None:
        if hello.protocol != PROTOCOL:
            return f"this server speaks protocol {PROTOCOL}, and you speak {hello.protocol}; install the same version"
        if hello.run != self._wiring.run:
            return "this server belongs to another run"
        if self._begin is None:
            return "nothing has begun yet"
        if (hello.number, hello.incarnation) in self._workers or hello.number < 0:
            return f"worker {hello.number} is there already"
        return None

    def _map(self, peer: Peer) -> Memory:
        if peer.fd is None:
            return Memory(self._layout.size)
        try:
            return map_segment(peer.fd, self._layout.size)
        finally:
            os.close(peer.fd)

    def _from_coordinator(self, message: Frame) -> None:
        if isinstance(message, Begin):
            self._start(message)
        elif isinstance(message, View):
            if self._shard is None:
                self._views.append(message)
            else:
                self._handle(Received(COORDINATOR, message))
                self._catch_up()
        elif isinstance(message, Stop):
            self._finish()
        elif isinstance(message, Ended):
            pass
        else:
            raise PeerError(f"{type(message).__name__} from the coordinator")

    def _start(self, begin: Begin) -> None:
        self._begin = begin
        self._layout = layout_of(begin.tables)
        self._pieces = {bucket: np.zeros(bucket.size, np.float32) for bucket in begin.view.holders[self.number]}
        self._unseeded = set(self._pieces)
        self._buckets = frozenset(bucket for held in begin.view.holders for bucket in held)
        self._leader = next((each for each in begin.view.members if each.worker == begin.leader), None)
        self._out(self._coordinator, Seated())
        if not self._unseeded:
            self._open()

    def _open(self) -> None:
        """The first parameters are whole: make the shard, and let in what has waited."""
        begin = self._begin
        assert begin is not None
        strategy = strategy_of(begin.settings, len(begin.servers))
        terms = Terms(
            strategy.sync[self.number],
            strategy.rule,
            strategy.codec,
            Draw(int(begin.settings["seed"])),
            strategy.release,
        )
        self._shard = Shard(self.number, self._pieces, terms, begin.view)
        views, self._views = self._views, []
        for view in views:
            self._handle(Received(COORDINATOR, view))
        self._catch_up()

    def _catch_up(self) -> None:
        """Judge what has waited for this view; what is wrong with it costs its sender, not whoever brought the view."""
        for peer in list(self._peers.values()):
            early, peer.early = peer.early, []
            try:
                for message in early:
                    self._request(peer, message)
            except PeerError as error:
                self._reactor.lose(peer.wire, str(error))

    def _from_worker(self, peer: Peer, message: Frame, carried: bool) -> None:
        if isinstance(message, Push | Pull | Seed):
            if not carried:  # else it was checked before its payload was read
                self._check(peer, message, False)
            if isinstance(message, Seed):
                self._seed(peer, message.bucket)
            else:
                peer.asked.add(message.bucket)
                self._request(peer, message)
        elif isinstance(message, Read) and self._shard is not None:
            self._read(peer, message.bucket)
        else:
            raise PeerError(f"{type(message).__name__} from a worker")

    def _seed(self, peer: Peer, bucket: Bucket) -> None:
        assert peer.memory is not None
        self._pieces[bucket][:] = peer.memory.update(bucket)
        self._unseeded.discard(bucket)
        if not self._unseeded:
            self._open()

    def _request(self, peer: Peer, message: Push | Pull) -> None:
        if self._shard is None or message.view > self._shard.terms.view:
            peer.early.append(message)
            return
        if isinstance(message, Pull):
            closed = max((bucket.v for bucket in self._shard.buckets.values()), default=0)
            if not -1 <= message.progress < closed + FAR:
                raise PeerError(f"a pull of iteration {message.progress}, where {closed} are closed")
        payload: Payload | None = None
        if isinstance(message, Push) and not message.empty:
            assert peer.memory is not None
            payload = peer.memory.update(message.bucket)
            self._pushed += payload.nbytes
        self._handle(Received(peer.id, message, payload))

    def _read(self, peer: Peer, bucket: Bucket) -> None:
        assert self._shard is not None
        held = self._shard.buckets.get(bucket)
        if held is None:
            raise PeerError(f"{bucket} is not here")
        self._give(peer, Whole(bucket), bucket, held.params)

    # The node.

    def _handle(self, event: Event) -> None:
        if self._shard is None:
            raise PeerError("nothing has begun yet")
        now = monotonic()
        effects = self._shard.handle(event, now)
        self._meter.handled(self.number, event, effects, now)
        if self._tracing.on:
            self._tracing.event(event, now)
        self._perform(effects, now)

    def _perform(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            if type(effect) is not Send:
                raise SynclineError(f"a server cannot perform {effect}")
            to, message, payload = effect.to, effect.message, effect.payload
            if self._tracing.on:
                self._tracing.effect(effect, now)
            if to.role == "coordinator":
                self._out(self._coordinator, message)
                continue
            peer = self._workers.get((to.number, message.incarnation))  # type: ignore[union-attr]
            if peer is None:
                continue
            peer.asked.discard(message.bucket)  # type: ignore[union-attr]
            if payload is None:
                self._out(peer.wire, message)
            else:
                self._pulled += payload.nbytes
                self._give(peer, message, message.bucket, payload)  # type: ignore[union-attr]

    def _give(self, peer: Peer, message: Frame, bucket: Bucket, values: Payload) -> None:
        """Parameters to a worker: into its memory, or over the wire."""
        if peer.shared:
            if peer.memory is not None:
                peer.memory.param(bucket)[:] = values
                self._out(peer.wire, message)
        else:
            self._out(peer.wire, message, values.data)

    def _out(self, wire: Wire, message: Frame, payload: memoryview | None = None) -> None:
        if wire.fileno() < 0:
            return
        try:
            wire.send(message, payload)
        except OSError:
            return  # it is gone; its end is read as such
        if wire.waiting:
            self._reactor.write(wire)

    def _finish(self) -> None:
        shard = self._shard
        if shard is not None:
            tally = shard.tally
            least = min((bucket.v for bucket in shard.buckets.values()), default=0)
            figures = Figures(
                self.number, tally.updates, tally.dropped, self._meter.delayed_pulls, least, self._pushed, self._pulled
            )
            self._out(self._coordinator, figures)
        self._tracing.close()
        self.over = True


def main() -> int:
    return run(Server(int(sys.argv[1]), Wiring.read(os.environ)).run)


if __name__ == "__main__":
    sys.exit(main())
