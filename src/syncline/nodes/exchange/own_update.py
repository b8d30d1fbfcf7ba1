"""The update that a worker is making: the application hands it in bucket by bucket."""

from __future__ import annotations

import numpy as np

from syncline.effects import Deliver, How
from syncline.layout import Bucket, Values
from syncline.nodes.exchange.ranges import FlatMap


class OwnUpdate:
    """The parts of the current update that were handed in, as a flat array."""

    __slots__ = ("_flat", "_given", "values")

    def __init__(self, flat: FlatMap) -> None:
        self._flat = flat
        self._given: set[Bucket] = set()
        self.values: Values
        """Set before the first update."""

    def __contains__(self, bucket: Bucket) -> bool:
        return bucket in self._given

    @property
    def is_begun(self) -> bool:
        return bool(self._given)

    @property
    def is_complete(self) -> bool:
        return len(self._given) == len(self._flat.buckets)

    def begin(self) -> None:
        """A new step: nothing is handed in."""
        self._given.clear()

    def give(self, bucket: Bucket, change: Values | None, workers: int) -> None:
        """Take one bucket of the change that the optimizer made; None: it made none there."""
        place = self.values[self._flat.where(bucket)]
        if change is None:
            place[:] = 0
        else:
            np.divide(change, np.float32(workers), place)
        self._given.add(bucket)

    def fill(self) -> None:
        """Let what was not handed in count as zero."""
        for bucket in self._flat.buckets:
            if bucket not in self._given:
                self.values[self._flat.where(bucket)] = 0

    def deliver(self) -> list[Deliver]:
        """Add the update to the worker's own replica."""
        return [Deliver(each, self.values[self._flat.where(each)], None, How.ADD) for each in self._flat.buckets]
