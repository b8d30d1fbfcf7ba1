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
from dataclasses import dataclass
from time import monotonic

import numpy as np

from syncline.draw import Draw
from syncline.effects import Effect, Event, Received, Send
from syncline.engines.control import Abort, Begin, Ended, Figures, Hello, Read, Refused, Seed, Stop, Whole, layout_of
from syncline.engines.frames import Frame
from syncline.engines.memory import Memory, map_segment
from syncline.engines.process import say
from syncline.engines.reactor import Reactor
from syncline.engines.settings import strategy_of
from syncline.engines.tracing import Tracing
from syncline.engines.watch import host
from syncline.engines.wire import Wire
from syncline.engines.wiring import Wiring, connect_coordinator, listen
from syncline.errors import PeerError, SynclineError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Values
from syncline.messages import COORDINATOR, NodeId, Pull, Push, View, server_id, worker_id
from syncline.nodes.meter import Meter
from syncline.nodes.shard import Shard
from syncline.nodes.terms import Terms


@dataclass(eq=False, slots=True)
class Peer:
    """A worker as a server knows it."""

    id: NodeId
    incarnation: int
    wire: Wire
    shared: bool
    fd: int | None = None
    memory: Memory | None = None


class Server:
    """One shard, its workers, and the coordinator."""

    def __init__(self, number: int, wiring: Wiring) -> None:
        self.number = number
        self.id = server_id(number)
        self.over = False
        self.failed = False
        self._wiring = wiring
        self._reactor = Reactor(self)
        self._tracing = Tracing(wiring.trace, self.id)
        self._meter = Meter()
        self._shard: Shard | None = None
        self._layout = Layout(())
        self._pieces: dict[Bucket, Values] = {}
        self._unseeded: set[Bucket] = set()
        self._begin: Begin | None = None
        self._early: list[tuple[Wire, Frame, bool]] = []
        self._peers: dict[Wire, Peer] = {}
        self._workers: dict[int, Peer] = {}
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
        return int(self.failed)

    # Frames.

    def sink(self, wire: Wire, message: Frame, size: int) -> memoryview:
        peer = self._peers.get(wire)
        if peer is None or peer.shared or peer.memory is None or not isinstance(message, Push | Seed):
            raise PeerError(f"{type(message).__name__} with a payload")
        bucket = message.bucket
        if size != self._size(bucket):
            raise PeerError(f"{type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        return peer.memory.update(bucket).data.cast("B")

    def _size(self, bucket: Bucket) -> int:
        if not 0 <= bucket.start < bucket.stop <= self._layout.size:
            raise PeerError(f"{bucket} is not in a model of {self._layout.size:,} values")
        return bucket.size * VALUE_BYTES

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
            if self._workers.get(peer.id.number) is peer:
                del self._workers[peer.id.number]
            if self._coordinator.fileno() < 0 and not self.over:
                self._orphaned(f"{peer.id} is gone")
        elif reason:
            say(f"{self.id}: sent a stranger away: {reason}")

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
        if message.run != self._wiring.run:
            wire.send(Refused("this server belongs to another run"))
            raise PeerError("it belongs to another run")
        if self._begin is None:
            raise PeerError("nothing has begun yet")
        fd = os.dup(wire.fds[0]) if wire.fds else None
        peer = Peer(worker_id(message.number), message.incarnation, wire, fd is not None, fd)
        peer.memory = self._map(peer)
        self._reactor.known(wire)
        self._peers[wire] = peer
        self._workers[message.number] = peer

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
                self._early.append((self._coordinator, message, False))
            else:
                self._handle(Received(COORDINATOR, message))
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
        early, self._early = self._early, []
        for wire, message, carried in early:
            if wire is self._coordinator:
                self._from_coordinator(message)
            elif wire in self._peers:
                self._from_worker(self._peers[wire], message, carried)

    def _from_worker(self, peer: Peer, message: Frame, carried: bool) -> None:
        if isinstance(message, Seed):
            self._seed(peer, message.bucket)
        elif self._shard is None:
            self._early.append((peer.wire, message, carried))
        elif isinstance(message, Push):
            self._push(peer, message, carried)
        elif isinstance(message, Pull):
            self._size(message.bucket)
            self._handle(Received(peer.id, message))
        elif isinstance(message, Read):
            self._read(peer, message.bucket)
        else:
            raise PeerError(f"{type(message).__name__} from a worker")

    def _seed(self, peer: Peer, bucket: Bucket) -> None:
        begin = self._begin
        if begin is None or peer.id.number != begin.leader or bucket not in self._unseeded or peer.memory is None:
            raise PeerError(f"a seed of {bucket} that nobody waits for")
        self._pieces[bucket][:] = peer.memory.update(bucket)
        self._unseeded.discard(bucket)
        if not self._unseeded:
            self._open()

    def _push(self, peer: Peer, push: Push, carried: bool) -> None:
        if push.incarnation != peer.incarnation:
            raise PeerError(f"a push of incarnation {push.incarnation} from {peer.incarnation}")
        size = self._size(push.bucket)
        payload: Payload | None = None
        if not push.empty:
            if peer.memory is None or not (carried or peer.shared):
                raise PeerError("a push without its update")
            payload = peer.memory.update(push.bucket)
            self._pushed += size
        self._handle(Received(peer.id, push, payload))

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
            peer = self._workers.get(to.number)
            if peer is None or peer.incarnation != message.incarnation:  # type: ignore[union-attr]
                continue
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
    return Server(int(sys.argv[1]), Wiring.read(os.environ)).run()


if __name__ == "__main__":
    sys.exit(main())
