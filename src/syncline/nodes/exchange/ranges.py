"""The ranges into which a worker cuts the model, and where their values lie in a worker's flat arrays.

A flat array holds the values of all buckets one after another. In a real model that is the model vector itself.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate

from syncline.layout import Bucket, Within


class FlatMap:
    """Where the values of a piece of the model lie in a flat array."""

    __slots__ = ("_offsets", "_starts", "_within", "buckets", "length", "whole")

    def __init__(self, buckets: Iterable[Bucket], within: Within) -> None:
        self.buckets = tuple(sorted(buckets))
        self._within = within
        self._starts = [bucket.start for bucket in self.buckets]
        lengths = (int(within(bucket, bucket).stop) for bucket in self.buckets)
        self._offsets = [0, *accumulate(lengths)]
        self.length = self._offsets[-1]
        """The number of values of a flat array."""
        self.whole = Bucket(0, self.buckets[-1].stop if self.buckets else 0)

    def where(self, piece: Bucket) -> slice:
        """The place of a range of the model vector in a flat array."""
        return slice(self._at(piece.start), self._at(piece.stop))

    def _at(self, offset: int) -> int:
        if offset >= self.whole.stop:
            return self.length
        number = bisect_right(self._starts, offset) - 1
        bucket = self.buckets[number]
        return self._offsets[number] + int(self._within(bucket, Bucket(offset, bucket.stop)).start)

    def numbers(self, piece: Bucket) -> range:
        """The numbers of the buckets that the piece touches."""
        if not piece.size:
            return range(0)
        return range(bisect_right(self._starts, piece.start) - 1, bisect_right(self._starts, piece.stop - 1))

    def cut(self, piece: Bucket) -> list[tuple[Bucket, slice]]:
        """The piece, cut at the borders of the buckets: each with its place in the flat array, without empty ones."""
        found = []
        for number in self.numbers(piece):
            bucket = self.buckets[number]
            common = Bucket(max(bucket.start, piece.start), min(bucket.stop, piece.stop))
            place = self.where(common)
            if place.stop > place.start:
                found.append((common, place))
        return found


class Ranges:
    """The model, cut into `parts` ranges of nearly equal size."""

    __slots__ = ("buckets", "parts", "places")

    def __init__(self, flat: FlatMap, parts: int) -> None:
        size = flat.whole.stop
        self.parts = parts
        self.buckets = [Bucket(size * part // parts, size * (part + 1) // parts) for part in range(parts)]
        self.places = [flat.where(bucket) for bucket in self.buckets]
