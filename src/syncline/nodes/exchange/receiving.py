"""What a worker has received: the marks of each peer's ranges, and the sums that wait for the end of a step."""

from __future__ import annotations

from collections import Counter

import numpy as np

from syncline.codecs import Codec
from syncline.effects import Deliver, How
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Values
from syncline.nodes.exchange.marks import Marks
from syncline.nodes.exchange.messages import RangeSum
from syncline.nodes.exchange.ranges import FlatMap, Ranges
from syncline.nodes.staleness import Histogram
from syncline.nodes.update_writer import bucket_codec, check_written, decoded


class ReceivedRanges:
    """What this worker has of one peer's updates."""

    __slots__ = ("finished", "incarnation", "left", "marks")

    def __init__(self, incarnation: int, marks: Marks, finished: bool = False) -> None:
        self.incarnation = incarnation
        self.marks = marks
        self.finished = finished
        """Whether the peer makes no further updates, and has sent all: nobody waits for it."""
        self.left = False
        """Whether the peer leaves and takes nothing more."""


class RangeReceiver:
    """Checks and adds up the ranges that arrive."""

    def __init__(self, flat: FlatMap, layout: Layout, codec: Codec, accumulates: bool = True) -> None:
        """`accumulates`: a sum contains all updates that it names; else only the last one."""
        self._flat, self._layout, self._codec, self._accumulates = flat, layout, codec, accumulates
        self._ranges: dict[int, Ranges] = {}
        self._waiting: Values | None = None
        """The sum of what arrived during a step, as a flat array."""
        self._touched: set[int] = set()
        """The numbers of the buckets in which it is not zero."""
        self._kept: list[tuple[int, int, int, Bucket]] = []
        """The first and the last update of each sum that waits, its sender and its range."""
        self._applied: Counter[tuple[int, int]] = Counter()
        """How many sums were applied that were so and so much older than the receiver's clock: the most, the least."""
        self.peers: dict[int, ReceivedRanges] = {}

    @property
    def staleness(self) -> Histogram:
        """How many updates had each staleness, counted per range: the receiver's clock less the update's number.

        An update of a worker that is ahead has a staleness of 0.
        """
        found: Counter[int] = Counter()
        for (most, least), sums in self._applied.items():
            for each in range(least, most + 1):
                found[max(0, each)] += sums
        return found

    def _count(self, first: int, last: int, clock: int) -> None:
        self._applied[clock - (first if self._accumulates else last), clock - last] += 1

    def ranges(self, parts: int) -> Ranges:
        """The ranges of a peer that cuts the model into this many."""
        if parts not in self._ranges:
            self._ranges[parts] = Ranges(self._flat, parts)
        return self._ranges[parts]

    def check(self, peer: ReceivedRanges, message: RangeSum, size: int) -> None:
        """Raise `PeerError` unless this is one of the peer's ranges, with a payload of its size."""
        buckets = self.ranges(len(peer.marks.values)).buckets
        full = message.bucket.size * VALUE_BYTES
        if message.part >= len(buckets) or buckets[message.part] != message.bucket:
            raise PeerError(f"it sent range {message.part} as {message.bucket}, which is not that range")
        if size != (message.size or full) or message.size > full:
            raise PeerError(f"it sent {message.bucket} with a payload of the wrong size: {size:,} bytes")

    def follows(self, peer: ReceivedRanges, message: RangeSum) -> bool:
        """Whether this sum continues what was applied; False: a repeat. `PeerError` if updates are missing between.

        A sum of no updates is what a codec has left of earlier ones.
        """
        mark = peer.marks.values[message.part]
        if message.first == mark + 1 and message.last >= mark:
            return True
        if message.last > mark:
            raise PeerError(f"it sent updates {message.first} to {message.last} of {message.bucket} after {mark}")
        return False

    def values(self, message: RangeSum, payload: Payload | None) -> Values | None:
        """The values of a payload; None if the range holds none."""
        place = self._flat.where(message.bucket)
        if payload is None:
            if message.bucket.size:
                raise PeerError(f"it sent {message.bucket} without values")
            return None
        if payload.dtype != np.uint8:
            if payload.size != place.stop - place.start:
                raise PeerError(f"it sent {message.bucket} with {payload.size:,} values")
            return payload
        codec = bucket_codec(self._codec, self._layout, message.bucket)
        check_written(codec, payload, message.bucket.size)
        return decoded(codec, payload, np.empty(message.bucket.size, np.float32))

    def keep(self, source: int, message: RangeSum, first: int, values: Values) -> None:
        """Keep a sum, which begins with the update `first`, for the end of the step."""
        self._kept.append((first, message.last, source, message.bucket))
        if self._waiting is None:
            self._waiting = np.zeros(self._flat.length, np.float32)
        place = self._flat.where(message.bucket)
        np.add(self._waiting[place], values, self._waiting[place])
        self._touched.update(self._flat.numbers(message.bucket))

    def has_round(self, clock: int) -> bool:
        """Whether exactly the peers' updates up to `clock` are applied, and whole ones of the next round wait."""
        ahead = {number for number, peer in self.peers.items() if max(peer.marks.reached) > clock}
        next_round = {(clock + 1, clock + 1, number, self._flat.whole) for number in ahead}
        one_range = all(len(peer.marks.values) == 1 for peer in self.peers.values())
        return one_range and len(self._kept) == len(ahead) and set(self._kept) == next_round

    def kept(self) -> Values:
        """A copy of the sum of all that waits for the end of the step."""
        return np.zeros(self._flat.length, np.float32) if self._waiting is None else self._waiting.copy()

    def deliver(self, message: RangeSum, first: int, values: Values, clock: int) -> list[Deliver]:
        """Add a sum, which begins with the update `first`, to the replica now; `clock`: the receiver's."""
        self._count(first, message.last, clock)
        start = self._flat.where(message.bucket).start
        return [
            Deliver(bucket, values[place.start - start : place.stop - start], None, How.ADD)
            for bucket, place in self._flat.cut(message.bucket)
        ]

    def deliver_kept(self, clock: int) -> list[Deliver]:
        """Add everything that was kept to the replica; `clock`: the receiver's."""
        if not self._touched:
            return []
        for first, last, *_ in self._kept:
            self._count(first, last, clock)
        self._kept.clear()
        assert self._waiting is not None
        kept, self._waiting = self._waiting, None
        found = [self._flat.buckets[number] for number in sorted(self._touched)]
        self._touched.clear()
        return [Deliver(bucket, kept[self._flat.where(bucket)], None, How.ADD) for bucket in found]
