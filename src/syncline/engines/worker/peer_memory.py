"""Memory that two workers on one host share: each has a place for one payload to the other.

1. The worker that connects makes the segment and sends its file descriptor with its first frame. It writes to the first
   half of the segment and reads from the second; the other worker does the opposite.
2. A payload is copied to its place, and `Laid` and the message follow over the connection. The receiver reads the
   payload in place, while its node handles the message, and then answers with `Lifted`: the place is free again.
3. A payload for which the place is not free travels over the connection.
"""

from __future__ import annotations

import os

import numpy as np

from syncline.codecs import Bytes
from syncline.engines.net.connection import Connection
from syncline.engines.net.shared_memory import LaneMemory, map_segment, new_segment
from syncline.errors import PeerError
from syncline.layout import Payload, Values


class PeerMemory:
    """The memory that this worker shares with one other worker."""

    def __init__(self, out: Values, into: Values) -> None:
        self._out, self._into = out.view(np.uint8), into.view(np.uint8)
        self.full = False
        """Whether the other worker has not read the last payload yet."""
        self._laid = 0

    def lay(self, payload: Payload) -> int:
        """Copy a payload to its place; return its size in bytes."""
        data = payload.view(np.uint8)
        self._out[: data.size] = data
        self.full = True
        return int(data.size)

    def laid(self, size: int) -> None:
        """The other worker has written this many bytes for its next message."""
        if self._laid or not 0 < size <= self._into.size:
            raise PeerError(f"it announced a payload of {size:,} bytes in shared memory, which it may not")
        self._laid = size

    def take(self) -> Bytes | None:
        """What the other worker has written for the present message; None if that has no payload here."""
        size, self._laid = self._laid, 0
        return self._into[:size] if size else None


def share(values: int) -> tuple[PeerMemory, int]:
    """Make a segment for a model of this many values; return it and its file descriptor, which the caller closes."""
    fd = new_segment(values)
    memory = LaneMemory(values, fd)
    return PeerMemory(memory.updates, memory.params), fd


def accept(wire: Connection, values: int) -> PeerMemory | None:
    """The memory whose descriptor came with the first frame of this connection; None if none came."""
    if not wire.fds or not values:
        return None
    memory = map_segment(wire.fds[0], values)
    return PeerMemory(memory.params, memory.updates)


def close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
