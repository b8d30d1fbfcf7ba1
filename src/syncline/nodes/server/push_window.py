"""A worker's window: how far it may push ahead of the answers of each server.

Between hosts, workers that push as fast as their links allow drift apart: a server has everything from one worker and
nothing from another, and answers nobody, while links carry updates that nobody waits for yet. With a window all workers
push the same buckets at about the same time.

1. Each server's buckets have one order, the same for all workers: the last bucket of the model first.
2. In each iteration, a worker may push a bucket if it is the first unanswered one of its server in that order, or if
   the values from the first unanswered one up to this one fit in the window. Otherwise the bucket is held.
3. An answer moves the window, and the worker pushes the buckets that fit now.

Nobody waits for ever: all workers may push the first unanswered bucket of a server, in whatever order their programs
hand in updates. So the server answers it, and the next bucket is the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from syncline.effects import Ready
from syncline.layout import Bucket
from syncline.messages import NodeId


class _ServerWindow:
    """The window of one server."""

    __slots__ = ("_answered", "_ends", "_first", "_order", "held", "place")

    def __init__(self, buckets: Collection[Bucket]) -> None:
        self._order = sorted(buckets, reverse=True)
        self.place = {bucket: place for place, bucket in enumerate(self._order)}
        self._ends = [0]
        for bucket in self._order:
            self._ends.append(self._ends[-1] + bucket.size)
        self.held: dict[int, Ready] = {}
        self.begin()

    def begin(self) -> None:
        """A new iteration begins: no bucket is answered."""
        self._first = 0
        self._answered: set[int] = set()

    def admits(self, place: int, values: int) -> bool:
        return place <= self._first or self._ends[place + 1] - self._ends[self._first] <= values

    def answered(self, place: int) -> bool:
        """The bucket at this place is answered; returns True if that moves the window."""
        self._answered.add(place)
        moves = place == self._first
        while self._first in self._answered:
            self._answered.discard(self._first)
            self._first += 1
        return moves

    def released(self, values: int) -> list[Ready]:
        """Remove and return the held buckets that the window admits, in order."""
        return [self.held.pop(place) for place in sorted(self.held) if self.admits(place, values)]


class PushWindow:
    """The windows of all servers; `values` is the size of each."""

    __slots__ = ("_of", "_values", "_windows")

    def __init__(self, values: int, holder: Mapping[Bucket, NodeId]) -> None:
        self._values = values
        self.name(holder)

    def name(self, holder: Mapping[Bucket, NodeId], answered: Collection[Bucket] = ()) -> None:
        """Follow a placement; `answered`: the buckets that are answered in this iteration. Nothing may be held."""
        held: dict[NodeId, list[Bucket]] = {}
        for bucket, server in holder.items():
            held.setdefault(server, []).append(bucket)
        self._windows = [_ServerWindow(buckets) for buckets in held.values()]
        self._of = {bucket: window for window in self._windows for bucket in window.place}
        for bucket in answered:
            self._of[bucket].answered(self._of[bucket].place[bucket])

    def begin(self) -> None:
        """A new iteration begins."""
        for window in self._windows:
            window.begin()

    def holds(self, bucket: Bucket) -> bool:
        window = self._of.get(bucket)
        return window is not None and window.place[bucket] in window.held

    @property
    def is_holding(self) -> bool:
        """Whether any bucket is held."""
        return any(window.held for window in self._windows)

    def hold(self, ready: Ready, always: bool = False) -> bool:
        """Keep an update that the window does not admit yet, or `always`; returns False if it may be pushed now."""
        window = self._of[ready.bucket]
        place = window.place[ready.bucket]
        if not always and window.admits(place, self._values):
            return False
        window.held[place] = ready
        return True

    def answered(self, bucket: Bucket) -> list[Ready]:
        """A bucket is answered; returns the updates that may be pushed now."""
        window = self._of[bucket]
        moves = window.answered(window.place[bucket])
        return window.released(self._values) if moves and window.held else []

    def released(self) -> list[Ready]:
        """Remove and return the updates that may be pushed now, after a change of the placement."""
        return [ready for window in self._windows for ready in window.released(self._values)]

    def empty(self) -> list[Ready]:
        """Remove and return everything that is held."""
        found = [ready for window in self._windows for _, ready in sorted(window.held.items())]
        for window in self._windows:
            window.held.clear()
        return found
