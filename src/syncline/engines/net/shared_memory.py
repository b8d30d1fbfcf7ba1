"""A worker's memory: its update and its parameters, one after the other, in a segment that the servers can map.

Behind them is a byte for each value, of which only those at the start of a bucket are used: a server marks a bucket
there before it writes parameters, so that the worker knows what is incomplete if the server dies. The kernel allocates
only the pages that are used.

The segment is anonymous (memfd): it has no name, and the kernel frees it with the last process that maps it. Its size
is sealed: if a process could shrink it, every other process that maps it would crash.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress

import numpy as np

from syncline.codecs import Bytes
from syncline.effects import Deliver, How
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values

_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEAL, _SHRINK, _GROW = 1, 2, 4
_REPLACE, _ZERO = How.REPLACE, How.ZERO  # enum members are slow to look up


class LaneMemory:
    """Two arrays of the model's size: the worker writes `updates`, and the servers write `params`."""

    def __init__(self, values: int, fd: int | None = None) -> None:
        """`fd`: a shared segment; None: private memory, of which the kernel allocates only the pages that are used."""
        length = max(2 * values * VALUE_BYTES, 1) if fd is None else _segment_bytes(values)
        self._map = mmap.mmap(-1, length) if fd is None else mmap.mmap(fd, length)
        if fd is None:
            with suppress(OSError):  # a kernel without huge pages works as well, but slower
                self._map.madvise(mmap.MADV_HUGEPAGE)
        self.everything: Bytes = np.frombuffer(self._map, np.uint8, 2 * values * VALUE_BYTES)
        both = self.everything.view(np.float32)
        self.updates: Values = both[:values]
        self.params: Values = both[values:]
        self._marks = None if fd is None else memoryview(self._map)[2 * values * VALUE_BYTES :]
        self._updates: dict[Bucket, Values] = {}
        self._params: dict[Bucket, Values] = {}
        """The memory of each bucket that was asked for: the same array each time, so that it is quick to recognise."""

    def update(self, bucket: Bucket) -> Values:
        found = self._updates.get(bucket)
        if found is None:
            found = self._updates[bucket] = self.updates[bucket.start : bucket.stop]
        return found

    def param(self, bucket: Bucket) -> Values:
        found = self._params.get(bucket)
        if found is None:
            found = self._params[bucket] = self.params[bucket.start : bucket.stop]
        return found

    def mark(self, bucket: Bucket) -> None:
        """The server is about to write parameters of this bucket."""
        if self._marks is not None:
            self._marks[bucket.start] = 1

    def unmark(self, bucket: Bucket) -> None:
        """The worker knows that these parameters are complete."""
        if self._marks is not None:
            self._marks[bucket.start] = 0

    def is_marked(self, bucket: Bucket) -> bool:
        return self._marks is not None and bool(self._marks[bucket.start])

    def lay(self, bucket: Bucket, payload: Payload) -> Payload:
        """Copy an update to its place, unless it is there already; return the place.

        An update that a gate held back, or that a codec wrote, is somewhere else.
        """
        place: Payload = self.update(bucket)
        if payload is not place and not np.may_share_memory(place, payload):
            if payload.dtype != place.dtype:
                place = place.view(np.uint8)[: payload.size]
            place[:] = payload
        return place

    def deliver(self, deliver: Deliver) -> None:
        """Change the parameters of a bucket as a node asks for."""
        place, payload = self.param(deliver.bucket), deliver.payload
        if deliver.how is _REPLACE:
            if payload is not None and payload is not place:
                self.take_over(deliver.bucket, payload)
        elif deliver.how is _ZERO:
            place[:] = 0
        elif payload is not None:
            np.add(place, payload, place)

    def take_over(self, bucket: Bucket, values: Payload) -> None:
        """Copy parameters to their place, unless they arrived there."""
        place = self.param(bucket)
        if not np.may_share_memory(place, values):
            place[:] = values


def new_segment(values: int) -> int:
    """Make a segment, seal its size, and return its file descriptor."""
    fd = os.memfd_create("syncline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, _segment_bytes(values))
    fcntl.fcntl(fd, _F_ADD_SEALS, _SHRINK | _GROW | _SEAL)
    return fd


def map_segment(fd: int, values: int) -> LaneMemory:
    """Map a segment that another process has made; `PeerError` if it is not a valid one."""
    try:
        seals, size = fcntl.fcntl(fd, _F_GET_SEALS), os.fstat(fd).st_size
    except OSError as error:
        raise PeerError(f"it sent a file descriptor that is not a memory segment: {error.strerror}") from None
    if size != _segment_bytes(values) or seals & (_SHRINK | _GROW) != _SHRINK | _GROW:
        needed = _segment_bytes(values)
        raise PeerError(f"it sent a segment of {size:,} bytes; this model needs {needed:,} bytes with a sealed size")
    try:
        return LaneMemory(values, fd)
    except OSError as error:
        raise PeerError(f"its segment cannot be mapped: {error.strerror}") from None


def _segment_bytes(values: int) -> int:
    return max(values * (2 * VALUE_BYTES + 1), 1)
