"""Randomness as a pure function of (seed, purpose, worker, iteration, ...): the order of the draws does not matter."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b, shake_128

import numpy as np

from syncline.layout import Values
from syncline.reals import Reals, cosine_of_turns, log


@dataclass(frozen=True, slots=True)
class Draw:
    """All the randomness of a run, as functions of its seed."""

    seed: int

    def uniform(self, purpose: str, *keys: int) -> float:
        """A number in [0, 1)."""
        digest = blake2b(repr((self.seed, purpose, keys)).encode(), digest_size=8).digest()
        return (int.from_bytes(digest, "little") >> 11) * 2.0**-53

    def uniforms(self, count: int, purpose: str, *keys: int) -> Reals:
        """`count` numbers in [0, 1)."""
        digest = shake_128(repr((self.seed, purpose, keys)).encode()).digest(8 * count)
        numbers: Reals = np.multiply(np.frombuffer(digest, "<u8") >> np.uint64(11), 2.0**-53, dtype=np.float64)
        return numbers

    def normals(self, count: int, purpose: str, *keys: int) -> Reals:
        """`count` standard normal numbers (Box and Muller)."""
        radius, angle = self.uniforms(2 * count, purpose, *keys).reshape(2, count)
        numbers: Reals = np.sqrt(-2 * log(1 - radius)) * cosine_of_turns(angle)
        return numbers

    def values(self, count: int, purpose: str, *keys: int) -> Values:
        """`count` float32 numbers in [-1, 1), each a multiple of 1/128, so that sums of a few thousand are exact."""
        digest = shake_128(repr((self.seed, purpose, keys)).encode()).digest(count)
        return np.frombuffer(digest, np.int8) * np.float32(2.0**-7)

    def permutation(self, count: int, purpose: str, *keys: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The numbers 0..count-1 in random order."""
        digest = blake2b(repr((self.seed, purpose, keys)).encode(), digest_size=16).digest()
        return np.random.Generator(np.random.Philox(key=int.from_bytes(digest, "little"))).permutation(count)

    def generator(self, purpose: str, *keys: int) -> np.random.Generator:
        """A fast generator for many numbers; the same purpose and keys give a bit-identical stream."""
        digest = blake2b(repr((self.seed, purpose, keys)).encode(), digest_size=16).digest()
        return np.random.Generator(np.random.SFC64(int.from_bytes(digest, "little")))
