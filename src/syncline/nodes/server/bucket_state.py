"""The state of a bucket without its arrays: what it knows about workers and rounds."""

from __future__ import annotations

from typing import NamedTuple

from syncline.messages import Push
from syncline.nodes.server.kept_updates import KeptUpdates, LastUpdates, Who
from syncline.nodes.server.paces import Paces
from syncline.nodes.server.parked_pulls import ParkedPulls


class BucketState(NamedTuple):
    """The bucket's own objects, not copies. bucket.py and the message `Handover` explain the fields."""

    version: int
    v: int
    bound: int
    applied: int
    """The last round whose updates were applied when it closed."""
    unruly: int
    pushed: dict[int, set[Who]]
    seen: dict[int, Push]
    late: dict[int, Push]
    pulled: dict[int, tuple[int, int]]
    kept: KeptUpdates
    last: LastUpdates
    lot: ParkedPulls
    paces: Paces
    contained: dict[int, tuple[int, int]]
    unanswered: dict[int, tuple[int, int]]
