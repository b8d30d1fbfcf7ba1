"""Memory that a server shares with another one on its host: a place for the payload of each message and bucket.

1. The server that connects makes the segment and sends its file descriptor with its first frame. Only it writes.
2. A payload is copied to its place, unless the node has written it there (`room`). Then `Laid` and the message follow
   over the connection. The receiver reads the payload in place, while its node handles the message, and answers with
   `Lifted`: the place is free again.
3. A payload whose place is not free, or which is too large for it, travels over the connection.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np

from syncline.codecs import Bytes
from syncline.engines.net.connection import Connection
from syncline.engines.net.shared_memory import LaneMemory, map_segment, new_segment
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values
from syncline.messages import Message

PlacedMessages = Mapping[type[Message], int]
"""The messages whose payloads have a place, each with the bytes of the place for each value of the bucket."""


class ServerMemory:
    """One end of the memory from one server to another."""

    def __init__(self, memory: LaneMemory, placed: PlacedMessages, values: int) -> None:
        self._memory = memory.everything
        self._placed = placed
        self._values = values
        starts = np.cumsum([0, *placed.values()])
        self._starts = {kind: int(start) * values for kind, start in zip(placed, starts, strict=False)}
        self._full: dict[tuple[type[Message], Bucket], None] = {}
        """The places that the receiver has not read yet, in order."""
        self._laid = 0

    def lay(self, message: Message, payload: Payload) -> bool:
        """Copy a payload to its place, if that is possible and it is not there."""
        bucket, each = getattr(message, "bucket", None), self._placed.get(type(message), 0)
        if bucket is None or payload.nbytes > each * bucket.size or (type(message), bucket) in self._full:
            return False
        place = self._place(type(message), bucket, payload.nbytes)
        if place.ctypes.data != payload.ctypes.data:
            place[:] = payload.view(np.uint8)
        self._full[type(message), bucket] = None
        return True

    def room(self, kind: type[Message], bucket: Bucket) -> Values | None:
        """The place of the next message of this kind as float32; None if the last one is not read yet."""
        if (kind, bucket) in self._full:
            return None
        return self._place(kind, bucket, VALUE_BYTES * bucket.size).view(np.float32)

    def lifted(self) -> None:
        """The receiver has read the payload that was laid first."""
        if not self._full:
            raise PeerError("it has read a payload that was not in shared memory")
        del self._full[next(iter(self._full))]

    def laid(self, size: int) -> None:
        """The sender has written this many bytes for its next message."""
        if self._laid or not size:
            raise PeerError(f"it announced a payload of {size:,} bytes in shared memory, which it may not")
        self._laid = size

    def take(self, message: object) -> Bytes | None:
        """What the sender has written for this message; None: nothing."""
        size, self._laid = self._laid, 0
        if not size:
            return None
        bucket = getattr(message, "bucket", None)
        if not isinstance(message, Message) or not isinstance(bucket, Bucket):
            raise PeerError(f"it sent {type(message).__name__} with a payload in shared memory")
        if bucket.stop > self._values or size > self._placed.get(type(message), 0) * bucket.size:
            raise PeerError(f"it sent {type(message).__name__} with {size:,} bytes in shared memory")
        return self._place(type(message), bucket, size)

    def _place(self, kind: type[Message], bucket: Bucket, size: int) -> Bytes:
        start = self._starts[kind] + self._placed[kind] * bucket.start
        return self._memory[start : start + size]


def _halves(placed: PlacedMessages, values: int) -> int:
    """The values in each half of a segment that is large enough."""
    return -(-sum(placed.values()) * values // (2 * VALUE_BYTES))


def share(placed: PlacedMessages, values: int) -> tuple[ServerMemory, int]:
    """Make a segment for a model of this many values; return it and its file descriptor, which the caller closes."""
    size = _halves(placed, values)
    fd = new_segment(size)
    try:
        return ServerMemory(LaneMemory(size, fd), placed, values), fd
    except OSError:
        os.close(fd)
        raise


def accept(wire: Connection, placed: PlacedMessages, values: int) -> ServerMemory | None:
    """The memory whose descriptor came with the first frame of this connection; None if none came."""
    if not wire.fds or not placed:
        return None
    return ServerMemory(map_segment(wire.fds[0], _halves(placed, values)), placed, values)
