"""Buckets on the simulated network: the bytes that each one takes, and the last copy of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.layout import Bucket, Layout, Payload
from syncline.messages import NodeId
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


class CargoTable(dict[Bucket, Cargo]):
    """The cargo of each bucket. A bucket that a move between servers has cut off gets its own entry."""

    def __init__(self, buckets: Sequence[Bucket], strategy: Strategy, layout: Layout) -> None:
        super().__init__((each, Cargo(n, *strategy.wire_bytes(layout, each))) for n, each in enumerate(buckets))
        self._strategy = strategy
        self._layout = layout

    def __missing__(self, bucket: Bucket) -> Cargo:
        self[bucket] = cargo = Cargo(-1, *self._strategy.wire_bytes(self._layout, bucket))
        return cargo
