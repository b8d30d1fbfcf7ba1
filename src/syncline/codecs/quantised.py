"""`int8`, `qsgd` and `terngrad`: every value as an integer number of steps; a step is largest magnitude / levels."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import numpy as np

from syncline.codecs.blocks import TINY, Blocks, Room, forget_not_finite, largest
from syncline.codecs.planes import pack, unpack
from syncline.codecs.protocol import Bytes, Chance
from syncline.errors import UsageError
from syncline.layout import Values

_MOST = np.nextafter(np.finfo(np.float32).max, np.float32(0))
"""The largest magnitude used to compute a step: `levels` steps stay finite even if the step is rounded up."""


def steps(top: Values, levels: int) -> tuple[Values, Values]:
    """For each row: the size of a step, and its inverse; both are 0 in a row whose magnitudes are all below TINY."""
    some = np.isfinite(top) & (top >= TINY)
    step = np.where(some, np.minimum(top, _MOST) / np.float32(levels), top * np.float32(0))  # infinity * 0 is NaN
    return step, np.where(some, np.float32(levels) / top, np.float32(0))


@dataclass(frozen=True)
class Int8(Blocks):
    """127 steps in each direction, rounded to nearest: a quarter of the dense bytes."""

    name = "int8"
    scales = 1

    @property
    def bits(self) -> int:
        return 8

    def write(self, x: Values, scales: Values, codes: Bytes, chance: Chance, left: Values | None, room: Room) -> None:
        top = largest(x, room[0])
        step, inverse = steps(top, 127)
        scales[:, 0] = step
        number = np.multiply(x, inverse[:, None], out=room[0])
        np.rint(number, out=number)
        np.copyto(codes.view(np.int8), number, casting="unsafe")
        if left is not None:
            np.multiply(number, step[:, None], out=number)
            np.subtract(x, number, out=left)
            forget_not_finite(left, top)

    def read(self, scales: Values, codes: Bytes, out: Values) -> None:
        np.copyto(out, codes.view(np.int8))
        np.multiply(out, scales, out=out)


class Stochastic(Blocks):
    """Round value / step + r to nearest, with r uniform in (-1/2, 1/2): the mean over all draws is the value itself.

    This is QSGD (Alistarh et al. 2017) with the largest magnitude as the norm, as in that paper's experiments. It is
    unbiased, so error feedback is off by default. The integers are written in two's complement.
    """

    scales = 1
    stochastic = True
    feedback: bool

    @property
    @abstractmethod
    def most(self) -> int:
        """The number of steps in each direction."""

    @property
    def bits(self) -> int:
        return (2 * self.most).bit_length()

    @property
    def keeps_residual(self) -> bool:
        return self.feedback

    def write(self, x: Values, scales: Values, codes: Bytes, chance: Chance, left: Values | None, room: Room) -> None:
        top = largest(x, room[0])
        step, inverse = steps(top, self.most)
        scales[:, 0] = step
        number = np.multiply(x, inverse[:, None], out=room[0])
        np.add(number, _uniform(chance, room[1]), out=number)
        np.rint(number, out=number)
        pack(number.astype(np.int8).view(np.uint8), self.bits, codes)
        if left is not None:
            np.multiply(number, scales, out=number)
            np.subtract(x, number, out=left)
            forget_not_finite(left, top)

    def read(self, scales: Values, codes: Bytes, out: Values) -> None:
        numbers = unpack(codes, self.bits, out.shape[1])
        if self.bits < 8:
            sign = np.uint8(1 << (self.bits - 1))
            np.bitwise_xor(numbers, sign, out=numbers)
            np.subtract(numbers, sign, out=numbers)
        np.copyto(out, numbers.view(np.int8))
        np.multiply(out, scales, out=out)


_ODD = np.uint64(0x0001_0001_0001_0001)


def _uniform(chance: Chance, out: Values) -> Values:
    """Numbers in (-1/2, 1/2), in steps of 2^-15 and symmetric around 0; each random 64-bit word gives four."""
    words = chance().bit_generator.random_raw(-(-out.size // 4))
    np.bitwise_or(words, _ODD, out=words)
    np.copyto(out, words.astype("<u8", copy=False).view("<i2")[: out.size].reshape(out.shape))
    return np.multiply(out, np.float32(2**-16), out=out)


@dataclass(frozen=True)
class Qsgd(Stochastic):
    """QSGD: `levels` steps in each direction (1..127), in ceil(log2(2 levels + 1)) bits."""

    name = "qsgd"
    example = "qsgd:7"
    levels: int
    feedback: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= 127:
            raise UsageError("qsgd", f"levels must be in 1..127, not {self.levels}")

    @property
    def most(self) -> int:
        return self.levels


@dataclass(frozen=True)
class Terngrad(Stochastic):
    """TernGrad (Wen et al. 2017): each value is minus the largest magnitude, 0, or the largest magnitude; 2 bits.

    Blocks are as small as possible within 8 % of the dense bytes, since the noise grows with the largest magnitude of a
    block. The paper clips that magnitude instead, which adds a bias.
    """

    name = "terngrad"
    block = 64
    feedback: bool = False

    @property
    def most(self) -> int:
        return 1
