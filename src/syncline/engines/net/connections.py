"""The connections of one worker, by the node at the other end, on one event loop.

1. Only one thread at a time may use them (background_thread.py says which).
2. A connection that has ended is removed before the reader is told.
3. Reading never pauses: otherwise a worker and a server that both send much data would wait for each other.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from math import inf
from typing import Protocol

from syncline.engines.net.connection import Connection
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import HEADER, Frame
from syncline.engines.net.link_use import ConnectionUse, connection_use
from syncline.engines.net.tcp_liveness import TcpLiveness, unacknowledged
from syncline.errors import PeerError
from syncline.messages import Message, NodeId

ENDED = "its connection ended"


class ConnectionReader(Protocol):
    """Receives everything that arrives."""

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        """Return memory for a payload of `size` bytes, or raise `PeerError`."""
        ...

    def take(self, source: NodeId, message: Frame, payload: memoryview | None) -> None:
        """Handle a frame, with its payload if it has one."""
        ...

    def greet(self, wire: Connection, message: Frame) -> None:
        """Handle the first frame of an accepted connection; `PeerError` closes the connection."""
        ...

    def broke(self, source: NodeId, error: PeerError) -> None:
        """A node has sent a frame that breaks the protocol."""
        ...

    def lost(self, id: NodeId, reason: str) -> None:
        """A connection has ended."""
        ...


class Connections:
    """Connections by the node at the other end."""

    def __init__(self, reader: ConnectionReader) -> None:
        self._reader = reader
        self.loop = EventLoop(self, backlog=inf)
        self._by_id: dict[NodeId, Connection] = {}
        self._ids: dict[Connection, NodeId] = {}
        self.turned: Callable[[], None] | None = None
        """Called after each turn."""

    def __contains__(self, id: NodeId) -> bool:
        return id in self._by_id

    def add(self, id: NodeId, wire: Connection, further: tuple[type[Message], ...] = ()) -> None:
        """Add a connection that this worker has opened; `further`: message types of the strategy."""
        self._name(id, wire, further)
        wire.trust()
        self.loop.add(wire)

    def call(
        self,
        id: NodeId,
        wire: Connection,
        tls: ssl.SSLSocket | None,
        hello: Frame,
        further: tuple[type[Message], ...] = (),
        fd: int | None = None,
    ) -> None:
        """Add a connection whose TLS handshake is still to come, and send `hello` first; `fd`: goes along with it."""
        self._name(id, wire, further)
        wire.trust()
        if fd is None:
            self.send(id, hello)
        else:
            self._send_with(id, wire, hello, fd)
        if id in self:
            self.loop.call(wire, tls)

    def known(self, id: NodeId, wire: Connection, further: tuple[type[Message], ...] = (), limit: int = HEADER) -> None:
        """Add an accepted connection whose peer has identified itself."""
        self._name(id, wire, further)
        self.loop.known(wire, limit)

    def _name(self, id: NodeId, wire: Connection, further: tuple[type[Message], ...]) -> None:
        wire.further = further
        self._by_id[id] = wire
        self._ids[wire] = id

    @property
    def waiting(self) -> bool:
        """Do bytes wait to be sent on any connection?"""
        return self.loop.waiting

    @property
    def received(self) -> int:
        """How many bytes have been read from the present connections."""
        return sum(wire.received for wire in self._ids)

    @property
    def delivered(self) -> bool:
        """Has everything that was sent arrived at the other hosts?"""
        return not self.waiting and not any(map(unacknowledged, self._ids))

    def waits(self, id: NodeId) -> bool:
        """Do bytes wait to be sent to this node?"""
        return id in self._by_id and self._by_id[id].waiting

    def is_away(self, id: NodeId) -> bool:
        """Has this node died, and may it be started again?"""
        return id in self._by_id and self._by_id[id].away

    def returns(self, id: NodeId) -> int:
        """How many times this node was started again."""
        return self._by_id[id].returns if id in self._by_id else 0

    def use(self, id: NodeId) -> ConnectionUse | None:
        """What the kernel has counted of the connection to this node; None if it does not say."""
        return connection_use(self._by_id[id]) if id in self._by_id else None

    def fileno(self) -> int:
        """Readable when there is something to read or write."""
        return self.loop.fileno()

    def send(self, to: NodeId, message: Frame, payload: memoryview | None = None, *, lasting: bool = True) -> None:
        """Send a frame; a `lasting` payload does not change until the peer has answered, so it is not copied."""
        wire, reason = self._by_id[to], None
        try:
            wire.send(message, payload, lasting=lasting)
        except OSError as error:
            reason = str(error)
        if reason is not None:
            self._forget(wire)
            self.loop.drop(wire)
            self._reader.lost(to, reason)
        elif wire.waiting:
            self.loop.write(wire)

    def _send_with(self, to: NodeId, wire: Connection, hello: Frame, fd: int) -> None:
        reason = None
        try:
            wire.send_with(hello, fd)
        except OSError as error:
            reason = str(error)
        if reason is not None:
            self._forget(wire)
            self.loop.drop(wire)
            self._reader.lost(to, reason)

    def end(self, id: NodeId) -> None:
        """Close a connection without telling the reader."""
        wire = self._by_id.get(id)
        if wire is not None:
            self._forget(wire)
            self.loop.drop(wire)

    def turn(self, seconds: float) -> None:
        """Wait for at most this many seconds, then read and write what is possible."""
        self.loop.turn(seconds)
        if self.turned is not None:
            self.turned()

    def look(self, liveness: TcpLiveness, now: float) -> None:
        """Close the connections to hosts that have died."""
        for wire in list(self._ids):
            if liveness.gone(wire, now):
                self.loop.lose(wire, "its host no longer acknowledges data")

    def close(self) -> None:
        for wire in list(self._ids):
            wire.cut()  # a forked process (of a data loader) may hold the socket as well
        self._by_id.clear()
        self._ids.clear()
        self.loop.close()

    def _forget(self, wire: Connection) -> None:
        id = self._ids.pop(wire, None)
        if id is not None and self._by_id.get(id) is wire:
            del self._by_id[id]

    # The event loop calls these (`LoopOwner`).

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        id = self._ids.get(wire)
        if id is None:
            raise PeerError(f"it sent {type(message).__name__} with a payload before it identified itself")
        return self._reader.sink(id, message, size)

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        id = self._ids.get(wire)
        if id is None:
            self._reader.greet(wire, message)
        else:
            self._reader.take(id, message, payload)

    def broke(self, wire: Connection, error: PeerError) -> None:
        id = self._ids.get(wire)
        if id is None:
            self.loop.drop(wire)
        else:
            self._reader.broke(id, error)

    def closed(self, wire: Connection, reason: str) -> None:
        id = self._ids.get(wire)
        if id is not None:
            self._forget(wire)
            self._reader.lost(id, reason or ENDED)
