"""The messages of a strategy between the servers of one model.

1. A server sends over a connection that it has opened itself, and receives over those that the others have opened. So
   two servers that connect to each other at the same time need not agree on one connection.
2. It connects when its node first has a message for the other server; messages wait until it is connected. If it cannot
   connect, or the connection ends, these messages are lost: the node sends again what is not acknowledged.
3. A connection to a server that the view does not name any more is closed, and messages to it are dropped.
4. The size of a payload is checked before memory is allocated. The node checks everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from syncline.effects import Received
from syncline.engines.net.connection import Connection
from syncline.engines.net.frames import Frame
from syncline.engines.server.worker_peer import Out
from syncline.errors import PeerError
from syncline.layout import Payload
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
    ) -> None:
        """`opened`: the connections that this server has opened, shared with the
        process. `call`: connect, and call a function with the problem, or ""."""
        self._strategy = strategy
        self._opened = opened
        self._out = out
        self._call = call
        self._drop = drop
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
            self._drop(wire)

    def send(self, number: int, message: Message, payload: Payload | None) -> None:
        if number not in self._named:
            return
        if payload is not None:
            assert payload.nbytes <= PAYLOAD, "a bucket is much smaller than a frame"
            self.sent_bytes += payload.nbytes
        wire = self._opened.get(number)
        if wire is not None:
            self._out(wire, message, None if payload is None else payload.data)
            return
        calling = number in self._waiting
        kept = None if payload is None else payload.copy()
        self._waiting.setdefault(number, []).append(_Unsent(message, kept))
        if not calling:
            self._call(number, lambda problem: self._called(number, problem))

    def _called(self, number: int, problem: str) -> None:
        waiting, wire = self._waiting.pop(number, []), self._opened.get(number)
        if wire is None or problem:
            return  # the node sends them again
        for message, payload in waiting:
            self._out(wire, message, None if payload is None else payload.data, lasting=True)

    # Receiving.

    def accepts(self, message: Frame) -> bool:
        return type(message) in self._strategy.messages

    def sink(self, message: Frame, size: int) -> memoryview:
        """Return memory for the payload of another server's message."""
        if not isinstance(message, Message) or not self.accepts(message):
            raise PeerError(f"it sent {type(message).__name__} with a payload")
        self._strategy.payload_type(message, size)
        return memoryview(bytearray(size))

    def received(self, number: int, message: Message, data: memoryview | None) -> Received:
        """Another server's message, with the values in its payload."""
        payload = None if data is None else np.frombuffer(data, self._strategy.payload_type(message, data.nbytes))
        return Received(server_id(number), message, payload)
