"""Sums of a worker's newest updates, from any update that a peer still lacks to the newest one.

1. Up to a turning point the window keeps suffix sums: for update u, the sum of the updates from u to that point. After
   it, it keeps the updates themselves and one running sum. So a sum that begins before the turning point costs one
   addition, and any other adds up single updates.
2. `turn` moves the turning point to the newest update. Suffix sums that a peer still needs grow by the running sum.
3. With few ranges, all sums are short: the window never turns.
4. Nothing is ever subtracted, so nothing drifts. Arrays that are not needed any more are used again.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from syncline.layout import Values

PLAIN = 4
"""With at most this many ranges, updates are added plainly."""


class WindowSums:
    """The updates of one worker, as flat arrays, as long as a peer may need them."""

    def __init__(self, length: int, parts: int, clock: int = 0) -> None:
        """The first update has the number `clock` + 1."""
        self.clock = clock
        self._length = length
        self._base = self._turned = clock
        self._every = parts if parts > PLAIN else 0
        self._suffix: dict[int, Values] = {}
        self._single: dict[int, Values] = {}
        self._running: Values | None = None
        """The sum of the updates after the turning point; None if no suffix sum needs it."""
        self._spare: list[Values] = []
        self._most = parts + 2

    @property
    def arrays(self) -> int:
        """How many flat arrays the window keeps."""
        return len(self._suffix) + len(self._single) + (self._running is not None) + len(self._spare)

    @property
    def is_due(self) -> bool:
        """Whether `tidy` has something to do."""
        return not self._every or self.clock - self._turned >= self._every

    def empty(self) -> Values:
        """An array for the next update."""
        return self._spare.pop() if self._spare else np.empty(self._length, np.float32)

    def add(self, update: Values) -> None:
        """Add the next update; the window keeps the array."""
        self.clock += 1
        self._single[self.clock] = update
        if self._suffix and self._running is not None:
            np.add(self._running, update, self._running)
        elif self._suffix:
            self._running = self._copy(update)

    def total(self, first: int, last: int, where: slice) -> Values:
        """The sum of these updates at this place; valid until the next call of `add`, `tidy` or `clear`."""
        first = max(first, self._base + 1)
        if first > last:
            return np.zeros(where.stop - where.start, np.float32)
        if first > self._turned:
            return _sum([self._single[each][where] for each in range(first, last + 1)])
        assert last == self.clock, "a sum that begins before the turning point ends with the newest update"
        suffix = self._suffix[first][where]
        return suffix if self._running is None else suffix + self._running[where]

    def tidy(self, firsts: Collection[int] | None) -> None:
        """Forget what no sum needs that begins with one of `firsts`; None: forget nothing. Turn if it is time."""
        needed = None if firsts is None else {max(each, self._base + 1) for each in firsts}
        if self._every:
            self._turn(needed)
        elif needed is not None:
            self._drop_before(min(needed, default=self.clock + 1))
        del self._spare[self._most :]

    def clear(self) -> None:
        """Forget all updates: every peer has them."""
        self._spare += [*self._suffix.values(), *self._single.values()]
        if self._running is not None:
            self._spare.append(self._running)
        self._suffix, self._single, self._running = {}, {}, None
        self._base = self._turned = self.clock

    def _turn(self, needed: set[int] | None) -> None:
        if needed is not None:
            for each in [each for each in self._suffix if each not in needed]:
                self._spare.append(self._suffix.pop(each))
            self._drop_before(min((each for each in needed if each > self._turned), default=self.clock + 1))
        for suffix in self._suffix.values():
            if self._running is not None:
                np.add(suffix, self._running, suffix)
        following: Values | None = None
        for each in sorted(self._single, reverse=True):
            update = self._single[each]
            if following is not None:
                np.add(update, following, update)
            self._suffix[each] = following = update
        self._single = {}
        if self._running is not None:
            self._spare.append(self._running)
        self._running, self._turned = None, self.clock

    def _drop_before(self, first: int) -> None:
        for each in [each for each in self._single if each < first]:
            self._spare.append(self._single.pop(each))

    def _copy(self, update: Values) -> Values:
        made = self.empty()
        made[:] = update
        return made


class NewestUpdate(WindowSums):
    """For comparison, a window without accumulation: a peer gets only the newest update of a range."""

    def __init__(self, length: int, clock: int = 0) -> None:
        super().__init__(length, 1, clock)

    def total(self, first: int, last: int, where: slice) -> Values:
        return self._single[self.clock][where]

    def tidy(self, firsts: Collection[int] | None) -> None:
        self._drop_before(self.clock)


def _sum(rows: list[Values]) -> Values:
    if len(rows) == 1:
        return rows[0]
    found: Values = rows[0] + rows[1]
    for row in rows[2:]:
        np.add(found, row, found)
    return found
