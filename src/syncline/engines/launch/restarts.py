"""Workers that are started again after they died: how many times that may still happen, and which processes they were.

The budget is for all workers of a launcher together, as with `torchrun --max-restarts`. Unlike under torchrun, only the
worker that died is started again, and the others go on meanwhile.
"""

from __future__ import annotations

from syncline.engines.launch.child import Child


class Restarts:
    """The budget of one launcher; `most`: so many restarts in all."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._done = 0
        self._former: set[int] = set()
        """The process ids of workers that were replaced."""

    @property
    def left(self) -> int:
        return self._most - self._done

    def note(self, child: Child) -> str:
        """This worker is about to be replaced: the line that says so."""
        self._done += 1
        self._former.add(child.pid)
        return f"{child.end}; it is started again (restart {self._done} of {self._most})"

    def started(self, child: Child, former: Child) -> None:
        """`child` is the new process of the worker that `former` was."""
        child.restarts = former.restarts + 1
        self._former.discard(child.pid)

    def was_replaced(self, pid: int) -> bool:
        """Is this a process whose end was told already, and which has a successor?"""
        return pid in self._former
