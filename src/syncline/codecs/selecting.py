"""The largest values by magnitude, without sorting: a cut from a sample, one pass to collect, then exactly.

Magnitudes are compared as the whole numbers that their bits are, which order alike; NaN counts as the largest, so
that it is sent and seen rather than kept.
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
_AT_ONCE = 1 << 17
_FEW = 1 << 15
"""So many are partitioned as they are."""
_TURN = (sqrt(5) - 1) / 2


def largest_positions(values: Values, count: int) -> Positions:
    """Where the `count` largest magnitudes are, in order of position; of equal ones the first count."""
    if count == values.size:
        return np.arange(count)
    if values.size <= _FEW or 4 * count > values.size:
        return _at_the_cut(values, count)
    most = 4 * count + 8192
    found = at_least(values, _guess(values, count), most)
    if not count <= found.size <= most:  # the sample has misled us, or very many are equal
        return _at_the_cut(values, count)
    return _among(found, _sizes(values[found]), count)


def at_least(values: Values, cut: int, most: int | None = None) -> Positions:
    """Where magnitudes are as large as the cut, or larger, in order of position; not all, if more than `most`."""
    found, size = [np.empty(0, np.intp)], 0
    for start, sizes in _pieces(values):
        found.append(np.flatnonzero(sizes >= np.uint32(cut)) + start)
        size += found[-1].size
        if most is not None and size > most:
            break
    return np.concatenate(found)


def size_of(value: float) -> int:
    """The number as which a magnitude is compared."""
    return int(_sizes(np.array([value], np.float32))[0])


def _pieces(values: Values) -> Iterator[tuple[int, Sizes]]:
    """The magnitudes, some at a time, each time in the same memory."""
    room = np.empty(min(values.size, _AT_ONCE), np.uint32)
    bits = values.view(np.uint32)
    for start in range(0, values.size, _AT_ONCE):
        piece = bits[start : start + _AT_ONCE]
        yield start, np.bitwise_and(piece, _MAGNITUDE, out=room[: piece.size])


def _guess(values: Values, count: int) -> int:
    """A magnitude that somewhat more than `count` values reach, most probably."""
    # One from each stretch, at places that no period in the values can follow.
    sample = 1024 if values.size <= 1 << 18 else 4096
    stretches = np.arange(sample, dtype=np.float64)
    turns = stretches * _TURN
    turns -= np.floor(turns)
    places = ((stretches + turns) * (values.size / sample)).astype(np.intp)
    expected = sample * count / values.size
    return _nth_largest(_sizes(values[places]), min(sample, ceil(expected + 3 * sqrt(expected)) + 3))


def _at_the_cut(values: Values, count: int) -> Positions:
    """All above the smallest magnitude that is sent, and the first of those that equal it."""
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
    """The largest of a few that were found."""
    cut = np.uint32(_nth_largest(sizes, count))
    keep = sizes > cut
    equal = np.flatnonzero(sizes == cut)
    keep[equal[: count - np.count_nonzero(keep)]] = True
    kept: Positions = found[keep]
    return kept


def _sizes(values: Values) -> Sizes:
    return np.bitwise_and(values.view(np.uint32), _MAGNITUDE)
