"""A worker's window: how far it may push ahead of the answers of each server.

Between hosts, workers that push as fast as their links allow drift apart: a server has everything from one worker and
nothing from another, and answers nobody, while links carry updates that nobody waits for yet. With a window all workers
push the same buckets at about the same time.

1. Each server's buckets have one order, the same for all workers: the last bucket of the model first, as the backward
   pass finishes them. The first quarter of the model is a section of its own.
2. In each iteration, a worker may push a bucket if it is the first unanswered one of its server and section in that
   order, or if the values from the first unanswered one up to this one fit in the window. Otherwise the bucket is held.
3. An answer moves the window, and the worker pushes the buckets that fit now.
4. The window of the first quarter is four times as large, so these buckets overtake the others. The backward pass
   finishes them last, and the next forward pass needs them first.

Nobody waits for ever: all workers may push the first unanswered bucket of a section, in whatever order their programs
hand in updates. So the server answers it, and the next bucket is the first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from syncline.effects import Ready
from syncline.layout import Bucket
from syncline.messages import NodeId

EARLY_SHARE = 0.25
"""The share of the model that the forward pass needs first."""

EARLY_TIMES = 4
"""How many times as large its window is."""


class _SectionWindow:
    """The window of one section of one server."""

    __slots__ = ("_answered", "_ends", "_first", "_order", "_values", "held", "place")

    def __init__(self, buckets: Collection[Bucket], values: int) -> None:
        self._values = values
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

    def admits(self, place: int) -> bool:
        return place <= self._first or self._ends[place + 1] - self._ends[self._first] <= self._values

    def answered(self, place: int) -> bool:
        """The bucket at this place is answered; returns True if that moves the window."""
        self._answered.add(place)
        moves = place == self._first
        while self._first in self._answered:
            self._answered.discard(self._first)
            self._first += 1
        return moves

    def released(self) -> list[Ready]:
        """Remove and return the held buckets that the window admits, in order."""
        return [self.held.pop(place) for place in sorted(self.held) if self.admits(place)]


class PushWindow:
    """The windows of all servers; `values` is the size of each, but of the first quarter of the model."""

    __slots__ = ("_of", "_values", "_windows")

    def __init__(self, values: int, holder: Mapping[Bucket, NodeId]) -> None:
        self._values = values
        self.name(holder)

    def name(self, holder: Mapping[Bucket, NodeId], answered: Collection[Bucket] = ()) -> None:
        """Follow a placement; `answered`: the buckets that are answered in this iteration. Nothing may be held."""
        early = EARLY_SHARE * max((bucket.stop for bucket in holder), default=0)
        held: dict[tuple[NodeId, bool], list[Bucket]] = {}
        for bucket, server in holder.items():
            held.setdefault((server, bucket.start < early), []).append(bucket)
        self._windows = [
            _SectionWindow(buckets, self._values * (EARLY_TIMES if is_early else 1))
            for (_, is_early), buckets in held.items()
        ]
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
        if not always and window.admits(place):
            return False
        window.held[place] = ready
        return True

    def answered(self, bucket: Bucket) -> list[Ready]:
        """A bucket is answered; returns the updates that may be pushed now."""
        window = self._of[bucket]
        moves = window.answered(window.place[bucket])
        return window.released() if moves and window.held else []

    def released(self) -> list[Ready]:
        """Remove and return the updates that may be pushed now, after a change of the placement."""
        return [ready for window in self._windows for ready in window.released()]

    def empty(self) -> list[Ready]:
        """Remove and return everything that is held."""
        found = [ready for window in self._windows for _, ready in sorted(window.held.items())]
        for window in self._windows:
            window.held.clear()
        return found
