"""Servers that come and go in a simulated run: what they are to hold, and how a made-up bucket is cut."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence

from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Values, Within, within
from syncline.messages import Handover
from syncline.nodes.server.bucket_map import Holders
from syncline.nodes.server.coordinator import Replace
from syncline.placement import Placement, replaced
from syncline.sim.scenario import Scenario


def replacing(placement: Placement, layout: Layout) -> Replace:
    """What the coordinator asks when servers come or go."""

    def replace(held: Holders, servers: Collection[int]) -> Holders:
        return replaced(placement, layout, held, servers)

    return replace


def check_placements(scenario: Scenario, replace: Replace, holders: Holders) -> None:
    """Refuse a script whose servers cannot all hold something, before the run."""
    for option, servers in scenario.placements():
        try:
            holders = replace(holders, servers)
        except UsageError as error:
            hint = "; elastic can do with any number of servers up to that of the values"
            raise UsageError(option, error.problem + hint * (error.option == "servers")) from None


def ruler(buckets: Sequence[Bucket], pieces: Sequence[Values]) -> Within:
    """Where a piece lies in a bucket that has fewer real values than it counts: they are spread evenly over it."""
    if all(bucket.size == piece.size for bucket, piece in zip(buckets, pieces, strict=True)):
        return within
    places = [
        bucket.start + bucket.size * number // piece.size
        for bucket, piece in zip(buckets, pieces, strict=True)
        for number in range(piece.size)
    ]

    def where(whole: Bucket, piece: Bucket) -> slice:
        first = bisect_left(places, whole.start)
        return slice(bisect_left(places, piece.start) - first, bisect_left(places, piece.stop) - first)

    return where


def handover_bytes(message: Handover, update_bytes: int) -> int:
    """What a bucket weighs that is handed over: its arrays, and the kept and the last updates."""
    kept = sum(not each.empty for each in message.kept) + len(message.last)
    arrays = 1 + len(message.memory) + len(message.residual)
    return message.bucket.size * VALUE_BYTES * arrays + update_bytes * kept
