"""The buckets that an application knows, when what comes back comes in pieces of them: which of them are whole."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from syncline.layout import Bucket


class Assembly:
    """Counts the values of each bucket that have come; in an iteration every value comes once."""

    def __init__(self, buckets: Iterable[Bucket]) -> None:
        self._order = sorted(buckets)
        self._whole = frozenset(self._order)
        self._starts = [bucket.start for bucket in self._order]
        self._come: dict[Bucket, int] = {}

    def whole(self, piece: Bucket) -> Bucket | None:
        """A piece has come: the bucket that is whole by it, if one is."""
        if piece in self._whole:
            return piece
        bucket = self._order[bisect_right(self._starts, piece.start) - 1]
        come = self._come.pop(bucket, 0) + piece.size
        if come == bucket.size:
            return bucket
        self._come[bucket] = come
        return None
