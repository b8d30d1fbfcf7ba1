"""What a simulated worker has read last, in runs in which a server may die."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import numpy as np

from syncline.effects import Deliver, How
from syncline.layout import Bucket, Values, Within


class ReadValues:
    """The values of each piece of the model as the servers sent them: parameters, or the mean of a round.

    Pieces that came from a server are never modified, so this keeps references to them.
    """

    def __init__(self, buckets: Sequence[Bucket], pieces: Sequence[Values], within: Within) -> None:
        self._buckets = buckets
        self._pieces = list(pieces)
        self._within = within

    def take(self, deliver: Deliver) -> None:
        """Remember what was delivered, unless it is the worker's own change."""
        place, where = self._find(deliver.bucket)
        whole, values = self._pieces[place], deliver.payload
        if deliver.how is How.ZERO:
            values = np.zeros_like(whole[where])
        if values is None or deliver.how is How.ADD:
            return
        if values.size != whole.size:
            piece = whole.copy()
            piece[where] = values
            values = piece
        self._pieces[place] = values

    def of(self, bucket: Bucket) -> Values:
        """The values of this bucket; read-only."""
        place, where = self._find(bucket)
        return self._pieces[place][where]

    def _find(self, bucket: Bucket) -> tuple[int, slice]:
        """The piece that contains this bucket, and the bucket's place in it."""
        place = bisect_right(self._buckets, bucket.start, key=lambda each: each.start) - 1
        return place, self._within(self._buckets[place], bucket)
