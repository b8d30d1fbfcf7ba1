"""Buckets on the simulated network: the bytes that each one takes, and the last copy of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from syncline.layout import Bucket, Layout, Payload
from syncline.messages import Holders, NodeId
from syncline.strategies.protocol import Strategy


@dataclass(slots=True, eq=False)
class Cargo:
    """What the world knows about a bucket. It copies `snapshot` once per version; all receivers share the copy."""

    place: int
    """Its index among the pieces of the model; -1: the bucket is a part of a piece."""
    pushed: int
    """The payload bytes of an update, unless the message header gives another size."""
    pulled: int
    """The payload bytes of the parameters, unless the message header gives another size."""
    version: int = -1
    holder: NodeId | None = None
    """The server that sent this version."""
    snapshot: Payload | None = None


class CargoTable:
    """The cargo of each bucket. A bucket that a view has cut off from another one gets its own entry."""

    def __init__(self, buckets: Sequence[Bucket], strategy: Strategy, layout: Layout) -> None:
        self._strategy = strategy
        self._layout = layout
        self._last: Holders = ()
        self.of = {bucket: self._cargo(bucket, place) for place, bucket in enumerate(buckets)}
        """A plain dictionary: a lookup in any other kind takes several times as long."""

    def learn(self, holders: Holders) -> None:
        """Add the buckets of a new placement."""
        if holders is not self._last:
            self._last = holders
            for bucket in chain.from_iterable(holders):
                self.add(bucket)

    def add(self, bucket: Bucket) -> Cargo:
        """Add a bucket, unless it is known."""
        if bucket not in self.of:
            self.of[bucket] = self._cargo(bucket, -1)
        return self.of[bucket]

    def forget_snapshots(self) -> None:
        """A server has started again: its versions begin anew."""
        for each in self.of.values():
            each.holder = each.snapshot = None

    def _cargo(self, bucket: Bucket, place: int) -> Cargo:
        return Cargo(place, *self._strategy.wire_bytes(self._layout, bucket))
