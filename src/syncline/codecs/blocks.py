"""The base class of codecs that encode every value in a few bits, block by block.

1. A payload is the scales of all blocks (float32), followed by the codes of all blocks.
2. A block is a run of neighbouring values with its own scales, so that one large value costs precision only in its own
   block. The last block may be shorter.
3. The codec processes a few blocks at a time, so that temporary arrays stay in the processor's cache.
4. A block that contains NaN or infinity decodes to NaN, so that every receiver notices, and leaves no residual.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import cache
from typing import ClassVar, NamedTuple

import numpy as np

from syncline.codecs.planes import packed_bytes
from syncline.codecs.protocol import Bytes, Chance, Memory, check_bytes, once
from syncline.layout import VALUE_BYTES, Payload, Values
from syncline.parts import Part

AT_ONCE = 1 << 18
"""How many values are processed together: 1 MiB, small enough for a cache, large enough to amortise numpy calls."""

Room = tuple[Values, Values, Values, Values]
"""Scratch arrays of the shape of the current blocks, allocated once per call: allocating costs more than the work."""

TINY = 1e-36
"""A block whose largest magnitude is below this counts as zero: the inverse of its scale would overflow float32."""


class Piece(NamedTuple):
    """Some blocks of the same length: their slices of the values, of the blocks and of the bytes of the codes."""

    values: slice
    blocks: slice
    codes: slice
    shape: tuple[int, int]
    """(number of blocks, values in each)."""


class Blocks(Part):
    """A codec that encodes each block separately, with two functions: `write` and `read`."""

    scales: ClassVar[int]
    """How many float32 scales a block has."""
    block: ClassVar[int] = 2048
    """How many values a block has; a multiple of 8."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """The number of bits of the code of one value."""

    @property
    def keeps_residual(self) -> bool:
        return True

    @abstractmethod
    def write(self, x: Values, scales: Values, codes: Bytes, chance: Chance, left: Values | None, room: Room) -> None:
        """Encode the blocks in the rows of `x` as scales and codes.

        `left`, which may be `x`, receives the rounding error; None means that no residual is kept.
        """

    @abstractmethod
    def read(self, scales: Values, codes: Bytes, out: Values) -> None:
        """Decode the blocks into the rows of `out`."""

    def size(self, values: int) -> int:
        whole, rest = divmod(values, self.block)
        return self._head(values) + whole * self._width(self.block) + self._width(rest)

    def memory(self, values: int) -> Memory:
        return {"residual": np.zeros(values, np.float32)} if self.keeps_residual else {}

    def encode(self, update: Values, memory: Memory, out: Bytes, chance: Chance) -> Payload:
        residual = memory["residual"] if self.keeps_residual else None
        out = out[: self.size(update.size)]
        scales, codes = self._parts(out, update.size)
        chance = once(chance)
        room = _rooms(min(update.size, self._at_once * self.block))
        with np.errstate(all="ignore"):
            for piece in self._pieces(update.size):
                x = update[piece.values]
                if residual is not None:
                    x = np.add(residual[piece.values], x, residual[piece.values])
                x = x.reshape(piece.shape)
                rows = codes[piece.codes].reshape(piece.shape[0], -1)
                left = None if residual is None else x
                self.write(x, scales[piece.blocks], rows, chance, left, room(piece.shape))
        return out

    def check(self, payload: Payload, values: int) -> None:
        check_bytes(payload, self.size(values), self.name)

    def decode(self, payload: Payload, out: Values) -> Values:
        for piece, scales, codes in self._read(payload, out.size):
            self.read(scales, codes, out[piece.values].reshape(piece.shape))
        return out

    def add_into(self, payload: Payload, out: Values) -> None:
        room = np.empty(min(out.size, self._at_once * self.block), np.float32)
        for piece, scales, codes in self._read(payload, out.size):
            there = out[piece.values]
            read = room[: there.size].reshape(piece.shape)
            self.read(scales, codes, read)
            np.add(there, read.reshape(-1), there)

    def _read(self, payload: Payload, values: int) -> Iterator[tuple[Piece, Values, Bytes]]:
        scales, codes = self._parts(check_bytes(payload, self.size(values), self.name), values)
        with np.errstate(all="ignore"):
            for piece in self._pieces(values):
                yield piece, scales[piece.blocks], codes[piece.codes].reshape(piece.shape[0], -1)

    def _parts(self, payload: Bytes, values: int) -> tuple[Values, Bytes]:
        head = self._head(values)
        scales: Values = payload[:head].view(np.float32).reshape(-(-values // self.block), self.scales)
        return scales, payload[head:]

    def _head(self, values: int) -> int:
        return -(-values // self.block) * self.scales * VALUE_BYTES

    @property
    def _at_once(self) -> int:
        """How many blocks are processed together."""
        return AT_ONCE // self.block

    def _width(self, values: int) -> int:
        """The number of bytes of the codes of a block with this many values."""
        return values * (self.bits // 8) if self.bits > 8 else packed_bytes(values, self.bits)

    def _pieces(self, values: int) -> Iterator[Piece]:
        whole, rest = divmod(values, self.block)
        width = self._width(self.block)
        for first in range(0, whole, self._at_once):
            last = min(first + self._at_once, whole)
            yield Piece(
                slice(first * self.block, last * self.block),
                slice(first, last),
                slice(first * width, last * width),
                (last - first, self.block),
            )
        if rest:
            yield Piece(
                slice(whole * self.block, values), slice(whole, whole + 1), slice(whole * width, None), (1, rest)
            )


def _rooms(values: int) -> Callable[[tuple[int, int]], Room]:
    whole = np.empty((4, values), np.float32)

    @cache
    def room(shape: tuple[int, int]) -> Room:
        one, two, three, four = (each[: shape[0] * shape[1]].reshape(shape) for each in whole)
        return one, two, three, four

    return room


def largest(x: Values, room: Values) -> Values:
    """The largest magnitude of each row, NaN if the row contains one; `room` is scratch space of the same shape."""
    sizes = np.abs(x, out=room).reshape(-1)
    found: Values = np.maximum.reduceat(sizes, np.arange(0, x.size, x.shape[1]))  # faster than max() on short rows
    return found


def forget_not_finite(left: Values | None, top: Values) -> None:
    """Set the residual to 0 in blocks whose largest magnitude is NaN or infinite."""
    if left is not None and not np.isfinite(top).all():
        left[~np.isfinite(top)] = 0
