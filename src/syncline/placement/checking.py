"""Check the result of a placement: every value is on exactly one server, and every server holds at least one value."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from operator import index

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.placement.own import Own, asked
from syncline.placement.plain import Balanced, RoundRobin
from syncline.placement.protocol import Placement, Ranges, Replacing, held_by, total


def checked(placement: Placement, layout: Layout, servers: int) -> Ranges:
    """The result of `placement.place`; UsageError unless every value is on one server and no server is empty."""
    ranges = _ranges(placement, layout, "place(layout, servers)", lambda: placement.place(layout, servers))
    if len(ranges) != servers:
        given = _counted(len(ranges), "server")
        raise UsageError("placement", f"{placement} returns ranges for {given}, but the run has {servers}")
    return _whole(placement, layout, ranges, range(servers))


def replaced(placement: Placement, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
    """The buckets that each of these servers shall hold, given the buckets that each server holds now; also checked.

    Buckets are split where the placement says so, and never merged. A number that is not in `servers` holds nothing.
    """
    if isinstance(placement, Replacing):
        call = "replace(layout, held, servers)"
        ranges = _ranges(placement, layout, call, lambda: placement.replace(layout, held, servers))
    else:
        placed = checked(placement, layout, len(servers))
        of = dict(zip(sorted(servers), placed, strict=True))
        ranges = tuple(of.get(server, ()) for server in range(max(len(held), max(servers) + 1)))
    if any(pieces and server not in servers for server, pieces in enumerate(ranges)):
        raise UsageError("placement", f"{placement} gives values to a server that does not exist")
    _whole(placement, layout, ranges, servers)
    borders = sorted({bucket.start for each in held for bucket in each} | {layout.size})
    return tuple(tuple(_cut_along(sorted(pieces), borders)) for pieces in ranges)


def _ranges(placement: Placement, layout: Layout, call: str, ask: Callable[[], object]) -> Ranges:
    """The result of this call as ranges of the model vector; UsageError if it is malformed."""
    right = f"{call} must return the ranges of each server: ((Bucket(0, 5),), (Bucket(5, 9),))"
    found = asked(placement, ask, Bucket, right)
    try:
        ranges = tuple(tuple(Bucket(index(piece.start), index(piece.stop)) for piece in each) for each in found)
    except TypeError as error:  # index() converts numpy integers, which cannot be sent in messages
        raise UsageError("placement", f"{placement} returns a range whose ends are not integers: {error}") from error
    for piece in (piece for each in ranges for piece in each):
        if not 0 <= piece.start <= piece.stop <= layout.size:
            raise UsageError("placement", f"{placement} returns {piece}, but the model has {layout.size} values")
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
            most = _counted(layout.size, "value")
            if isinstance(placement, RoundRobin | Balanced | Own):
                most = _counted(len(layout.tables), "table")
            problem = f"{placement} gives server {server} of {len(servers)} no values; the model has {most}"
            raise UsageError("servers", problem)
    at = 0
    for piece in sorted(piece for held in ranges for piece in held):
        if piece.start != at:
            table = layout.table_at(min(at, piece.start))
            fault = "on no server" if piece.start > at else "twice"
            raise UsageError("placement", f"{placement} places values of table {table.name!r} {fault}")
        at = piece.stop
    if at < layout.size:
        raise UsageError("placement", f"{placement} places values of table {layout.table_at(at).name!r} on no server")
    return ranges


def _counted(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"
