"""Connections between workers, for strategies in which workers exchange messages with each other.

1. Every worker listens, and the coordinator sends all workers the addresses of the others. Of two neighbours that start
   together, the one with the higher number connects to the other. A joiner connects to all whose addresses it has been
   sent; later joiners connect to it.
2. The view determines the neighbours. Messages to a neighbour that is not connected yet wait. The connection to a
   former neighbour stays open until the other worker closes it, so that everything it has sent is read.
3. A neighbour whose connection has ended is probably dead; the next view shows it. If no such view comes in time, or
   the coordinator is gone too, this worker fails.
4. Neighbours on one host share memory (peer_memory.py), unless the user asks for TCP.
5. After an invalid frame the worker closes the connection of its sender; nothing else happens.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from syncline.codecs import Bytes
from syncline.engines.net import tokens
from syncline.engines.net.addresses import keep_unsent
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import PROTOCOL, Hello, Laid, Lifted, NodeAddress, Peers
from syncline.engines.net.frames import DECLARATION, Frame
from syncline.engines.net.lanes import call_node
from syncline.engines.net.wiring import Wiring, listen
from syncline.engines.process import say
from syncline.engines.process_state import host
from syncline.engines.worker import peer_memory
from syncline.engines.worker.peer_memory import PeerMemory
from syncline.engines.worker.traffic import Traffic
from syncline.errors import PeerError, RunError, SynclineError
from syncline.layout import Payload
from syncline.messages import COORDINATOR, Message, NodeId, worker_id

LOST_SECONDS = 45.0
"""Seconds that a worker waits for a view without a neighbour whose connection has ended."""


class PeerLanes:
    """Connections to other workers of one model."""

    def __init__(
        self, hello: Hello, wiring: Wiring, traffic: Traffic, messages: tuple[type[Message], ...], values: int = 0
    ) -> None:
        """`hello`: what this worker sends first when it connects, but to a peer with another pass.

        `values`: the size of the model, if workers on one host share memory; 0: they do not.
        """
        self._values = values
        self._memory: dict[NodeId, PeerMemory] = {}
        """The memory that each of these peers shares with this worker."""
        self._hello = hello
        self._passes: Mapping[int, str] = {}
        self._wiring = wiring
        self._traffic = traffic
        self._messages = messages
        self._addresses: Mapping[int, NodeAddress] | None = None
        self._incarnations: Mapping[int, int] = {}
        """Which incarnation of each worker listens at its address."""
        self._wanted: frozenset[NodeId] = frozenset()
        self._owed: dict[NodeId, list[tuple[Frame, Payload | None]]] = {}
        self._calling: set[NodeId] = set()
        self.sent_bytes = 0
        """The bytes of all payloads so far."""
        self._lost: dict[NodeId, str] = {}
        """Neighbours whose connection has ended, and why."""

    def listen(self) -> NodeAddress:
        """Accept connections of other workers; return the addresses."""
        unix, tcp = listen(self._traffic.loop, self._wiring)
        return NodeAddress(host(), unix, tcp)

    def learn(self, peers: Peers) -> None:
        """The coordinator has sent the addresses of the other workers, and the passes to show to them."""
        self._addresses, self._passes, self._incarnations = peers.addresses, peers.passes, peers.incarnations

    @property
    def ready(self) -> bool:
        """Are the addresses known, and is every neighbour connected?"""
        return self._addresses is not None and all(peer in self._traffic for peer in self._wanted)

    @property
    def known(self) -> bool:
        return self._addresses is not None

    def want(
        self, peers: frozenset[NodeId], joiners: Mapping[NodeId, int] = MappingProxyType({}), joins: bool = False
    ) -> None:
        """Set the neighbours, and connect to those that do not connect to this worker.

        `joins`: this worker joins. `joiners`: those that have joined since this one began, with their incarnations.
        """
        for peer in self._wanted - peers:
            self._owed.pop(peer, None)  # we still read what it sends; it closes the connection when it exits
        self._wanted = peers
        for peer in peers:
            if peer in joiners:
                calls = self._incarnations.get(peer.number) == joiners[peer]
            else:
                calls = joins or peer.number < self._hello.number
            if calls and peer not in self._traffic and peer not in self._lost:  # a lost peer has left or will call us
                self.call(peer)

    def call(self, peer: NodeId) -> None:
        """Open a connection to another worker, aside."""
        if peer in self._calling:
            return
        assert self._addresses is not None
        address = self._addresses.get(peer.number)
        if address is None:
            raise RunError(f"the coordinator has not sent the address of {peer}")
        self._calling.add(peer)

        def work() -> Callable[[], None]:
            try:
                wire, tls = call_node(str(peer), address, self._wiring, tcp=self._wiring.lane == "tcp")
            except SynclineError as error:
                return partial(self._not_called, peer, error)
            return partial(self._called, peer, wire, tls)

        self._traffic.loop.aside(work)

    def _called(self, peer: NodeId, wire: Connection, tls: ssl.SSLSocket | None) -> None:
        self._calling.discard(peer)
        hello = replace(self._hello, word=self._passes.get(peer.number, ""))
        fd = None
        if wire.is_near and self._values:
            self._memory[peer], fd = peer_memory.share(self._values)
        self._limit_unsent(wire)
        self._traffic.call(peer, wire, tls, hello, self._messages, fd)
        peer_memory.close(fd)
        self._pay(peer)

    def _limit_unsent(self, wire: Connection) -> None:
        """If workers send at their own pace, a link must not count as free while the kernel holds much to send."""
        if self._values:
            keep_unsent(wire.sock)

    def _not_called(self, peer: NodeId, error: SynclineError) -> None:
        self._calling.discard(peer)
        raise self._traffic.fail(error)

    def greet(self, wire: Connection, message: Frame) -> NodeId:
        """Another worker has connected: check its hello, and return who it is."""
        if not isinstance(message, Hello) or message.role != "worker" or message.protocol != PROTOCOL:
            raise PeerError("its first frame was not Hello of a worker")
        proved = tokens.same(message.word, tokens.peer_pass(self._hello.word, message.number))
        peer = worker_id(message.number)
        if (
            not proved
            or message.run != self._hello.run
            or message.model != self._hello.model
            or peer in self._traffic
            or message.number < 0
        ):
            problem = "did not show its pass, is not of this run and model, or is already connected"
            raise PeerError(f"worker {message.number} {problem}")
        memory = peer_memory.accept(wire, self._values)
        if memory is not None:
            self._memory[peer] = memory
        self._limit_unsent(wire)
        self._traffic.known(peer, wire, self._messages, DECLARATION)
        self._pay(peer)
        return peer

    def send(self, to: NodeId, message: Frame, payload: Payload | None) -> None:
        """Send to a neighbour, now or as soon as it is connected."""
        if payload is not None:
            self.sent_bytes += payload.nbytes
        if to in self._traffic:
            self._transmit(to, message, payload)
        elif to in self._wanted:
            self._owed.setdefault(to, []).append((message, None if payload is None else payload.copy()))

    def _pay(self, peer: NodeId) -> None:
        for message, payload in self._owed.pop(peer, ()):
            self._transmit(peer, message, payload)

    def _transmit(self, to: NodeId, message: Frame, payload: Payload | None) -> None:
        memory = self._memory.get(to)
        if memory is not None and payload is not None and not memory.full:
            self._traffic.send(to, Laid(memory.lay(payload)))
            payload = None
            if to not in self._traffic:
                return  # the peer died: the connection ended while we wrote
        self._traffic.send(to, message, None if payload is None else payload.data, lasting=False)

    def shares(self, peer: NodeId) -> bool:
        """Does this peer share memory with this worker?"""
        return peer in self._memory

    def is_full(self, peer: NodeId) -> bool:
        """Is there a payload in shared memory that this peer has not read yet?"""
        return peer in self._memory and self._memory[peer].full

    def on_memory(self, peer: NodeId, message: Laid | Lifted) -> None:
        """A peer has written a payload to shared memory, or read one."""
        if peer not in self._memory:
            raise PeerError(f"it sent {type(message).__name__}, but shares no memory")
        if isinstance(message, Laid):
            self._memory[peer].laid(message.size)
        else:
            self._memory[peer].full = False

    def laid(self, peer: NodeId) -> Bytes | None:
        """The payload of a peer's present message, if it is in shared memory; call `lift` after it was used."""
        return self._memory[peer].take() if peer in self._memory else None

    def lift(self, peer: NodeId) -> None:
        if peer in self._traffic:
            self._traffic.send(peer, Lifted())

    def broke(self, peer: NodeId, error: SynclineError) -> None:
        say(f"{worker_id(self._hello.number)}: dropped {peer}: {error}")
        self._traffic.end(peer)
        self.lost(peer, str(error))

    def lost(self, peer: NodeId, reason: str) -> None:
        """A connection has ended: fail if no view without that peer comes in time, or can come."""
        self._memory.pop(peer, None)
        self._lost[peer] = reason
        if COORDINATOR not in self._traffic:
            self.check_lost()
        elif peer in self._wanted:
            self._traffic.loop.call_later(LOST_SECONDS, self.check_lost)

    def check_lost(self) -> None:
        """Fail if a neighbour is gone and no view without it has come."""
        if self._traffic.coordinator_away:
            self._traffic.loop.call_later(LOST_SECONDS, self.check_lost)
            return
        for peer, reason in self._lost.items():
            if peer in self._wanted and peer not in self._traffic:
                raise self._traffic.fail(RunError(f"{peer} is gone: {reason}"))
