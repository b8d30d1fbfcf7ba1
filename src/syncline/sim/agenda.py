"""The event heap. Events are ordered by (time, worker number at either end, sequence), whatever their kind.

Most events happen at the very time at which they are asked for, so these have a heap of their own, a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import repeat
from typing import Any

Action = Callable[[Any, Any], None]
"""What happens: to whom, and what; every action takes these two, since that is the fastest way to call many."""

Entry = tuple[float, int, int, Action, Any, Any]
"""(time, worker, sequence, action, whom, what)"""

NO_WORKER = -1
"""The worker number of what concerns no worker: it comes first."""


class Agenda:
    """What happens when, in virtual seconds."""

    __slots__ = ("_later", "_sequence", "_soon", "now", "over")

    def __init__(self) -> None:
        self.now = 0.0
        self._soon: list[Entry] = []
        """What happens at `now`, as far as it was asked for at `now`."""
        self._later: list[Entry] = []
        self._sequence = 0
        self.over = False
        """Set by an action: nothing further is to happen."""

    def at(self, time: float, worker: int, action: Action, whom: object, what: object) -> None:
        """Have `action(whom, what)` happen at this time."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._later if time > self.now else self._soon, (time, worker, sequence, action, whom, what))

    def at_once(self, worker: int, action: Action, whom: object, what: object) -> None:
        """Have `action(whom, what)` happen now, when its turn comes."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._soon, (self.now, worker, sequence, action, whom, what))

    @property
    def happened(self) -> int:
        """How many events there were so far."""
        return self._sequence - len(self._soon) - len(self._later)

    def drain(self) -> None:
        """Let everything happen that is left."""
        self.over = False
        while self.run(1 << 20):
            pass

    def run(self, most: int) -> bool:
        """Let so many events happen, unless it is over before; False if nothing is left to happen."""
        soon, later = self._soon, self._later
        for _ in repeat(None, most):
            if soon and (not later or later[0][0] > self.now or soon[0] < later[0]):
                _, _, _, action, whom, what = heappop(soon)
            elif later:
                self.now, _, _, action, whom, what = heappop(later)
            else:
                return False
            action(whom, what)
            if self.over:
                break
        return True
