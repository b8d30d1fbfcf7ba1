"""Workers that wait for a long time, and the line that tells the user for whom.

1. A worker reports when it has waited for some seconds in one call, and when that wait is over.
2. The run waits for the workers that take part and do not wait themselves. If all of them wait, it waits for those
   that wait for all others in a call such as barrier(); if there is none, for a server.
3. The line comes at once, then after a minute, and after that in intervals that double. If the run waits for other
   processes than the last line named, the line comes at once again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from syncline.engines.coordinator.roster import Roster, RosterEntry
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello

FIRST_PAUSE = 60.0
"""Seconds between the first line and the second; every further pause is twice as long."""

LONGEST_PAUSE = 1800.0

MOST_NAMES = 8
"""How many processes one line names."""


class WaitingWorkers:
    """Which connections of workers wait, and since when."""

    def __init__(self) -> None:
        self._since: dict[Connection, float] = {}
        self._still: set[Connection] = set()
        """Those to which nothing has come for a while, though everything that they sent has arrived."""
        self._named: Sequence[str] = ()
        self._next = 0.0
        self._pause = FIRST_PAUSE

    def __bool__(self) -> bool:
        return bool(self._since)

    def heard(self, wire: Connection, seconds: float, now: float, still: bool = False) -> None:
        """A worker has waited for this long; 0: its wait is over."""
        self.forget(wire)
        if seconds:
            self._since[wire] = now - seconds
            if still:
                self._still.add(wire)

    def is_still(self, wire: Connection) -> bool:
        return wire in self._still

    def forget(self, wire: Connection) -> None:
        self._since.pop(wire, None)
        self._still.discard(wire)

    def awaited(
        self, needed: Iterable[int], roster: Roster, is_stopped: Callable[[Hello], bool], calls: Mapping[int, str]
    ) -> list[str]:
        """The processes for which the run waits, by rule 2; `calls`: in which call a worker waits for all others."""

        def described(role: str, number: int, entry: RosterEntry | None) -> str:
            state = "not connected" if entry is None else "stopped" if is_stopped(entry.hello) else ""
            return f"{role} {number}{state and f' ({state})'}"

        entries = {number: roster.workers.get(number) for number in sorted(needed)}
        missing = {number: entry for number, entry in entries.items() if not self._waits(entry)}
        names = [described("worker", *each) for each in missing.items()]
        names = names or [f"worker {number} (in {calls[number]}, where it waits for all)" for number in sorted(calls)]
        return names or [described("server", *each) for each in sorted(roster.servers.items())] or ["each other"]

    def _waits(self, entry: RosterEntry | None) -> bool:
        return entry is not None and any(peer.wire in self._since for peer in entry.peers)

    def line(self, names: Sequence[str], now: float) -> str | None:
        """The line for the user, if it is due; `names`: the processes for which the run waits."""
        if not self._since or (now < self._next and names == self._named):
            return None
        self._pause = min(2 * self._pause, LONGEST_PAUSE) if names == self._named else FIRST_PAUSE
        self._named, self._next = names, now + self._pause
        return f"waiting for {listed(names)} for {now - min(self._since.values()):.0f} s"


def listed(names: Sequence[str]) -> str:
    """These names as a text: `worker 1, worker 2 (stopped) and 7 more`."""
    first, more = list(names[:MOST_NAMES]), len(names) - MOST_NAMES
    if more > 0:
        return f"{', '.join(first)} and {more} more"
    return " and ".join(filter(None, (", ".join(first[:-1]), *first[-1:])))
