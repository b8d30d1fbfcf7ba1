"""Which values were sent: increasing positions in about log2(values / count) + 2 bits each (Elias and Fano).

Of each position the lowest l = floor(log2(values / count)) bits are written as they are. The rest, `high`, increases
slowly from 0 to values >> l: a row of bits in which bit high[i] + i is set for the i-th position says it all. So the
size follows from the two counts alone, and for one value in a hundred it is a byte a position.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from syncline.codecs.planes import pack, packed_bytes, unpack
from syncline.codecs.protocol import Bytes
from syncline.errors import PeerError

Positions = np.ndarray[Any, np.dtype[np.intp]]


def index_bytes(count: int, values: int) -> int:
    """The bytes of so many positions among so many values; none if nothing is left to say."""
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
    """The positions; PeerError unless they increase and lie within the values."""
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
        raise PeerError(f"a payload names {high.size} positions instead of {count}")
    high -= np.arange(count)
    positions: Positions = (high << low) | lowest
    if positions[-1] >= values or (positions[1:] <= positions[:-1]).any():
        raise PeerError(f"a payload names positions that do not increase within {values} values")
    return positions


def _bytes_of(low: int) -> list[tuple[int, int]]:
    """The lowest bits as bytes: by how much each is shifted, and how many bits it has."""
    return [(shift, min(8, low - shift)) for shift in range(0, low, 8)]


def _low_bits(count: int, values: int) -> int:
    return (values // count).bit_length() - 1


def _row(count: int, values: int, low: int) -> int:
    return count + ((values - 1) >> low)
