"""What a placement answers, checked: every value on exactly one server, and no server without one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.placement.own import Own
from syncline.placement.plain import Balanced, RoundRobin
from syncline.placement.protocol import Placement, Ranges, Replacing, held_by, total


def checked(placement: Placement, layout: Layout, servers: int) -> Ranges:
    """The placement's answer, refused unless every value lies on exactly one server and no server is empty."""
    ranges = placement.place(layout, servers)
    if len(ranges) != servers:
        raise UsageError("placement", f"{placement} names {len(ranges)} servers where there are {servers}")
    return _whole(placement, layout, ranges, range(servers))


def replaced(placement: Placement, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
    """Which buckets each of these servers is to hold, given which buckets are held by whom now; checked as well.

    Buckets are cut where the placement says so, and never joined. Numbers that are not among `servers` hold nothing.
    """
    if isinstance(placement, Replacing):
        ranges = placement.replace(layout, held, servers)
    else:
        placed = checked(placement, layout, len(servers))
        of = dict(zip(sorted(servers), placed, strict=True))
        ranges = tuple(of.get(server, ()) for server in range(max(len(held), max(servers) + 1)))
    if any(pieces and server not in servers for server, pieces in enumerate(ranges)):
        raise UsageError("placement", f"{placement} gives values to a server that is not there")
    _whole(placement, layout, ranges, servers)
    borders = sorted({bucket.start for each in held for bucket in each} | {layout.size})
    return tuple(tuple(_cut_along(sorted(pieces), borders)) for pieces in ranges)


def _cut_along(pieces: Iterable[Bucket], borders: Sequence[int]) -> Iterable[Bucket]:
    """The pieces, cut at these borders."""
    place = 0
    for piece in pieces:
        start = piece.start
        while start < piece.stop:
            while borders[place] <= start:
                place += 1
            stop = min(piece.stop, borders[place])
            yield Bucket(start, stop)
            start = stop


def _whole(placement: Placement, layout: Layout, ranges: Ranges, servers: Collection[int]) -> Ranges:
    for server in sorted(servers):
        if not total(held_by(ranges, server)):
            most = f"{layout.size} values"
            if isinstance(placement, RoundRobin | Balanced | Own):
                most = f"{len(layout.tables)} tables"
            raise UsageError(
                "servers", f"{placement} leaves server {server} of {len(servers)} without a value; there are {most}"
            )
    at = 0
    for piece in sorted(piece for held in ranges for piece in held):
        if piece.start != at:
            table = layout.table_at(min(at, piece.start))
            fault = "leaves out" if piece.start > at else "gives twice"
            raise UsageError("placement", f"{placement} {fault} values of table {table.name!r}")
        at = piece.stop
    if at < layout.size:
        raise UsageError("placement", f"{placement} leaves out values of table {layout.table_at(at).name!r}")
    if at > layout.size:
        raise UsageError("placement", f"{placement} ends at value {at} of {layout.size}")
    return ranges
