"""The initial parameters of a model, for a server that joins and will hold the whole model.

1. A server that joins asks one of the others for them (`TakeFirst`), over the connection that it has opened. If that
   server is gone before it has sent them all, the joining one asks another.
2. A server answers with one `First` for each bucket, as soon as it has the initial parameters itself.
3. The receiver checks each frame before it allocates memory: it has asked this server, it lacks this bucket, and the
   size fits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import First, TakeFirst
from syncline.engines.server.worker_peer import Out
from syncline.errors import PeerError, RunError
from syncline.layout import VALUE_BYTES, Bucket, Values


class FirstInbox:
    """What this server gets when it joins; `pieces`: the arrays for it."""

    def __init__(self, pieces: Mapping[Bucket, Values], givers: Iterable[int]) -> None:
        """`givers`: the servers that can be asked."""
        self._pieces = pieces
        self._missing = set(pieces)
        self._givers = list(givers)
        self._asked: int | None = None

    @property
    def complete(self) -> bool:
        return not self._missing

    def ask(self, connected: Mapping[int, Connection], out: Out) -> None:
        """Ask the next server, unless everything is there; `RunError` if none is left."""
        if self.complete:
            return
        there = [number for number in self._givers if number in connected]
        if not there:
            raise RunError("every server that could give the initial parameters is gone")
        self._asked = there[0]
        out(connected[there[0]], TakeFirst())

    def lost(self, number: int) -> bool:
        """A connection has ended; returns whether another server must be asked."""
        self._givers = [each for each in self._givers if each != number]
        asked = self._asked == number and not self.complete
        self._asked = None if asked else self._asked
        return asked

    def check(self, number: int, message: First, size: int) -> None:
        """Raise `PeerError` unless this server was asked for this bucket, and the payload has its size."""
        if number != self._asked or message.bucket not in self._missing:
            raise PeerError(f"it sent initial parameters of {message.bucket}, which are not expected from it")
        if size != message.bucket.size * VALUE_BYTES:
            raise PeerError(f"it sent initial parameters of {message.bucket} in {size:,} bytes")

    def take(self, number: int, message: First, payload: memoryview | None) -> None:
        """Keep the values; `check` has allowed a payload."""
        if payload is None:
            raise PeerError(f"it sent initial parameters of {message.bucket} without a payload")
        self.check(number, message, payload.nbytes)
        self._pieces[message.bucket][:] = np.frombuffer(payload, np.float32)
        self._missing.discard(message.bucket)


def give_first(wires: Collection[Connection], pieces: Mapping[Bucket, Values], out: Out) -> None:
    """Send the initial parameters, which do not change any more, over these connections."""
    for wire in wires:
        for bucket in sorted(pieces):
            out(wire, First(bucket), pieces[bucket].data, lasting=True)
