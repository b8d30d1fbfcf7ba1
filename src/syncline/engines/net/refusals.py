"""Report refused connections: each of the first few, then at most one line per minute with a count."""

from __future__ import annotations

from time import monotonic

from syncline.engines.process import say

ONE_BY_ONE = 8
PAUSE = 60.0
"""Seconds between two lines, after the first few."""


class RefusalLog:
    """Counts refused connections, and limits the lines about them: a port scan must not flood the terminal."""

    def __init__(self, who: str) -> None:
        self._who = who
        self._count = 0
        self._unreported = 0
        self._next = 0.0

    def sent_away(self, reason: str) -> None:
        self._count += 1
        self._unreported += 1
        if self._count > ONE_BY_ONE and monotonic() < self._next:
            return
        more = f" (and {self._unreported - 1} more)" if self._unreported > 1 else ""
        say(f"{self._who}: refused a connection: {reason}{more}")
        self._unreported = 0
        self._next = monotonic() + PAUSE
