"""The event queue. Events of all kinds are ordered by (time, worker number at either end, sequence).

Most events are scheduled for the current time, and most of those are the only one at that time. They skip the heap.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count, repeat
from operator import itemgetter, length_hint
from typing import Any

Action = Callable[[Any, Any], None]
"""What an event calls, as `action(whom, what)`. Every action takes these two arguments; uniform calls are fastest."""

Entry = tuple[int, Action, Any, Any]
"""(worker, action, whom, what)"""

NO_WORKER = -1
"""The worker number of an event without a worker; such an event comes first."""

_worker = itemgetter(0)


class Agenda:
    """The scheduled events and the clock, in virtual seconds."""

    __slots__ = ("_asked", "_later", "_sequence", "_soon", "_taken", "at_once", "now", "over")

    def __init__(self) -> None:
        self.now = 0.0
        self._asked: list[Entry] = []
        """Events for `now`, in the order in which they were scheduled; not sorted yet."""
        self._soon: list[tuple[int, int, Entry]] = []
        """A heap of the events that were scheduled at `now` for `now`, by (worker, sequence)."""
        self._later: list[tuple[float, int, int, Action, Any, Any]] = []
        """A heap of the events that were scheduled ahead of their time, by (time, worker, sequence)."""
        self._sequence = count()
        self._taken = 0
        self.over = False
        """An action sets this to stop the run: no further event happens."""
        self.at_once: Callable[[Entry], None] = self._asked.append
        """Schedule `action(whom, what)` for `now`: `at_once((worker, action, whom, what))`."""

    def at(self, time: float, worker: int, action: Action, whom: object, what: object) -> None:
        """Schedule `action(whom, what)` for this time, which must not be in the past."""
        if time > self.now:
            heappush(self._later, (time, worker, next(self._sequence), action, whom, what))
        else:
            self._asked.append((worker, action, whom, what))

    @property
    def happened(self) -> int:
        """How many events have happened so far."""
        return self._taken

    def drain(self) -> None:
        """Run until no event is left."""
        self.over = False
        while self.run(1 << 20):
            pass

    def settle(self) -> None:
        """Run the events that are left at the present time."""
        self.over = False
        while self._asked or self._soon or (self._later and self._later[0][0] <= self.now):
            self.run(1)

    def run(self, most: int) -> bool:
        """Run at most `most` events, fewer if an action sets `over`; return False if no event is left."""
        asked, soon, later = self._asked, self._soon, self._later
        left = repeat(None, most)
        for _ in left:
            if asked and (soon or len(asked) > 1 or (later and later[0][0] <= self.now)):
                self._sort_asked()
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

    def _sort_asked(self) -> None:
        """Sort the newly scheduled events into `_soon`. For the same worker, events in `_later` go first."""
        for entry in zip(map(_worker, self._asked), self._sequence, self._asked, strict=False):
            heappush(self._soon, entry)
        self._asked.clear()
