"""Select the values with the largest magnitudes without sorting.

A sample gives an approximate cut, one pass collects the values above it, and an exact selection among them follows.
Magnitudes are compared by their bits as integers, which have the same order. NaN counts as the largest, so that it is
sent and noticed instead of kept.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, sqrt
from typing import Any

import numpy as np

from syncline.codecs.indices import Positions
from syncline.layout import Values

Sizes = np.ndarray[Any, np.dtype[np.uint32]]

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_AT_ONCE = 1 << 15
"""How many values are compared at once, so that their magnitudes stay in the cache."""
_FEW = 1 << 15
"""Up to this many values are partitioned directly, without a sample."""
_TURN = (sqrt(5) - 1) / 2


def largest_positions(values: Values, count: int) -> Positions:
    """The positions of the `count` largest magnitudes, in increasing order; among equal ones the first positions."""
    if count == values.size:
        return np.arange(count)
    if values.size <= _FEW or 4 * count > values.size:
        return _at_the_cut(values, count)
    most = 4 * count + 8192
    found = at_least(values, _guess(values, count), most)
    if not count <= found.size <= most:  # the sample was not representative, or very many values are equal
        return _at_the_cut(values, count)
    return _among(found, _sizes(values[found]), count)


def at_least(values: Values, cut: int, most: int | None = None) -> Positions:
    """The positions of magnitudes >= cut, in increasing order; it stops early after more than `most`."""
    found, size = [np.empty(0, np.intp)], 0
    for start, sizes in _pieces(values):
        found.append(np.flatnonzero(sizes >= np.uint32(cut)) + start)
        size += found[-1].size
        if most is not None and size > most:
            break
    return np.concatenate(found)


def size_of(value: float) -> int:
    """The integer by which the magnitude of this value is compared."""
    return int(_sizes(np.array([value], np.float32))[0])


def _pieces(values: Values) -> Iterator[tuple[int, Sizes]]:
    """(start, magnitudes) of one piece after another; all pieces use the same memory."""
    room = np.empty(min(values.size, _AT_ONCE), np.uint32)
    bits = values.view(np.uint32)
    for start in range(0, values.size, _AT_ONCE):
        piece = bits[start : start + _AT_ONCE]
        yield start, np.bitwise_and(piece, _MAGNITUDE, out=room[: piece.size])


def _guess(values: Values, count: int) -> int:
    """A magnitude that very probably somewhat more than `count` values reach."""
    # One sample from each stretch, at irregular places, so that a period in the values does not distort the sample.
    sample = 1024 if values.size <= 1 << 18 else 4096
    stretches = np.arange(sample, dtype=np.float64)
    turns = stretches * _TURN
    turns -= np.floor(turns)
    places = ((stretches + turns) * (values.size / sample)).astype(np.intp)
    expected = sample * count / values.size
    return _nth_largest(_sizes(values[places]), min(sample, ceil(expected + 3 * sqrt(expected)) + 3))


def _at_the_cut(values: Values, count: int) -> Positions:
    """The same by partitioning all values: all above the smallest selected magnitude, and the first equal to it."""
    cut = _nth_largest(_sizes(values), count)
    above = at_least(values, cut + 1)
    equal, missing = [above], count - above.size
    for start, sizes in _pieces(values):
        equal.append(np.flatnonzero(sizes == np.uint32(cut))[:missing] + start)
        missing -= equal[-1].size
        if not missing:
            break
    return np.sort(np.concatenate(equal))


def _nth_largest(sizes: Sizes, n: int) -> int:
    place = sizes.size - n
    return int(np.partition(sizes, place)[place])


def _among(found: Positions, sizes: Sizes, count: int) -> Positions:
    """The `count` largest of the positions found."""
    cut = np.uint32(_nth_largest(sizes, count))
    keep = sizes > cut
    equal = np.flatnonzero(sizes == cut)
    keep[equal[: count - np.count_nonzero(keep)]] = True
    kept: Positions = found[keep]
    return kept


def _sizes(values: Values) -> Sizes:
    return np.bitwise_and(values.view(np.uint32), _MAGNITUDE)
