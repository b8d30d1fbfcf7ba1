"""Equal ranges, and as few moves as may be when servers come and go."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from syncline.layout import Bucket, Layout
from syncline.parts import Part
from syncline.placement.protocol import Ranges, equal, held_by, total


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
        owed = 0
        for server, pieces in have.items():
            excess = total(pieces) - quota[server] + owed
            if excess > 0:
                have[server], given = _cut(pieces, total(pieces) - excess, 0, slack)
                owed = excess - total(given)
                free.extend(given)
        _hand_out(sorted(free), have, quota, slack)
        numbers = range(max(len(held), max(have) + 1))
        return tuple(tuple(sorted(have.get(server, ()))) for server in numbers)


def _shares(values: int, have: dict[int, list[Bucket]]) -> dict[int, int]:
    """Equal shares, to one value; the larger ones for those who have most."""
    share, more = divmod(values, len(have))
    by_load = sorted(have, key=lambda server: -total(have[server]))
    return {server: share + (place < more) for place, server in enumerate(by_load)}


def _hand_out(free: list[Bucket], have: dict[int, list[Bucket]], quota: dict[int, int], slack: int) -> None:
    """Give the free pieces to whoever lacks something; the last one takes what is left."""
    lacking = [server for server in have if total(have[server]) < quota[server]]
    owed = 0
    for server in lacking:
        needs = quota[server] - total(have[server]) + owed
        taken, left = (free, []) if server == lacking[-1] else _cut(free, needs, slack // 2, slack // 2)
        owed = needs - total(taken)
        have[server].extend(taken)
        free = left


def _cut(pieces: Sequence[Bucket], at: int, less: int, more: int) -> tuple[list[Bucket], list[Bucket]]:
    """The pieces before this many values and those after; at a border, if one is so few values before or after it."""
    borders = [0]
    for piece in pieces:
        borders.append(borders[-1] + piece.size)
    close = [border for border in borders if at - less <= border <= at + more]
    at = min(close, key=lambda border: abs(border - at)) if close else at
    before, after = [], []
    for start, piece in zip(borders, pieces, strict=False):
        middle = piece.start + min(max(at - start, 0), piece.size)
        before.append(Bucket(piece.start, middle))
        after.append(Bucket(middle, piece.stop))
    return [piece for piece in before if piece.size], [piece for piece in after if piece.size]
