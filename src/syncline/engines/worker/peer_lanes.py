"""Connections between workers, for strategies in which workers talk to each other.

1. A worker listens, and the coordinator tells all where the others are. Of two neighbours the one with the higher
   number calls the other.
2. Who is a neighbour follows from the view. A connection that is wanted and not there yet keeps what is to be sent.
   One that is not wanted any more stays open until the other worker ends it: what it has sent is read.
3. A neighbour whose connection has ended is probably dead: the next view tells. If none comes, the worker fails.
4. Whatever is wrong with a peer's frame costs that peer its connection, and nobody else anything.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from hmac import compare_digest

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import PROTOCOL, Hello, NodeAddress
from syncline.engines.net.frames import DECLARATION, Frame
from syncline.engines.net.lanes import call_node
from syncline.engines.net.wiring import Wiring, listen
from syncline.engines.process import say
from syncline.engines.process_state import host
from syncline.engines.worker.traffic import Traffic
from syncline.errors import PeerError, RunError, SynclineError
from syncline.layout import Payload
from syncline.messages import Message, NodeId, worker_id

LOST_SECONDS = 30.0
"""How long a worker waits for a view without a neighbour whose connection has ended."""


class PeerLanes:
    """Connections to other workers of one model."""

    def __init__(self, hello: Hello, wiring: Wiring, traffic: Traffic, messages: tuple[type[Message], ...]) -> None:
        """`hello`: what this worker says to peers that it calls."""
        self._hello = hello
        self._wiring = wiring
        self._traffic = traffic
        self._messages = messages
        self._addresses: Mapping[int, NodeAddress] | None = None
        self._wanted: frozenset[NodeId] = frozenset()
        self._owed: dict[NodeId, list[tuple[Frame, Payload | None]]] = {}

    def listen(self) -> NodeAddress:
        """Let other workers call; where they find this one."""
        unix, tcp = listen(self._traffic.loop, self._wiring)
        return NodeAddress(host(), unix, tcp)

    def learn(self, addresses: Mapping[int, NodeAddress]) -> None:
        """The coordinator says where all workers are."""
        self._addresses = addresses

    @property
    def ready(self) -> bool:
        """Is it known where the others are, and is every neighbour connected?"""
        return self._addresses is not None and all(peer in self._traffic for peer in self._wanted)

    @property
    def known(self) -> bool:
        return self._addresses is not None

    def want(self, peers: frozenset[NodeId]) -> None:
        """These are the neighbours from now on."""
        for peer in self._wanted - peers:
            self._owed.pop(peer, None)  # what it has sent is still read; it ends the connection when it goes
        self._wanted = peers
        for peer in peers:
            if peer.number < self._hello.number and peer not in self._traffic:
                self.call(peer)

    def call(self, peer: NodeId) -> None:
        """Open a connection to another worker."""
        assert self._addresses is not None
        address = self._addresses.get(peer.number)
        if address is None:
            raise RunError(f"the coordinator has not said where {peer} is")
        wire, tls = call_node(str(peer), address, self._wiring, tcp=self._wiring.lane == "tcp")
        self._traffic.call(peer, wire, tls, self._hello, self._messages)
        self._pay(peer)

    def greet(self, wire: Connection, message: Frame) -> NodeId:
        """Another worker has called; who it is."""
        if not isinstance(message, Hello) or message.role != "worker" or message.protocol != PROTOCOL:
            raise PeerError("the first frame must say which worker this is")
        same = compare_digest(message.run.encode(), self._hello.run.encode())
        peer = worker_id(message.number)
        if not same or message.model != self._hello.model or peer in self._traffic or message.number < 0:
            raise PeerError(f"worker {message.number} has no place here")
        self._traffic.known(peer, wire, self._messages, DECLARATION)
        self._pay(peer)
        return peer

    def send(self, to: NodeId, message: Frame, payload: Payload | None) -> None:
        """Send to a neighbour; as soon as it is connected."""
        if to in self._traffic:
            self._traffic.send(to, message, None if payload is None else payload.data, lasting=False)
        elif to in self._wanted:
            self._owed.setdefault(to, []).append((message, None if payload is None else payload.copy()))

    def _pay(self, peer: NodeId) -> None:
        for message, payload in self._owed.pop(peer, ()):
            self.send(peer, message, payload)

    def broke(self, peer: NodeId, error: SynclineError) -> None:
        say(f"{worker_id(self._hello.number)}: dropped {peer}: {error}")
        self._traffic.end(peer)
        self.lost(peer, str(error))

    def lost(self, peer: NodeId, reason: str) -> None:
        """A connection has ended; if no view without that peer comes, there is no going on."""
        if peer in self._wanted:
            self._traffic.loop.call_later(LOST_SECONDS, self._give_up(peer, reason))

    def _give_up(self, peer: NodeId, reason: str) -> Callable[[], None]:
        def check() -> None:
            if peer in self._wanted and peer not in self._traffic:
                raise self._traffic.fail(RunError(f"{peer} is gone: {reason}"))

        return check


def hello_to_peers(run: str, worker: int, incarnation: int, model: str) -> Hello:
    return Hello(run, "worker", worker, incarnation, pid=os.getpid(), host=host(), model=model)
