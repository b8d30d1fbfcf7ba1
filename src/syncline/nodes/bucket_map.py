"""The buckets of a view in order, to find which of them lie in a range.

A move can cut buckets but never joins two. So a bucket of an earlier view is a row of adjacent buckets in a later one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from functools import lru_cache

from syncline.layout import Bucket
from syncline.messages import Holders, NodeId, server_id


class BucketMap:
    """Which server holds which bucket in a view."""

    __slots__ = ("_order", "_starts", "holder", "holders", "size")

    def __init__(self, holders: Holders) -> None:
        self.holders = holders
        self.holder: Mapping[Bucket, NodeId] = {
            bucket: server_id(number) for number, held in enumerate(holders) for bucket in held
        }
        self.size = sum(bucket.size for bucket in self.holder)
        """The number of values in all buckets."""
        self._order = sorted(self.holder)
        self._starts = [bucket.start for bucket in self._order]

    def inside(self, whole: Bucket) -> list[Bucket]:
        """The buckets that lie completely in this range, in order."""
        first = bisect_left(self._starts, whole.start)
        last = bisect_left(self._starts, whole.stop, first)
        if last > first and self._order[last - 1].stop > whole.stop:
            last -= 1
        return self._order[first:last]

    def around(self, piece: Bucket) -> Bucket | None:
        """The bucket that contains this range; None if no bucket contains it."""
        place = bisect_right(self._starts, piece.start) - 1
        if place < 0 or self._order[place].stop < piece.stop:
            return None
        return self._order[place]

    def holder_of(self, piece: Bucket) -> NodeId | None:
        """The server that holds the bucket that contains this range; None if no bucket contains it."""
        around = self.around(piece)
        return None if around is None else self.holder[around]

    @property
    def is_whole(self) -> bool:
        """Whether the buckets cover the model without gaps or overlaps."""
        stops = [0, *(bucket.stop for bucket in self._order)]
        return self._starts == stops[:-1] and len(self._order) == sum(map(len, self.holders))

    def covers(self, size: int) -> bool:
        """Whether this is a placement of a model with `size` values."""
        return self.is_whole and self.size == size

    def follows(self, before: BucketMap) -> bool:
        """Whether this can be the next placement: the same values, and each bucket is a piece of one in `before`."""
        return self.is_whole and self.size == before.size and set(self._starts).issuperset(before._starts)

    def is_row(self, whole: Bucket) -> bool:
        """Whether this range is a row of complete buckets, as a bucket of an earlier view is."""
        row = self.inside(whole)
        return bool(row) and row[0].start == whole.start and row[-1].stop == whole.stop


@lru_cache(maxsize=4)
def bucket_map_of(holders: Holders) -> BucketMap:
    """The bucket map of these holders, shared by all nodes of the process that have the same view."""
    return BucketMap(holders)
