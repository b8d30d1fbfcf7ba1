"""The messages of a strategy between the servers of one model.

1. A server sends over a connection that it has opened itself, and receives over those that the others have opened. So
   two servers that connect to each other at the same time need not agree on one connection.
2. It connects when its node first has a message for the other server; messages wait until it is connected. If it cannot
   connect, or the connection ends, these messages are lost: the node sends again what is not acknowledged.
3. A connection to a server that the view does not name any more is closed, and messages to it are dropped.
4. The size of a payload is checked before memory is allocated. The node checks everything else.
5. Servers on one host share memory (server_memory.py), unless the user asks for TCP. Only payloads that a node does not
   keep can be there, and it gets them in place. Over a connection these payloads are received into one buffer per
   connection, which is used again.
6. An entry in the log of a worker's push needs no payload if the backup has mapped the worker's memory
   (mapped_workers.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from syncline.effects import Received
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Laid, Lifted, Mapped
from syncline.engines.net.frames import Frame
from syncline.engines.server import server_memory
from syncline.engines.server.mapped_workers import MappedWorkers
from syncline.engines.server.server_memory import ServerMemory
from syncline.engines.server.worker_peer import Out
from syncline.errors import PeerError
from syncline.layout import Bucket, Payload, Values
from syncline.messages import PAYLOAD, Message, server_id
from syncline.strategies.protocol import Strategy


class _Unsent(NamedTuple):
    message: Message
    payload: Payload | None


class ServerLinks:
    """What this server sends to the other servers, and receives from them."""

    def __init__(
        self,
        strategy: Strategy,
        opened: dict[int, Connection],
        out: Out,
        call: Callable[[int, Callable[[str], None]], None],
        drop: Callable[[Connection], None],
        values: int = 0,
        lost: Callable[[int], None] | None = None,
        mapped: MappedWorkers | None = None,
    ) -> None:
        """`values`: the size of the model. `opened`: the connections that this server has opened, shared with the
        process. `call`: connect, and call a function with the problem, or "". `lost`: called with the number of a
        server that cannot be reached, so that messages to it are lost. `mapped`: workers' memory, if servers have
        backups."""
        self._strategy = strategy
        self._opened = opened
        self._out = out
        self._call = call
        self._drop = drop
        self._values = values
        self._lost = lost
        self._mapped = mapped
        self._memory: dict[Connection, ServerMemory] = {}
        """The memory that is shared over each of these connections."""
        self._buffers: dict[Connection, bytearray] = {}
        """For each connection of another server, the buffer for payloads that the node does not keep."""
        self._named: frozenset[int] = frozenset()
        self._waiting: dict[int, list[_Unsent]] = {}
        """Messages to servers that are being connected."""
        self.sent_bytes = 0

    def adopt(self, servers: frozenset[int]) -> None:
        """Follow a view that names these servers."""
        self._named = servers
        for number in [each for each in self._waiting if each not in servers]:
            self._waiting[number].clear()
        for number in [each for each in self._opened if each not in servers]:
            self.close(number)

    def close(self, number: int) -> None:
        """Close the connection to another server; the next message to it opens another one."""
        wire = self._opened.pop(number, None)
        if wire is not None:
            self.ended(wire)
            self._drop(wire)

    def share(self, wire: Connection) -> int | None:
        """Make memory to share over a connection that this server has opened; return its file descriptor."""
        if not (wire.is_near and self._strategy.placed and self._values):
            return None
        self._memory[wire], fd = server_memory.share(self._strategy.placed, self._values)
        return fd

    def accept(self, wire: Connection) -> None:
        """Another server has connected: take the memory, if there is any, that came with its first frame."""
        if self._mapped is not None:
            self._mapped.tell(wire)
        memory = server_memory.accept(wire, self._strategy.placed, self._values)
        if memory is not None:
            self._memory[wire] = memory

    def ended(self, wire: Connection) -> None:
        """A connection has ended."""
        self._memory.pop(wire, None)
        self._buffers.pop(wire, None)
        if self._mapped is not None:
            self._mapped.ended(wire)

    def send(self, number: int, message: Message, payload: Payload | None) -> None:
        if number not in self._named:
            return
        if payload is not None:
            assert payload.nbytes <= PAYLOAD, "a bucket is much smaller than a frame"
            self.sent_bytes += payload.nbytes
        wire = self._opened.get(number)
        if wire is not None:
            self._transmit(wire, message, payload)
            return
        calling = number in self._waiting
        kept = None if payload is None else payload.copy()
        self._waiting.setdefault(number, []).append(_Unsent(message, kept))
        if not calling:
            self._call(number, lambda problem: self._called(number, problem))

    def _called(self, number: int, problem: str) -> None:
        waiting, wire = self._waiting.pop(number, []), self._opened.get(number)
        if wire is None or problem:
            if self._lost is not None:
                self._lost(number)
            return  # the node sends them again
        for message, payload in waiting:
            self._out(wire, message, None if payload is None else payload.data, lasting=True)

    def _transmit(self, wire: Connection, message: Message, payload: Payload | None) -> None:
        if payload is not None and self._mapped is not None and self._mapped.has(wire, message, payload):
            self._out(wire, message)
            return
        memory = self._memory.get(wire)
        laid = memory is not None and payload is not None and memory.lay(message, payload)
        if laid and payload is not None:
            self._out(wire, Laid(payload.nbytes), gathered=True)
        if laid or (memory is not None and payload is None):
            self._out(wire, message, gathered=True)
            return
        lasting = type(message) in self._strategy.placed
        self._out(wire, message, None if payload is None else payload.data, lasting=lasting)

    def room(self, number: int, kind: type[Message], bucket: Bucket) -> Values | None:
        """Where the next message of this kind to another server can be written; None: nowhere now."""
        wire = self._opened.get(number)
        memory = None if wire is None else self._memory.get(wire)
        return None if memory is None else memory.room(kind, bucket)

    # Receiving.

    def on_memory(self, wire: Connection, message: Laid | Lifted | Mapped) -> None:
        """The other server has written to the memory that we share, has read it, or has mapped a worker's."""
        if isinstance(message, Mapped):
            if self._mapped is None:
                raise PeerError("it sent Mapped, but servers have no backups")
            self._mapped.hear(wire, message)
            return
        memory = self._memory.get(wire)
        if memory is None:
            raise PeerError(f"it sent {type(message).__name__}, but shares no memory")
        if isinstance(message, Laid):
            memory.laid(message.size)
        else:
            memory.lifted()

    def lift(self, wire: Connection) -> None:
        """The node has handled a message whose payload was in shared memory."""
        self._out(wire, Lifted(), gathered=True)

    def read_in_place(self, message: Message) -> memoryview | None:
        """The payload of this message that is in a worker's memory; None: it has none there."""
        return None if self._mapped is None else self._mapped.payload(message)

    def laid(self, wire: Connection, message: Message) -> memoryview | None:
        """The payload of this message that is in shared memory, checked; None: it has none there."""
        memory = self._memory.get(wire)
        found = None if memory is None else memory.take(message)
        if found is None:
            return None
        self._strategy.payload_type(message, found.size)
        return found.data

    def accepts(self, message: Frame) -> bool:
        return type(message) in self._strategy.messages

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        """Return memory for the payload of another server's message."""
        if not isinstance(message, Message) or not self.accepts(message):
            raise PeerError(f"it sent {type(message).__name__} with a payload")
        self._strategy.payload_type(message, size)
        if type(message) not in self._strategy.placed:
            return memoryview(bytearray(size))
        if len(self._buffers.get(wire, b"")) < size:
            self._buffers[wire] = bytearray(size)
        return memoryview(self._buffers[wire])[:size]

    def received(self, number: int, message: Message, data: memoryview | None) -> Received:
        """Another server's message, with the values in its payload."""
        payload = None if data is None else np.frombuffer(data, self._strategy.payload_type(message, data.nbytes))
        return Received(server_id(number), message, payload)
