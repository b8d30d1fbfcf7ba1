"""The event heap. Events are ordered by (time, worker number at either end, sequence), whatever their kind.

Most events happen at the very time at which they are asked for, and most of these are alone: such a one needs no heap.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, repeat
from operator import itemgetter, length_hint
from typing import Any

Action = Callable[[Any, Any], None]
"""What happens: to whom, and what; every action takes these two, since that is the fastest way to call many."""

Entry = tuple[int, Action, Any, Any]
"""(worker, action, whom, what)"""

NO_WORKER = -1
"""The worker number of what concerns no worker: it comes first."""

_worker = itemgetter(0)


class Agenda:
    """What happens when, in virtual seconds."""

    __slots__ = ("_asked", "_later", "_sequence", "_soon", "_taken", "at_once", "now", "over")

    def __init__(self) -> None:
        self.now = 0.0
        self._asked: list[Entry] = []
        """What is to happen at `now`, in the order in which it was asked for; not yet lined up."""
        self._soon: list[tuple[int, int, Entry]] = []
        """What happens at `now` and was asked for at `now`, lined up by (worker, sequence)."""
        self._later: list[tuple[float, int, int, Action, Any, Any]] = []
        """What was asked for before its time, by (time, worker, sequence)."""
        self._sequence = count()
        self._taken = 0
        self.over = False
        """Set by an action: nothing further is to happen."""
        self.at_once: Callable[[Entry], None] = self._asked.append
        """Have `action(whom, what)` happen now, when its turn comes: `at_once((worker, action, whom, what))`."""

    def at(self, time: float, worker: int, action: Action, whom: object, what: object) -> None:
        """Have `action(whom, what)` happen at this time, which has not passed."""
        if time > self.now:
            heappush(self._later, (time, worker, next(self._sequence), action, whom, what))
        else:
            self._asked.append((worker, action, whom, what))

    @property
    def happened(self) -> int:
        """How many events there were so far."""
        return self._taken

    def drain(self) -> None:
        """Let everything happen that is left."""
        self.over = False
        while self.run(1 << 20):
            pass

    def run(self, most: int) -> bool:
        """Let so many events happen, unless it is over before; False if nothing is left to happen."""
        asked, soon, later = self._asked, self._soon, self._later
        left = repeat(None, most)
        for _ in left:
            if asked and (soon or len(asked) > 1 or (later and later[0][0] <= self.now)):
                self._line_up()
            if asked:
                _, action, whom, what = asked.pop()
            elif soon and (not later or later[0][0] > self.now or soon[0][0] < later[0][1]):
                _, _, (_, action, whom, what) = heappop(soon)
            elif later:
                self.now, _, _, action, whom, what = heappop(later)
            else:
                self._taken += most - length_hint(left) - 1
                return False
            action(whom, what)
            if self.over:
                break
        self._taken += most - length_hint(left)
        return True

    def _line_up(self) -> None:
        """Give what was asked for its place; an equal worker's from earlier times, in `_later`, goes first."""
        for entry in zip(map(_worker, self._asked), self._sequence, self._asked, strict=False):
            heappush(self._soon, entry)
        self._asked.clear()
