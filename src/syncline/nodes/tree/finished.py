"""How many iterations each worker has finished, as far as its pushes to one node show.

A worker has finished an iteration if the node has its push of every bucket. It has also finished all iterations before
the one of its last push: without `durable`, a push that was acknowledged can be lost with a node, and the worker does
not send it again.

A node asks for this at every answer. So it is counted push by push, instead of looked up in all buckets each time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class FinishedIterations:
    """Counts the pushes of each worker. Whoever changes what buckets hold in another way must `forget` the counts."""

    __slots__ = ("_buckets", "_counted", "_pushed")

    def __init__(self, buckets: int, pushed: Callable[[int, int], Iterable[int]]) -> None:
        """`pushed`: the last iteration that each bucket has of a worker, by worker and incarnation; -1: none."""
        self._buckets = buckets
        self._pushed = pushed
        self._counted: dict[tuple[int, int], tuple[int, int]] = {}
        """For each worker and incarnation: the last iteration of its pushes, and how many buckets have it."""

    def forget(self) -> None:
        self._counted.clear()

    def took(self, worker: int, incarnation: int, progress: int) -> None:
        """A bucket has taken this push, which is newer than all that it had of the worker."""
        who = (worker, incarnation)
        if who in self._counted:
            last, buckets = self._counted[who]
            if progress >= last:
                self._counted[who] = (progress, buckets + 1 if progress == last else 1)

    def worker(self, worker: int, incarnation: int) -> int:
        """How many iterations this worker has finished."""
        who = (worker, incarnation)
        if who not in self._counted:
            pushed = list(self._pushed(worker, incarnation))
            last = max(pushed, default=-1)
            self._counted[who] = (last, pushed.count(last))
        last, buckets = self._counted[who]
        return last + 1 if buckets == self._buckets else last
