"""A start that takes long: which hosts, workers and servers have not arrived, and what the user can try.

1. The line comes FIRST_SECONDS after the coordinator has started, and then at growing intervals, until training begins.
2. While a host is missing, only hosts are named: its workers and servers cannot be there.
3. When it comes, every launcher checks its own host (launch/late_start.py).
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from syncline.engines.coordinator.first_hosts import FIRST_SECONDS, FirstHosts
from syncline.engines.coordinator.roster import Roster
from syncline.engines.coordinator.waiting import listed

TRY_HOSTS = (
    "start it there too, with its own rank; if it runs there already, check the way between the hosts with "
    "syncline doctor --listen here and --join there"
)
TRY_SERVERS = "look at the lines of the server's launcher"
TRY_CONNECT = "its program loads, or has not called syncline.connect() yet; --log-dir keeps its output"
TRY_DECLARE = "its program has connected, and has not called session.distribute() or session.tables() yet"


class StartWatch:
    """Watches a start with `expected` workers and `count` servers, on the hosts of `hosts`."""

    def __init__(self, hosts: FirstHosts, roster: Roster, expected: int, count: int) -> None:
        self._hosts = hosts
        self._roster = roster
        self._expected = expected
        self._count = count
        self._begun = -inf
        self._pause = FIRST_SECONDS
        self.has_spoken = False

    def line(self, absent: Collection[int], now: float) -> str | None:
        """The line for the user, if it is due; `absent`: workers that will not come."""
        if self._begun == -inf:
            self._begun = now
        if self._hosts.missing:
            text = self._hosts.line(now)
            self.has_spoken |= text is not None
            return None if text is None else f"{text}: {TRY_HOSTS}"
        waited = now - self._begun
        if waited < self._pause:
            return None
        names, tries = self._missing(absent)
        if not names:
            return None
        self._pause = max(2 * self._pause, waited)
        self.has_spoken = True
        return f"waiting for {listed(names)} for {waited:.0f} s: {'; '.join(tries)}"

    def _missing(self, absent: Collection[int]) -> tuple[list[str], list[str]]:
        """Who has not arrived, and what to try."""
        servers = sorted(self._roster.first_servers() - self._roster.servers.keys())
        workers = [number for number in range(self._expected) if number not in absent]
        entries = self._roster.workers
        away = [number for number in workers if number not in entries]
        silent = [
            number
            for number in workers
            if number in entries and all(peer.trained is None for peer in entries[number].peers)
        ]
        names = [
            *(f"worker {number} (not connected)" for number in away),
            *(f"worker {number} (has no model yet)" for number in silent),
            *(f"server {number} (not connected)" for number in servers),
        ]
        tries = {TRY_CONNECT: away, TRY_DECLARE: silent, TRY_SERVERS: servers}
        return names, [text for text, who in tries.items() if who]
