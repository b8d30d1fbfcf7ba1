"""Small whole numbers in as many bits as they need, with whole-array operations only.

2 and 4 bits: the first numbers of a row in the lowest bits of its bytes, the next in the bits above them, and so on.
Any other number of bits: bit k of all numbers of a row stands together.
"""

from __future__ import annotations

import numpy as np

from syncline.codecs.protocol import Bytes

_LAYERED = (2, 4)


def packed_bytes(count: int, bits: int) -> int:
    """The bytes of a row of so many numbers, each of 1..8 bits."""
    if bits in _LAYERED:
        return -(-count * bits // 8)
    return count if bits == 8 else -(-count // 8) * bits


def pack(numbers: Bytes, bits: int, out: Bytes) -> None:
    """Write the lowest bits of each number, row by row; a row of `out` has `packed_bytes` bytes."""
    if bits == 8:
        np.copyto(out, numbers)
        return
    if bits in _LAYERED:
        _pack_layers(numbers, bits, out)
        return
    width = out.shape[1] // bits
    room = np.empty_like(numbers)
    for bit in range(bits):
        np.bitwise_and(numbers, np.uint8(1 << bit), out=room)
        out[:, bit * width : (bit + 1) * width] = np.packbits(room, axis=1)


def unpack(packed: Bytes, bits: int, count: int) -> Bytes:
    """The numbers of each row, `count` of them."""
    if bits == 8:
        return packed
    if bits in _LAYERED:
        return _unpack_layers(packed, bits, count)
    width = packed.shape[1] // bits
    numbers = np.unpackbits(packed[:, :width], axis=1, count=count)
    for bit in range(1, bits):
        plane = np.unpackbits(packed[:, bit * width : (bit + 1) * width], axis=1, count=count)
        np.multiply(plane, np.uint8(1 << bit), out=plane)  # several times as fast as a shift
        np.bitwise_or(numbers, plane, out=numbers)
    return numbers


def _pack_layers(numbers: Bytes, bits: int, out: Bytes) -> None:
    lowest = np.bitwise_and(numbers, np.uint8((1 << bits) - 1))
    width = out.shape[1]
    np.copyto(out, lowest[:, :width])
    for layer in range(1, 8 // bits):
        above = lowest[:, layer * width : (layer + 1) * width]
        np.multiply(above, np.uint8(1 << layer * bits), out=above)
        np.bitwise_or(out[:, : above.shape[1]], above, out=out[:, : above.shape[1]])


def _unpack_layers(packed: Bytes, bits: int, count: int) -> Bytes:
    width = packed.shape[1]
    numbers = np.empty((packed.shape[0], count), np.uint8)
    for layer in range(8 // bits):
        there = numbers[:, layer * width : (layer + 1) * width]
        np.right_shift(packed[:, : there.shape[1]], np.uint8(layer * bits), out=there)
    return np.bitwise_and(numbers, np.uint8((1 << bits) - 1), out=numbers)
