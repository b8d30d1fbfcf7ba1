"""Equal ranges for all servers, with as little movement as possible when servers join or leave."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from syncline.layout import Bucket, Layout
from syncline.parts import Part
from syncline.placement.protocol import Ranges, equal, held_by, total
from syncline.units import whole

MOST_STRIPES = 1 << 20

Held = dict[int, list[Bucket]]
Quota = dict[int, int]
"""By server number: the ranges that a server holds, and the number of values that it shall hold."""


@dataclass(frozen=True)
class Elastic(Part):
    """Split the model vector into equal ranges, regardless of tables; move little when servers join or leave.

    With `stripes`, each server gets this many ranges, dealt in turn. So at any time of the backward pass all servers
    receive updates, not only the one that holds the layers that are computed then.

    After a move every server holds its share to within 1/2 %. The tolerance avoids splitting off tiny pieces, so that
    the pieces do not become smaller with every move.
    """

    name = "elastic"
    stripes: int = 1

    def __post_init__(self) -> None:
        whole(self.stripes, "stripes", 1, MOST_STRIPES)

    def place(self, layout: Layout, servers: int) -> Ranges:
        pieces = equal(0, layout.size, servers * self.stripes)
        return tuple(tuple(piece for piece in pieces[server::servers] if piece.size) for server in range(servers))

    def replace(self, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
        """Take the excess from the end of each server's ranges, and everything from servers that leave.

        The servers that hold less than their share receive it, in the order of their numbers.
        """
        have = {server: list(held_by(held, server)) for server in sorted(servers)}
        quota = _shares(layout.size, have)
        slack = layout.size // len(have) // 300
        free = [piece for server, pieces in enumerate(held) if server not in have for piece in pieces]
        lacking, ahead = _take_away(have, quota, slack, free)
        _hand_out(sorted(free), have, quota, slack, lacking, ahead)
        numbers = range(max(len(held), max(have) + 1))
        return tuple(tuple(sorted(have.get(server, ()))) for server in numbers)


def _shares(values: int, have: Held) -> Quota:
    """Equal shares, up to one value; the servers that hold most get the larger shares."""
    share, more = divmod(values, len(have))
    by_load = sorted(have, key=lambda server: -total(have[server]))
    return {server: share + (place < more) for place, server in enumerate(by_load)}


def _take_away(have: Held, quota: Quota, slack: int, free: list[Bucket]) -> tuple[list[int], int]:
    """Move the excess of each server to `free`; return the servers that hold too little, and `ahead`.

    `ahead` is how much the other servers together hold beyond their shares. It is always in 0..slack, so each of them
    differs from its share by at most `slack`.
    """
    lacking, ahead = [], 0
    for server, pieces in have.items():
        spare = total(pieces) - quota[server] + ahead
        if spare > slack:
            have[server], given = _cut(pieces, total(pieces) - spare, slack)
            free.extend(given)
            spare -= total(given)
        if spare < 0:
            lacking.append(server)
        else:
            ahead = spare
    return lacking, ahead


def _hand_out(free: list[Bucket], have: Held, quota: Quota, slack: int, lacking: list[int], ahead: int) -> None:
    """Give the free pieces to the servers that hold too little; the last takes exactly the rest (`ahead` becomes 0)."""
    for server in lacking:
        needs = quota[server] - total(have[server]) - ahead
        taken, free = _cut(free, needs, slack)
        have[server].extend(taken)
        ahead = total(taken) - needs


def _cut(pieces: Sequence[Bucket], at: int, more: int) -> tuple[list[Bucket], list[Bucket]]:
    """Split the pieces after `at` values, or at the first border in at..at+more; return both parts."""
    borders = [0]
    for piece in pieces:
        borders.append(borders[-1] + piece.size)
    at = next((border for border in borders if at <= border <= at + more), at)
    before, after = [], []
    for start, piece in zip(borders, pieces, strict=False):
        middle = piece.start + min(max(at - start, 0), piece.size)
        before.append(Bucket(piece.start, middle))
        after.append(Bucket(middle, piece.stop))
    return [piece for piece in before if piece.size], [piece for piece in after if piece.size]
