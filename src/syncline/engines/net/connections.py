"""The wires of one worker: all its connections, read and written together.

1. One thread at a time may use them (background_thread.py says which).
2. A wire that has ended is taken out before anybody is told.
"""

from __future__ import annotations

import select
from typing import Protocol

from syncline.engines.net.connection import Connection
from syncline.engines.net.frames import Frame
from syncline.engines.net.tcp_liveness import TcpLiveness
from syncline.errors import PeerError
from syncline.messages import NodeId


class ConnectionReader(Protocol):
    """Whoever is told what comes in."""

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        """Where a payload of so many bytes goes, or `PeerError`."""
        ...

    def take(self, source: NodeId, message: Frame, carried: bool) -> None:
        """A frame is there, and its payload too if it carried one."""
        ...

    def broke(self, source: NodeId, error: PeerError) -> None:
        """Somebody sent what nobody may send."""
        ...

    def lost(self, id: NodeId, reason: str) -> None:
        """A connection has ended."""
        ...


class Connections:
    """Connections by who is at the other end."""

    def __init__(self, reader: ConnectionReader) -> None:
        self._reader = reader
        self._poll = select.poll()
        self._by_fd: dict[int, tuple[Connection, NodeId]] = {}
        self._by_id: dict[NodeId, Connection] = {}
        self._done: list[NodeId] = []

    def __contains__(self, id: NodeId) -> bool:
        return id in self._by_id

    def add(self, id: NodeId, wire: Connection) -> None:
        wire.trust()
        self._by_fd[wire.fileno()] = (wire, id)
        self._by_id[id] = wire
        self._poll.register(wire.fileno(), select.POLLIN)

    @property
    def waiting(self) -> bool:
        """Is there something that a socket has not taken yet?"""
        return any(wire.waiting for wire, _ in self._by_fd.values())

    def wanted(self) -> list[tuple[int, int]]:
        """What to poll for: descriptors, and events of each."""
        return [
            (fd, select.POLLIN | select.POLLOUT if wire.waiting else select.POLLIN)
            for fd, (wire, _) in self._by_fd.items()
        ]

    def send(self, to: NodeId, message: Frame, payload: memoryview | None = None) -> None:
        """Send a frame; the payload stays as it is until it is answered."""
        try:
            self._by_id[to].send(message, payload, lasting=True)
            return
        except OSError as error:
            reason = str(error)
        self._drop(to, reason)

    def end(self, id: NodeId) -> None:
        """Close a connection without a word to anybody; at the next turn, since it may be read just now."""
        self._done.append(id)

    def _end(self) -> None:
        for id in self._done:
            if id in self._by_id:
                self._close(id)
        self._done.clear()

    def turn(self, timeout: float) -> None:
        """Wait for at most so many milliseconds, and read and write what can be."""
        if self._done:
            self._end()
        blocked = [wire for wire, _ in self._by_fd.values() if wire.waiting]
        for wire in blocked:
            self._poll.modify(wire.fileno(), select.POLLIN | select.POLLOUT)
        ready = self._poll.poll(timeout)
        for wire in blocked:
            if wire.fileno() >= 0:
                self._poll.modify(wire.fileno(), select.POLLIN)
        for fd, what in ready:
            if fd not in self._by_fd:
                continue
            wire, id = self._by_fd[fd]
            if what & select.POLLOUT:
                self._flush(wire, id)
            if what & ~select.POLLOUT and wire.fileno() >= 0:
                self._read(wire, id)

    def look(self, silence: TcpLiveness, now: float) -> None:
        """Is one of the hosts gone without a word?"""
        for wire, id in list(self._by_fd.values()):
            if silence.gone(wire, now):
                self._drop(id, "its host acknowledges nothing")

    def close(self) -> None:
        for fd, (wire, _) in self._by_fd.items():
            self._poll.unregister(fd)
            wire.cut()  # also where a process that was forked (a loader's) holds the socket too
            wire.close()
        self._by_fd.clear()
        self._by_id.clear()

    def _flush(self, wire: Connection, id: NodeId) -> None:
        try:
            wire.flush()
            return
        except OSError as error:
            reason = str(error)
        self._drop(id, reason, wire)

    def _read(self, wire: Connection, id: NodeId) -> None:
        try:
            for message, payload in wire.receive(lambda message, size: self._reader.sink(id, message, size)):
                self._reader.take(id, message, payload is not None)
            return
        except EOFError:
            reason = "its connection ended"
        except OSError as error:
            reason = str(error)
        except PeerError as error:
            self._reader.broke(id, error)
            return
        self._drop(id, reason, wire)

    def _drop(self, id: NodeId, reason: str, wire: Connection | None = None) -> None:
        """A connection is lost; `wire`: this one, unless it was found out while it was read: an answer did not go."""
        if wire is not None and self._by_id.get(id) is not wire:
            return
        self._close(id)
        self._reader.lost(id, reason)

    def _close(self, id: NodeId) -> None:
        wire = self._by_id.pop(id)
        self._poll.unregister(wire.fileno())
        del self._by_fd[wire.fileno()]
        wire.close()
