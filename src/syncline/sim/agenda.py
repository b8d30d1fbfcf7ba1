"""The event heap. Events are ordered by (time, worker number at either end, sequence), whatever their kind.

Most events happen at the very time at which they are asked for, so these have a heap of their own, a short one.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Entry = tuple[float, int, int, Callable[..., None], tuple[Any, ...]]
"""(time, worker, sequence, action, its arguments)"""

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

    def at(self, time: float, worker: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Have `action(*args)` happen at this time."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._later if time > self.now else self._soon, (time, worker, sequence, action, args))

    def at_once(self, worker: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Have `action(*args)` happen now, when its turn comes."""
        self._sequence = sequence = self._sequence + 1
        heappush(self._soon, (self.now, worker, sequence, action, args))

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
        for _ in range(most):
            if soon and (not later or soon[0] < later[0]):
                _, _, _, action, args = heappop(soon)
            elif later:
                self.now, _, _, action, args = heappop(later)
            else:
                return False
            action(*args)
            if self.over:
                break
        return True
