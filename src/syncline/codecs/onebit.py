"""`onebit`: the sign of each value, and two means per block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.codecs.blocks import Blocks, Room, forget_not_finite
from syncline.codecs.protocol import Bytes, Chance
from syncline.layout import Values

Sums = np.ndarray[Any, np.dtype[np.floating[Any]]]

_MOST = np.finfo(np.float32).max / np.float32(2)
"""Means saturate at this magnitude, so that the difference of two means is finite."""


@dataclass(frozen=True)
class OneBit(Blocks):
    """1-bit SGD (Seide et al. 2014): the sign of each value, and for each block the means of both signs.

    Blocks are as small as possible within 4 % of the dense bytes. Large blocks mix values of different magnitudes, and
    then training with one-bit updates and one-bit replies is unstable.
    """

    name = "onebit"
    scales = 2
    block = 288

    @property
    def bits(self) -> int:
        return 1

    def write(self, x: Values, scales: Values, codes: Bytes, chance: Chance, left: Values | None, room: Room) -> None:
        negative = np.less(x, np.float32(0))
        codes[:] = np.packbits(negative, axis=1)
        sizes, sums = np.abs(x, out=room[0]).sum(axis=1), x.sum(axis=1)
        below = np.bitwise_count(codes).sum(axis=1, dtype=np.float32)
        scales[:, 0], scales[:, 1] = _means(sizes, sums, below, x.shape[1])
        huge = ~(sizes < _MOST)
        if huge.any():
            _write_huge(x[huge].astype(np.float64), huge, below, scales)
        if left is not None:
            _read_bits(negative.view(np.uint8), scales, room[0])
            np.subtract(x, room[0], out=left)
            forget_not_finite(left, scales[:, 0] + scales[:, 1])

    def read(self, scales: Values, codes: Bytes, out: Values) -> None:
        _read_bits(np.unpackbits(codes, axis=1, count=out.shape[1]), scales, out)


def _means(sizes: Sums, sums: Sums, below: Values, values: int) -> tuple[Sums, Sums]:
    """The means of the values >= 0 and of those < 0 in each block.

    `sizes` is the sum of the magnitudes, `sums` the sum of the values, `below` how many values are < 0.
    """
    return (sizes + sums) / 2 / np.maximum(values - below, 1), (sums - sizes) / 2 / np.maximum(below, 1)


def _write_huge(x: Sums, where: npt.NDArray[np.bool_], below: Values, scales: Values) -> None:
    """Write the means of blocks whose sums may overflow float32; one mean is NaN if the block is not finite."""
    means = _means(np.abs(x).sum(axis=1), x.sum(axis=1), below[where], x.shape[1])
    scales[where] = np.clip(np.stack(means, axis=1), -_MOST, _MOST)


def _read_bits(negative: Bytes, scales: Values, out: Values) -> None:
    """out = first mean + bit * (second mean - first mean). Encoding and decoding both use it, so they agree exactly."""
    np.copyto(out, negative)
    np.multiply(out, scales[:, 1:] - scales[:, :1], out=out)
    np.add(out, scales[:, :1], out=out)
