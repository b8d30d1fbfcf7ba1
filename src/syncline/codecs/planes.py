"""Pack small integers into 1..8 bits each, with whole-array operations only.

With 2 or 4 bits, neighbours share a byte, the first in its lowest bits. With other widths, bit k of all integers of a
row is stored together (a bit plane).
"""

from __future__ import annotations

import numpy as np

from syncline.codecs.protocol import Bytes

_SHARED = (2, 4)


def packed_bytes(count: int, bits: int) -> int:
    """The number of bytes of a row of `count` integers of 1..8 bits."""
    if bits in _SHARED:
        return -(-count * bits // 8)
    return count if bits == 8 else -(-count // 8) * bits


def pack(numbers: Bytes, bits: int, out: Bytes) -> None:
    """Write the lowest `bits` bits of each integer, row by row; a row of `out` has `packed_bytes` bytes."""
    if bits == 8:
        np.copyto(out, numbers)
        return
    if bits in _SHARED:
        _pack_neighbours(numbers, bits, out)
        return
    width = out.shape[1] // bits
    room = np.empty_like(numbers)
    for bit in range(bits):
        np.bitwise_and(numbers, np.uint8(1 << bit), out=room)
        out[:, bit * width : (bit + 1) * width] = np.packbits(room, axis=1)


def unpack(packed: Bytes, bits: int, count: int) -> Bytes:
    """The `count` integers of each row."""
    if bits == 8:
        return packed
    if bits in _SHARED:
        return _unpack_neighbours(packed, bits, count)
    width = packed.shape[1] // bits
    numbers = np.unpackbits(packed[:, :width], axis=1, count=count)
    for bit in range(1, bits):
        plane = np.unpackbits(packed[:, bit * width : (bit + 1) * width], axis=1, count=count)
        np.multiply(plane, np.uint8(1 << bit), out=plane)  # several times faster than a shift
        np.bitwise_or(numbers, plane, out=numbers)
    return numbers


def _pack_neighbours(numbers: Bytes, bits: int, out: Bytes) -> None:
    lowest = np.bitwise_and(numbers, np.uint8((1 << bits) - 1))
    lacking = out.shape[1] * 8 // bits - lowest.shape[1]
    if lacking:
        lowest = np.pad(lowest, ((0, 0), (0, lacking)))
    # One multiplication moves all integers of a word to its highest byte; its terms do not overlap in any bit.
    if bits == 2:
        words = lowest.view("<u4")
        np.multiply(words, np.uint32(0x0104_1040), out=words)
        np.right_shift(words, np.uint32(24), out=words)
    else:
        words = lowest.view("<u2")
        np.multiply(words, np.uint16(0x0110), out=words)
        np.right_shift(words, np.uint16(8), out=words)
    np.copyto(out, words, casting="unsafe")


def _unpack_neighbours(packed: Bytes, bits: int, count: int) -> Bytes:
    # Multiplications, since a left shift takes several times as long.
    if bits == 2:
        words = packed.astype("<u4")
        np.multiply(words, np.uint32(0x1001), out=words)
        np.bitwise_and(words, np.uint32(0x000F_000F), out=words)
        np.multiply(words, np.uint32(0x41), out=words)
        np.bitwise_and(words, np.uint32(0x0303_0303), out=words)
    else:
        words = packed.astype("<u2")
        np.bitwise_or(words, np.multiply(words, np.uint16(0x10)), out=words)
        np.bitwise_and(words, np.uint16(0x0F0F), out=words)
    return words.view(np.uint8)[:, :count]
