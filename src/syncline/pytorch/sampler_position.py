"""How many examples of a sampler the program has really been given.

A DataLoader with worker processes asks the sampler ahead: it takes the indices of batches that the program has not seen
yet. A checkpoint must not skip those.
"""

from __future__ import annotations

import sys
from typing import Any
from weakref import ReferenceType, ref

_DEEP = 8
"""How many calls above the sampler's the loader's iterator is looked for."""


def loader_above() -> ReferenceType[Any] | None:
    """The iterator of the DataLoader that asks now; None if no DataLoader with worker processes does."""
    frame = sys._getframe(1)
    for _ in range(_DEEP):
        if frame.f_back is None:
            return None
        frame = frame.f_back
        me = frame.f_locals.get("self")
        if hasattr(me, "_rcvd_idx"):
            return ref(me)
    return None


def examples_seen(given: int, loader: ReferenceType[Any] | None) -> int:
    """How many of the `given` examples have come to the program."""
    iterator = None if loader is None else loader()
    if iterator is None:
        return given
    size = getattr(getattr(iterator, "_index_sampler", None), "batch_size", None) or 1
    return min(given, int(iterator._rcvd_idx) * size)
