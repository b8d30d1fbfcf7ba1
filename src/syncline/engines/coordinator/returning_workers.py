"""Workers that were lost and may come back, because their launcher starts them again (`syncline run --restarts`).

1. A worker whose connection ends may come back. The launcher says whether it will, as soon as the process has ended; if
   it says nothing for `WORD_SECONDS`, the worker will not.
2. While a worker may come back, no model begins without it, and no model ends because nobody is left.
3. It is back when it asks to join, or holds the first parameters of a model that begins.
"""

from __future__ import annotations

from math import inf

WORD_SECONDS = 10.0
"""How long the launcher has to notice that a process has ended. On a host that is not overloaded it takes milliseconds.
"""


class ReturningWorkers:
    """Empty, and stays so, unless restarts are `allowed`; `expected`: so many workers are the launcher's own."""

    def __init__(self, allowed: bool, expected: int) -> None:
        self.allowed = allowed
        self._expected = expected
        self._until: dict[int, float] = {}
        """By worker number: when it is no longer waited for; for ever, if the launcher has said that it comes."""

    def __bool__(self) -> bool:
        return bool(self._until)

    def __contains__(self, number: int) -> bool:
        return number in self._until

    def lost(self, number: int, now: float) -> None:
        """A worker's connection has ended without a word."""
        if self.allowed and number < self._expected:
            self._until.setdefault(number, now + WORD_SECONDS)

    def word(self, number: int, again: bool) -> None:
        """The launcher says that the process has ended, and whether it starts another one."""
        if again:
            self._until[number] = inf
        else:
            self._until.pop(number, None)

    def back(self, number: int) -> None:
        self._until.pop(number, None)

    def overdue(self, now: float) -> list[int]:
        """Take out those of whom the launcher has said nothing in time."""
        found = [number for number, until in self._until.items() if now > until]
        for number in found:
            del self._until[number]
        return found
