"""Restarts of workers that died: how many are left, and which processes were replaced.

All workers of a launcher share one budget, as with `torchrun --max-restarts`. Unlike torchrun, the launcher restarts
only the worker that died, and the others continue meanwhile.
"""

from __future__ import annotations

from syncline.engines.launch.child import Child


class Restarts:
    """The budget of one launcher; `most`: the number of restarts in total."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0
        self._former: set[int] = set()
        """The process ids of workers that were replaced."""

    @property
    def left(self) -> int:
        return self._most - self._done

    def note(self, child: Child) -> str:
        """Count the restart of this worker, and return the line that reports it."""
        self._done += 1
        self._former.add(child.pid)
        reason = f": {child.reason}" if child.reason else ""
        return f"{child.end}{reason}; it is restarted (restart {self._done} of {self._most})"

    def started(self, child: Child, former: Child) -> None:
        """`child` is the new process that replaces `former`."""
        child.restarts = former.restarts + 1
        self._former.discard(child.pid)

    def was_replaced(self, pid: int) -> bool:
        """Was this process replaced by a new one? Then its end was reported already."""
        return pid in self._former
