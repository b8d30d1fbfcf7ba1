"""What a placement answers, checked: every value on exactly one server, and no server without one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import index

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.placement.own import Own, asked
from syncline.placement.plain import Balanced, RoundRobin
from syncline.placement.protocol import Placement, Ranges, Replacing, held_by, total


def checked(placement: Placement, layout: Layout, servers: int) -> Ranges:
    """The placement's answer, refused unless every value lies on exactly one server and no server is empty."""
    ranges = _ranges(placement, layout, "place(layout, servers)", lambda: placement.place(layout, servers))
    if len(ranges) != servers:
        raise UsageError("placement", f"{placement} answers for {len(ranges)} where {_there_are(servers, 'server')}")
    return _whole(placement, layout, ranges, range(servers))


def replaced(placement: Placement, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
    """Which buckets each of these servers is to hold, given which buckets are held by whom now; checked as well.

    Buckets are cut where the placement says so, and never joined. Numbers that are not among `servers` hold nothing.
    """
    if isinstance(placement, Replacing):
        call = "replace(layout, held, servers)"
        ranges = _ranges(placement, layout, call, lambda: placement.replace(layout, held, servers))
    else:
        placed = checked(placement, layout, len(servers))
        of = dict(zip(sorted(servers), placed, strict=True))
        ranges = tuple(of.get(server, ()) for server in range(max(len(held), max(servers) + 1)))
    if any(pieces and server not in servers for server, pieces in enumerate(ranges)):
        raise UsageError("placement", f"{placement} gives values to a server that is not there")
    _whole(placement, layout, ranges, servers)
    borders = sorted({bucket.start for each in held for bucket in each} | {layout.size})
    return tuple(tuple(_cut_along(sorted(pieces), borders)) for pieces in ranges)


def _ranges(placement: Placement, layout: Layout, call: str, ask: Callable[[], object]) -> Ranges:
    """The answer to this call as ranges of the model."""
    right = f"{call} returns the ranges of each server: ((Bucket(0, 5),), (Bucket(5, 9),))"
    found = asked(placement, ask, Bucket, right)
    try:
        ranges = tuple(tuple(Bucket(index(piece.start), index(piece.stop)) for piece in each) for each in found)
    except TypeError as error:  # numpy's whole numbers are some, but cannot travel
        raise UsageError("placement", f"{placement} has a range whose ends are no whole numbers: {error}") from error
    for piece in (piece for each in ranges for piece in each):
        if not 0 <= piece.start <= piece.stop <= layout.size:
            raise UsageError("placement", f"{placement} has the {piece} of a model with {layout.size}")
    return ranges


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
            most = _there_are(layout.size, "value")
            if isinstance(placement, RoundRobin | Balanced | Own):
                most = _there_are(len(layout.tables), "table")
            raise UsageError("servers", f"{placement} leaves server {server} of {len(servers)} without a value; {most}")
    at = 0
    for piece in sorted(piece for held in ranges for piece in held):
        if piece.start != at:
            table = layout.table_at(min(at, piece.start))
            fault = "leaves out" if piece.start > at else "gives twice"
            raise UsageError("placement", f"{placement} {fault} values of table {table.name!r}")
        at = piece.stop
    if at < layout.size:
        raise UsageError("placement", f"{placement} leaves out values of table {layout.table_at(at).name!r}")
    return ranges


def _there_are(count: int, what: str) -> str:
    return f"there is 1 {what}" if count == 1 else f"there are {count} {what}s"
