"""The summands of a replica: the updates of the node's own workers, and what has come over each link."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from syncline.layout import Values
from syncline.reals import Reals

BLOCK = 1 << 15
"""How many values are summed at once: they stay in the processor's cache."""

WIDE = 1 << 18
"""How many values are widened to float64 at once. Smaller blocks take up to 1.5 times as long, larger ones as long."""

Key = tuple[str, int]
"""("x", origin) or ("link", number of the link)."""

Basis = frozenset[Key]
"""The summands that a sum is made of."""


def x_key(origin: int) -> Key:
    return ("x", origin)


def link_key(link: int) -> Key:
    return ("link", link)


def is_zero(values: Values) -> bool:
    """Whether all values are zero; stops at the first block with another one."""
    return not any(values[start : start + BLOCK].any() for start in range(0, values.size, BLOCK))


def add_to(sums: Sequence[Reals], change: Reals | Values) -> None:
    """Add a change to all of these sums, block by block: the change is read, and widened, once."""
    if len(sums) == 1 and change.dtype == np.float64:
        sums[0] += change
        return
    wide = np.empty(min(WIDE, change.size))
    for start in range(0, change.size if sums else 0, WIDE):
        block = slice(start, start + WIDE)
        part = wide[: change[block].size]
        part[:] = change[block]
        for each in sums:
            np.add(each[block], part, each[block])


class Summand:
    """A sum of updates in float64, and how many updates of each origin it contains."""

    __slots__ = ("counts", "values")

    def __init__(self, values: Reals, counts: Mapping[int, int]) -> None:
        self.values = values
        self.counts = dict(counts)


class Summands:
    """The summands that a node has, by key."""

    __slots__ = ("_by_key", "_size")

    def __init__(self, size: int) -> None:
        self._size = size
        self._by_key: dict[Key, Summand] = {}

    def __contains__(self, key: Key) -> bool:
        return key in self._by_key

    def __getitem__(self, key: Key) -> Summand:
        return self._by_key[key]

    def __setitem__(self, key: Key, summand: Summand) -> None:
        self._by_key[key] = summand

    def have(self, basis: Iterable[Key]) -> bool:
        """Whether all these summands are there."""
        return all(key in self._by_key for key in basis)

    def total(self, basis: Iterable[Key]) -> Reals:
        """The sum of these summands; a new array."""
        found = np.zeros(self._size)
        for key in sorted(basis):
            found += self._by_key[key].values
        return found

    def replica(self, first: Values, basis: Iterable[Key]) -> Values:
        """The initial values plus these summands, added in float64, in a new array of float32."""
        found, parts = np.empty_like(first), [self._by_key[key].values for key in sorted(basis)]
        for start in range(0, self._size, BLOCK):
            block = slice(start, start + BLOCK)
            total = first[block].astype(np.float64)
            for part in parts:
                total += part[block]
            found[block] = total
        return found

    def counts(self, basis: Iterable[Key]) -> dict[int, int]:
        """How many updates of each origin the sum of these summands contains."""
        found: dict[int, int] = {}
        for key in basis:
            for origin, count in self._by_key[key].counts.items():
                found[origin] = found.get(origin, 0) + count
        return found

    def keep(self, needed: Iterable[Key]) -> None:
        """Forget all other summands."""
        wanted = set(needed)
        self._by_key = {key: each for key, each in self._by_key.items() if key in wanted}
