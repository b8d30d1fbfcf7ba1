"""Encode the positions of the sent values: increasing integers, with the Elias-Fano code.

A position takes about log2(values / count) + 2 bits.

1. The lowest l = floor(log2(values / count)) bits of each position are written unchanged.
2. The higher bits, `high`, increase slowly from 0 to values >> l. They are written as a bit array in which bit
   high[i] + i is set for the i-th position.

The size depends only on the two counts. If one value in a hundred is sent, a position takes about one byte.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.codecs.planes import pack, packed_bytes, unpack
from syncline.codecs.protocol import Bytes
from syncline.errors import PeerError

Positions = np.ndarray[Any, np.dtype[np.intp]]


def index_bytes(count: int, values: int) -> int:
    """The number of bytes of `count` positions among `values` values; 0 if the counts alone determine them."""
    if count in (0, values):
        return 0
    low = _low_bits(count, values)
    return sum(packed_bytes(count, bits) for _, bits in _bytes_of(low)) + -(-_row(count, values, low) // 8)


def write_indices(positions: Positions, values: int, out: Bytes) -> None:
    """Write increasing positions to `out`, which has `index_bytes` bytes."""
    count = positions.size
    if count in (0, values):
        return
    low, used = _low_bits(count, values), 0
    for shift, bits in _bytes_of(low):
        size = packed_bytes(count, bits)
        pack((positions >> shift).astype(np.uint8)[None], bits, out[None, used : used + size])
        used += size
    row = np.zeros(_row(count, values, low), np.uint8)
    row[(positions >> low) + np.arange(count)] = 1
    out[used:] = np.packbits(row, bitorder="little")


def read_indices(written: Bytes, count: int, values: int) -> Positions:
    """The positions; PeerError unless they increase and are below `values`."""
    if count in (0, values):
        return np.arange(count)
    low, used = _low_bits(count, values), 0
    lowest = np.zeros(count, np.intp)
    for shift, bits in _bytes_of(low):
        size = packed_bytes(count, bits)
        numbers = unpack(written[None, used : used + size], bits, count)[0]
        lowest |= numbers.astype(np.intp) << shift
        used += size
    row = np.unpackbits(written[used:], count=_row(count, values, low), bitorder="little")
    high = np.flatnonzero(row.view(np.bool_))
    if high.size != count:
        raise PeerError(f"a payload has {high.size} positions instead of {count}")
    high -= np.arange(count)
    positions: Positions = (high << low) | lowest
    if positions[-1] >= values or (positions[1:] <= positions[:-1]).any():
        raise PeerError(f"the positions in a payload do not increase, or are not below {values}")
    return positions


def _bytes_of(low: int) -> list[tuple[int, int]]:
    """Split the lowest bits into bytes: (shift, number of bits) of each."""
    return [(shift, min(8, low - shift)) for shift in range(0, low, 8)]


def _low_bits(count: int, values: int) -> int:
    return (values // count).bit_length() - 1


def _row(count: int, values: int, low: int) -> int:
    return count + ((values - 1) >> low)
