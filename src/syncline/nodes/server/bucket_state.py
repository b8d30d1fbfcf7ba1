"""What a bucket knows of its workers and rounds, beside its arrays."""

from __future__ import annotations

from typing import NamedTuple

from syncline.messages import Push
from syncline.nodes.server.kept_updates import KeptUpdates, LastUpdates, Who
from syncline.nodes.server.paces import Paces
from syncline.nodes.server.parked_pulls import ParkedPulls


class BucketState(NamedTuple):
    """All of it, as the bucket itself has it: nothing is copied."""

    version: int
    v: int
    bound: int
    applied: int
    """The last round that was applied at its close."""
    unruly: int
    pushed: dict[int, set[Who]]
    seen: dict[int, Push]
    late: dict[int, Push]
    pulled: dict[int, tuple[int, int]]
    kept: KeptUpdates
    last: LastUpdates
    lot: ParkedPulls
    paces: Paces
