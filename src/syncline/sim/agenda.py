"""The event heap. Events are ordered by (time, worker number at either end, sequence), whatever their kind."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

NO_WORKER = -1
"""The worker number of what concerns no worker: it comes first."""


class Agenda:
    """What happens when, in virtual seconds."""

    __slots__ = ("heap", "now", "sequence")

    def __init__(self) -> None:
        self.now = 0.0
        self.heap: list[tuple[float, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self.sequence = 0

    def at(self, time: float, worker: int, action: Callable[..., None], args: tuple[Any, ...]) -> None:
        """Have `action(*args)` happen at this time."""
        self.sequence += 1
        heappush(self.heap, (time, worker, self.sequence, action, args))

    @property
    def happened(self) -> int:
        """How many events there were so far."""
        return self.sequence - len(self.heap)

    def drain(self) -> None:
        """Let everything happen that is left."""
        while self.step():
            pass

    def step(self) -> bool:
        """Let the next event happen; False if there is none."""
        if not self.heap:
            return False
        self.now, _, _, action, args = heappop(self.heap)
        action(*args)
        return True
