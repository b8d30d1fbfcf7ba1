"""Codecs that write every value in a few bits, block by block: what they share.

A payload is: the scales of all blocks (float32), then the codes of all blocks. A block is some neighbouring values
with scales of their own, so that one large value flattens only its neighbours; the last block may be shorter. Work is
done on some blocks at a time, so that everything in between stays in the processor's cache.

A block that holds NaN or infinity decodes to NaN, so that everybody sees it, and leaves no residual.
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
"""About how many values are worked on together: 1 MiB, little enough for a cache, enough to make a call worth it."""

Room = tuple[Values, Values, Values, Values]
"""Scratch, each of the shape of the blocks at hand; made once a call, since fresh memory costs more than the work."""

TINY = 1e-36
"""A largest value below this counts as zero: the inverse of its scale would overflow float32."""


class Piece(NamedTuple):
    """Blocks of one length: where they are among the values, the blocks and the bytes of codes."""

    values: slice
    blocks: slice
    codes: slice
    shape: tuple[int, int]
    """Blocks, and the values in each."""


class Blocks(Part):
    """A codec that writes each block by itself, in two functions: `write` and `read`."""

    scales: ClassVar[int]
    """float32 numbers in front of each block."""
    block: ClassVar[int] = 2048
    """Values that share their scales; a multiple of 8."""

    @property
    @abstractmethod
    def bits(self) -> int:
        """Of one value's code."""

    @property
    def keeps_residual(self) -> bool:
        return True

    @abstractmethod
    def write(self, x: Values, scales: Values, codes: Bytes, chance: Chance, left: Values | None, room: Room) -> None:
        """Write blocks, one a row, as scales and codes; `left`, which may be `x`, gets what was not written."""

    @abstractmethod
    def read(self, scales: Values, codes: Bytes, out: Values) -> None:
        """Read blocks back, one a row."""

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
        """Blocks that are worked on together."""
        return AT_ONCE // self.block

    def _width(self, values: int) -> int:
        """The bytes of the codes of a block."""
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
    """The largest magnitude of each row, NaN if it holds one; `room`, of the same shape, is written to."""
    sizes = np.abs(x, out=room).reshape(-1)
    found: Values = np.maximum.reduceat(sizes, np.arange(0, x.size, x.shape[1]))  # rows are short: max() is slower
    return found


def forget_not_finite(left: Values | None, top: Values) -> None:
    """No residual where a block's largest magnitude is NaN or infinite."""
    if left is not None and not np.isfinite(top).all():
        left[~np.isfinite(top)] = 0
