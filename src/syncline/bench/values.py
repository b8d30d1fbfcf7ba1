"""Updates with a known sum, to check that every system computes the right result."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from syncline.errors import RunError

Values = NDArray[np.float32]

_PERIOD = 251
"""The values repeat with this period. It is a prime, so that a range in the wrong place is detected."""

_REPEATS = 4096


def fill(out: Values, worker: int) -> None:
    """Write the update of a worker: (1, 2, ..., 251, 1, 2, ...) * (worker + 1)."""
    for block, wanted in _blocks(out, worker + 1):
        np.copyto(block, wanted)


def check_sum(result: Values, workers: int) -> None:
    """Raise RunError unless this is the sum of the updates of this many workers; exact for up to 364 workers."""
    at = 0
    for block, wanted in _blocks(result, workers * (workers + 1) // 2):
        if not np.array_equal(block, wanted):
            first = int(np.argmax(block != wanted))
            raise RunError(f"value {at + first} of the sum is {block[first]} instead of {wanted[first]}")
        at += len(block)


def _blocks(values: Values, factor: int) -> Iterator[tuple[Values, Values]]:
    """The array in pieces, each with its expected values. (One expected array of full size would need more memory.)"""
    repeats = min(_REPEATS, len(values) // _PERIOD + 1)
    pattern = np.tile(np.arange(1, _PERIOD + 1, dtype=np.float32) * np.float32(factor), repeats)
    for start in range(0, len(values), len(pattern)):
        block = values[start : start + len(pattern)]
        yield block, pattern[: len(block)]
