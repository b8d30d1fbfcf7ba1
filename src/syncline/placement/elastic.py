"""Equal ranges, and as few moves as may be when servers come and go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from syncline.layout import Bucket, Layout
from syncline.parts import Part
from syncline.placement.protocol import Ranges, equal, held_by, total

Held = dict[int, list[Bucket]]
Quota = dict[int, int]
"""For each server number what it has, and how much it is to have."""


@dataclass(frozen=True)
class Elastic(Part):
    """Cut the model vector into equal ranges, whatever the tables; when servers come or go, move as little as may be.

    Afterwards no server holds more than 1/2 % more or less than its share; that much is left where it is rather than
    cut off, so that pieces do not get smaller with every move.
    """

    name = "elastic"

    def place(self, layout: Layout, servers: int) -> Ranges:
        return tuple((piece,) for piece in equal(0, layout.size, servers))

    def replace(self, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
        """Whoever has more than its share gives from its end, whoever leaves gives all; the rest take it in turn."""
        have = {server: list(held_by(held, server)) for server in sorted(servers)}
        quota = _shares(layout.size, have)
        slack = layout.size // len(have) // 256
        free = [piece for server, pieces in enumerate(held) if server not in have for piece in pieces]
        lacking, ahead = _take_away(have, quota, slack, free)
        _hand_out(sorted(free), have, quota, slack, lacking, ahead)
        numbers = range(max(len(held), max(have) + 1))
        return tuple(tuple(sorted(have.get(server, ()))) for server in numbers)


def _shares(values: int, have: Held) -> Quota:
    """Equal shares, to one value; the larger ones for those who have most."""
    share, more = divmod(values, len(have))
    by_load = sorted(have, key=lambda server: -total(have[server]))
    return {server: share + (place < more) for place, server in enumerate(by_load)}


def _take_away(have: Held, quota: Quota, slack: int, free: list[Bucket]) -> tuple[list[int], int]:
    """Add to `free` what anyone has too much; who has too little, and `ahead`.

    That is how much those who are settled have together beyond their shares: at any time from 0 to `slack`, so that
    each of them differs from its share by no more than that.
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
    """Give the free pieces to those who lack something; the last needs just what is left, and `ahead` is 0 then."""
    for server in lacking:
        needs = quota[server] - total(have[server]) - ahead
        taken, free = _cut(free, needs, slack)
        have[server].extend(taken)
        ahead = total(taken) - needs


def _cut(pieces: Sequence[Bucket], at: int, more: int) -> tuple[list[Bucket], list[Bucket]]:
    """The pieces before this many values and those after; at a border, if one is there or so many values later."""
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
