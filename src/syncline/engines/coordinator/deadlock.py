"""Finds workers that wait for each other for ever, so that the run ends with an error that names them.

Worker 0 waits for all workers in a call such as `barrier()`, or at the first step after `load_state_dict()`. The others
never make that call: they wait for an update of worker 0, or for its part in another call.

1. Every worker that takes part waits: at least one for all others in such a call, the rest elsewhere.
2. A worker that computes, sleeps or loads data does not wait, so it is never taken for part of a deadlock.
3. Those that wait elsewhere are still: what they sent has arrived, and nothing has come back (traffic.py). So a slow
   network is no deadlock either.
4. No server is stopped, joins or leaves, and no worker is about to return.
5. All this has been so for the whole limit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import ceil

from syncline.engines.coordinator.roster import Roster, RosterEntry
from syncline.engines.coordinator.waiting import WaitingWorkers, listed

LIMIT = 12
"""How many times SYNCLINE_PATIENCE a deadlock lasts before the run ends."""


class DeadlockWatch:
    """Looks at intervals whether the workers wait for each other; `limit`: for how many seconds."""

    def __init__(self, waiting: WaitingWorkers, limit: float) -> None:
        self._waiting = waiting
        self._limit = limit
        self._since: float | None = None

    def look(self, needed: Collection[int], roster: Roster, calls: Mapping[int, str], now: float) -> str | None:
        """What to tell the workers if they have waited for each other for too long; `calls` as for `awaited`.

        `needed`: the workers that take part; empty if there is another reason to wait, by rule 4.
        """
        others = [number for number in sorted(needed) if number not in calls]
        if not calls or not others or not all(self._is_still(roster.workers.get(number)) for number in others):
            self._since = None
            return None
        self._since = now if self._since is None else self._since
        if now < self._since + self._limit:
            return None
        seconds, self._since = ceil(now - self._since), None
        return _text(calls, others, seconds)

    def _is_still(self, entry: RosterEntry | None) -> bool:
        return entry is not None and any(self._waiting.is_still(peer.wire) for peer in entry.peers)


def _text(calls: Mapping[int, str], others: Collection[int], seconds: int) -> str:
    where = [f"worker {number} waits in {kind} for all workers" for number, kind in sorted(calls.items())]
    who = listed([f"worker {number}" for number in others])
    verb = "waits" if len(others) == 1 else "wait"
    return (
        f"deadlock for {seconds} s: {listed(where)}, and {who} {verb} in another call; "
        "make the same calls on every worker, in the same order"
    )
