"""A worker's memory: its update and its parameters, side by side, in a segment that its shards can map.

The segment is anonymous (memfd): it has no name, and is gone with the last process that maps it. Its size is sealed, so
that nobody who maps it can be hurt by another who shortens it.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from contextlib import suppress

import numpy as np

from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values

_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034
_SEAL, _SHRINK, _GROW = 1, 2, 4


class LaneMemory:
    """Two arrays of the model's size: `updates`, which the worker writes, and `params`, which its shards write."""

    def __init__(self, values: int, fd: int | None = None) -> None:
        """`fd`: a shared segment; None: memory of this process alone, of which only what is touched is taken."""
        length = max(2 * values * VALUE_BYTES, 1)
        self._map = mmap.mmap(-1, length) if fd is None else mmap.mmap(fd, length)
        if fd is None:
            with suppress(OSError):  # a kernel without large pages does as well, only slower
                self._map.madvise(mmap.MADV_HUGEPAGE)
        both = np.frombuffer(self._map, np.float32, 2 * values)
        self.updates: Values = both[:values]
        self.params: Values = both[values:]

    def update(self, bucket: Bucket) -> Values:
        return self.updates[bucket.start : bucket.stop]

    def param(self, bucket: Bucket) -> Values:
        return self.params[bucket.start : bucket.stop]

    def lay(self, bucket: Bucket, payload: Payload) -> Payload:
        """Put an update in its place, unless it lies there: one that was held, or that a codec has written."""
        place: Payload = self.update(bucket)
        if not np.may_share_memory(place, payload):
            if payload.dtype != place.dtype:
                place = place.view(np.uint8)[: payload.size]
            place[:] = payload
        return place

    def take_over(self, bucket: Bucket, values: Payload) -> None:
        """Put parameters where the program finds them, unless they came in there."""
        place = self.param(bucket)
        if not np.may_share_memory(place, values):
            place[:] = values


def new_segment(values: int) -> int:
    """The descriptor of a new segment, of sealed size."""
    fd = os.memfd_create("syncline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, max(2 * values * VALUE_BYTES, 1))
    fcntl.fcntl(fd, _F_ADD_SEALS, _SHRINK | _GROW | _SEAL)
    return fd


def map_segment(fd: int, values: int) -> LaneMemory:
    """Map a segment that another process has made, if it is what it should be."""
    try:
        seals, size = fcntl.fcntl(fd, _F_GET_SEALS), os.fstat(fd).st_size
    except OSError as error:
        raise PeerError(f"a descriptor that is no segment: {error.strerror}") from None
    if size != max(2 * values * VALUE_BYTES, 1) or seals & (_SHRINK | _GROW) != _SHRINK | _GROW:
        raise PeerError(f"a segment of {size:,} bytes; this model needs {2 * values * VALUE_BYTES:,}, sealed")
    try:
        return LaneMemory(values, fd)
    except OSError as error:
        raise PeerError(f"a segment that cannot be mapped: {error.strerror}") from None
