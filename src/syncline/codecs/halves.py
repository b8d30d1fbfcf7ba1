"""`fp16` and `bf16`: every value in two bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.codecs.blocks import Blocks, Room
from syncline.codecs.protocol import Bytes, Chance
from syncline.layout import Values

_Words = np.ndarray[Any, np.dtype[np.uint32]]

_MAGNITUDE = np.uint32(0x7FFFFFFF)
_EXPONENT = np.uint32(0x7F800000)
_SIGN = np.uint32(0x80000000)
_FP16_LARGE = np.uint32(142 << 23)
"""The bits of 2^15 as float32. The largest fp16 is 65,504."""
_FP16_SMALL = np.uint32(113 << 23)
"""The bits of 2^-14 as float32. Below it fp16 is subnormal: the distance between its values is constant."""
_BF16_LARGEST = np.uint32(0x7F7F0000)
_NAN = np.uint32(0x7FC00000)


@dataclass(frozen=True)
class Fp16(Blocks):
    """IEEE half precision: 11 significant bits, rounded to nearest; values beyond 65,504 saturate."""

    name = "fp16"
    scales = 0

    @property
    def bits(self) -> int:
        return 16

    def write(self, x: Values, scales: Values, codes: Bytes, chance: Chance, left: Values | None, room: Room) -> None:
        # numpy's own conversion is slower. Adding a power of two that is 13 bits larger than a value makes the addition
        # round that value to 11 bits, which end up in the lowest bits of the sum.
        halves, bits = codes.view(np.uint16), x.view(np.uint32)
        exponent, power, rounded, sign = (each.view(np.uint32) for each in room)
        np.bitwise_and(bits, _EXPONENT, out=exponent)
        if exponent.max(initial=0) >= _FP16_LARGE:
            _saturate(x, halves, left)
            return
        np.maximum(exponent, _FP16_SMALL, out=exponent)
        np.bitwise_and(bits, _SIGN, out=sign)
        np.add(exponent, np.uint32(13 << 23), out=power)
        np.bitwise_or(power, sign, out=power)
        np.add(x, power.view(np.float32), out=rounded.view(np.float32))
        number = np.right_shift(exponent, np.uint32(13), out=exponent)
        np.add(number, rounded, out=number)
        np.subtract(number, power, out=number)
        np.right_shift(sign, np.uint32(16), out=sign)
        np.add(number, sign, out=number)
        np.copyto(halves, number, casting="unsafe")
        np.subtract(halves, np.uint16((113 << 10) & 0xFFFF), out=halves)
        if left is not None:
            sent = np.subtract(rounded.view(np.float32), power.view(np.float32), out=rounded.view(np.float32))
            np.subtract(x, sent, out=left)

    def read(self, scales: Values, codes: Bytes, out: Values) -> None:
        np.copyto(out, codes.view(np.float16))


def _saturate(x: Values, halves: np.ndarray[Any, np.dtype[np.uint16]], left: Values | None) -> None:
    finite = np.isfinite(x)
    limit = np.float32(np.finfo(np.float16).max)
    sent = np.where(finite, np.clip(x, -limit, limit), x).astype(np.float16)
    halves[:] = sent.view(np.uint16)
    if left is not None:
        left[:] = np.where(finite, x - sent, np.float32(0))


@dataclass(frozen=True)
class Bf16(Blocks):
    """bfloat16: the upper half of a float32, rounded to nearest; values beyond the largest finite one saturate."""

    name = "bf16"
    scales = 0

    @property
    def bits(self) -> int:
        return 16

    def write(self, x: Values, scales: Values, codes: Bytes, chance: Chance, left: Values | None, room: Room) -> None:
        halves, bits = codes.view(np.uint16), x.view(np.uint32)
        rounded, number = (each.view(np.uint32) for each in room[:2])
        upper = np.right_shift(bits, np.uint32(16), out=number)
        np.copyto(halves, upper, casting="unsafe")
        large = bool((halves & np.uint16(0x7FFF)).max(initial=0) >= _BF16_LARGEST >> 16)
        np.bitwise_and(upper, np.uint32(1), out=rounded)
        np.add(rounded, np.uint32(0x7FFF), out=rounded)
        np.add(rounded, bits, out=rounded)
        size = bits & _MAGNITUDE if large else number
        if large:
            _replace_large(bits, size, rounded)
        np.copyto(halves, np.right_shift(rounded, np.uint32(16), out=room[2].view(np.uint32)), casting="unsafe")
        if left is not None:
            np.bitwise_and(rounded, np.uint32(0xFFFF0000), out=rounded)
            np.subtract(x, rounded.view(np.float32), out=left)
            if large:
                left[size >= _EXPONENT] = 0

    def read(self, scales: Values, codes: Bytes, out: Values) -> None:
        wide = out.view(np.uint32)
        np.copyto(wide, codes.view(np.uint16))
        np.left_shift(wide, np.uint32(16), out=wide)


def _replace_large(bits: _Words, size: _Words, rounded: _Words) -> None:
    """Replace values that would round to infinity by the largest finite value; keep infinity and NaN."""
    finite = (size > _BF16_LARGEST) & (size < _EXPONENT)
    rounded[finite] = bits[finite] & _SIGN | _BF16_LARGEST
    rounded[size == _EXPONENT] = bits[size == _EXPONENT]
    rounded[size > _EXPONENT] = _NAN
