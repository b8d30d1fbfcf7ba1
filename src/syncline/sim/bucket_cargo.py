"""Buckets as they travel: how many bytes each is, and the last copy of its parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from syncline.layout import Bucket, Layout, Payload
from syncline.strategies.protocol import Strategy


@dataclass(slots=True, eq=False)
class Cargo:
    """What the world knows of a bucket; `snapshot` is copied once a version, for all who get it."""

    place: int
    """Where it stands among the pieces of a model; -1: it is a part of one."""
    pushed: int
    """The payload bytes of an update, unless its header says otherwise."""
    pulled: int
    """The payload bytes of the parameters, unless the header says otherwise."""
    version: int = -1
    snapshot: Payload | None = None


class CargoTable(dict[Bucket, Cargo]):
    """By bucket; one that a move has cut is cargo of its own."""

    def __init__(self, buckets: Sequence[Bucket], strategy: Strategy, layout: Layout) -> None:
        super().__init__((each, Cargo(n, *strategy.wire_bytes(layout, each))) for n, each in enumerate(buckets))
        self._strategy = strategy
        self._layout = layout

    def __missing__(self, bucket: Bucket) -> Cargo:
        self[bucket] = cargo = Cargo(-1, *self._strategy.wire_bytes(self._layout, bucket))
        return cargo
