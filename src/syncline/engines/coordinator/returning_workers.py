"""Workers that died and may return, because their launcher restarts them (`syncline run --restarts`).

1. A worker whose connection ends may return. The launcher says whether it restarts the worker as soon as the process
   has ended. If the launcher says nothing for `WORD_SECONDS`, the worker will not return.
2. While a worker may return, no model begins without it, and no model ends because it has no members left.
3. A worker has returned when it asks to join, or when it has the initial parameters of a model that begins.
"""

from __future__ import annotations

from math import inf

WORD_SECONDS = 10.0
"""Seconds in which the launcher must report that a process has ended. Normally that takes milliseconds."""


class ReturningWorkers:
    """The workers that may return; empty unless restarts are `allowed`. The launcher starts `expected` workers."""

    def __init__(self, allowed: bool, expected: int) -> None:
        self.allowed = allowed
        self._expected = expected
        self._until: dict[int, float] = {}
        """By worker number: until when we wait for it; for ever if the launcher has said that it restarts it."""

    def __bool__(self) -> bool:
        return bool(self._until)

    def __contains__(self, number: int) -> bool:
        return number in self._until

    def lost(self, number: int, now: float) -> None:
        """A worker's connection has ended before the worker left."""
        if self.allowed and number < self._expected:
            self._until.setdefault(number, now + WORD_SECONDS)

    def word(self, number: int, again: bool) -> None:
        """The launcher says that the process has ended, and whether it restarts it."""
        if again:
            self._until[number] = inf
        else:
            self._until.pop(number, None)

    def back(self, number: int) -> None:
        self._until.pop(number, None)

    def is_overdue(self, now: float) -> bool:
        """Whether `overdue` would return any."""
        return any(now > until for until in self._until.values())

    def overdue(self, now: float) -> list[int]:
        """Remove and return the workers about which the launcher has said nothing in time."""
        found = [number for number, until in self._until.items() if now > until]
        for number in found:
            del self._until[number]
        return found
