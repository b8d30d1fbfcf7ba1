"""Heartbeats between the coordinator and the launchers of other hosts.

1. Both sides send `Heartbeat` at intervals, whatever else they send. Neither of them computes, so one that sends
   nothing is stopped, or its host cannot be reached. On a busy machine a beat can be late, so nobody counts as dead
   before `LATE_SECONDS`, however short the patience is.
2. If the silent peer's kernel acknowledges our beats, the host is there and the process is stopped: it counts as dead
   after the patience.
3. Otherwise the host is down, or the network between is cut. TCP repeats what was lost in growing intervals, so after a
   short cut the first word can take as long again as the cut itself. The host counts as gone after `CUT_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from math import inf

from syncline.engines.net.connection import Connection

BEAT_SECONDS = 2.0
"""Seconds between two heartbeats."""

LATE_SECONDS = 10.0
"""Seconds of silence after which the user is told."""

CUT_SECONDS = 30.0
"""Seconds of silence after which a host that does not acknowledge data counts as gone."""


class Silence(Enum):
    """What the silence of a peer means."""

    WELL = "well"
    STOPPED = "stopped"
    GONE = "gone"


class Heartbeats:
    """When to send a beat, and for how long each peer has been silent."""

    def __init__(self, patience: float, unacknowledged: Callable[[Connection], bool]) -> None:
        """`unacknowledged`: is data in flight to this peer?"""
        self._patience = patience
        self._unacknowledged = unacknowledged
        self._last: dict[Connection, float] = {}
        self._next = 0.0

    def due(self, now: float) -> bool:
        """Return True if it is time to send a beat; then the next one is due later."""
        if now < self._next:
            return False
        self._next = now + BEAT_SECONDS
        return True

    def heard(self, wire: Connection, now: float) -> None:
        self._last[wire] = now

    def excuse(self, wire: Connection) -> None:
        """Expect nothing from this peer until it is heard again."""
        self._last[wire] = inf

    def forget(self, wire: Connection) -> None:
        self._last.pop(wire, None)

    def silence(self, wire: Connection, now: float) -> float:
        """For how many seconds this peer has been silent, since the first time that anybody asked."""
        return now - self._last.setdefault(wire, now)

    def verdict(self, wire: Connection, now: float) -> Silence:
        silence = self.silence(wire, now)
        if silence > max(CUT_SECONDS, self._patience):
            return Silence.GONE
        if silence > max(LATE_SECONDS, self._patience) + 2 * BEAT_SECONDS and not self._unacknowledged(wire):
            return Silence.STOPPED
        return Silence.WELL
