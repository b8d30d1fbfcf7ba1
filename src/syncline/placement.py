"""Placements: which server holds which ranges of the model vector. Pure functions of the tables.

    uniform      splits every table over all servers
    roundrobin   deals the tables in turn
    balanced     gives each table, largest first, to the server with the least
    elastic      cuts the model vector into equal ranges, whatever the tables; servers may come and go with few moves
    own          a function of yours: which tables each server holds

A placement of your own is a class with `place`; with `replace` as well, it says itself what moves when servers come or
go, and without, everything is placed anew.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout, Table
from syncline.parts import Part

Ranges = tuple[tuple[Bucket, ...], ...]
"""For each server number the ranges that it holds; nothing, where there is no server of this number."""


@runtime_checkable
class Placement(Protocol):
    def place(self, layout: Layout, servers: int) -> Ranges:
        """Give every value of the model vector to exactly one server."""
        ...


@runtime_checkable
class Replacing(Placement, Protocol):
    """A placement that knows what to move when servers come and go."""

    def replace(self, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
        """Where everything is to lie when these servers hold the model, given where it lies now."""
        ...


@dataclass(frozen=True)
class Elastic(Part):
    """Cut the model vector into equal ranges, whatever the tables; when servers come or go, move as little as may be.

    Afterwards no server holds more than 1/2 % more or less than its share; that much is left where it is rather than
    cut off, so that pieces do not get smaller with every move.
    """

    name = "elastic"

    def place(self, layout: Layout, servers: int) -> Ranges:
        return tuple((piece,) for piece in _equal(0, layout.size, servers))

    def replace(self, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
        """Whoever has more than its share gives from its end, whoever leaves gives all; the rest take it in turn."""
        have = {server: list(_held_by(held, server)) for server in sorted(servers)}
        quota = _shares(layout.size, have)
        slack = layout.size // len(have) // 256
        free = [piece for server, pieces in enumerate(held) if server not in have for piece in pieces]
        owed = 0
        for server, pieces in have.items():
            excess = _total(pieces) - quota[server] + owed
            if excess > 0:
                have[server], given = _cut(pieces, _total(pieces) - excess, 0, slack)
                owed = excess - _total(given)
                free.extend(given)
        _hand_out(sorted(free), have, quota, slack)
        numbers = range(max(len(held), max(have) + 1))
        return tuple(tuple(sorted(have.get(server, ()))) for server in numbers)


def _shares(values: int, have: dict[int, list[Bucket]]) -> dict[int, int]:
    """Equal shares, to one value; the larger ones for those who have most."""
    share, more = divmod(values, len(have))
    by_load = sorted(have, key=lambda server: -_total(have[server]))
    return {server: share + (place < more) for place, server in enumerate(by_load)}


def _hand_out(free: list[Bucket], have: dict[int, list[Bucket]], quota: dict[int, int], slack: int) -> None:
    """Give the free pieces to whoever lacks something; the last one takes what is left."""
    lacking = [server for server in have if _total(have[server]) < quota[server]]
    owed = 0
    for server in lacking:
        needs = quota[server] - _total(have[server]) + owed
        taken, left = (free, []) if server == lacking[-1] else _cut(free, needs, slack // 2, slack // 2)
        owed = needs - _total(taken)
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


@dataclass(frozen=True)
class Uniform(Part):
    """Split every table over all servers; which of them begins goes round, so that small tables load all alike."""

    name = "uniform"

    def place(self, layout: Layout, servers: int) -> Ranges:
        held: list[list[Bucket]] = [[] for _ in range(servers)]
        for number, table in enumerate(layout.tables):
            for place, piece in enumerate(_equal(table.start, table.stop, servers)):
                if piece.size:
                    held[(number + place) % servers].append(piece)
        return tuple(map(tuple, held))


@dataclass(frozen=True)
class RoundRobin(Part):
    """Deal the tables in turn."""

    name = "roundrobin"

    def place(self, layout: Layout, servers: int) -> Ranges:
        return tuple(
            tuple(Bucket(table.start, table.stop) for table in layout.tables[server::servers])
            for server in range(servers)
        )


@dataclass(frozen=True)
class Balanced(Part):
    """Sort the tables by size, and give each, largest first, to the server that has least so far."""

    name = "balanced"

    def place(self, layout: Layout, servers: int) -> Ranges:
        held: list[list[Table]] = [[] for _ in range(servers)]
        load = [0] * servers
        for table in sorted(layout.tables, key=lambda table: -table.size):
            least = load.index(min(load))
            held[least].append(table)
            load[least] += table.size
        return tuple(_joined(Bucket(table.start, table.stop) for table in each) for each in held)


@dataclass(frozen=True)
class Own:
    """A function of yours: `assign(tables, servers)` says for each server the names of the tables that it holds."""

    assign: Callable[[tuple[Table, ...], int], Sequence[Collection[str]]]

    def place(self, layout: Layout, servers: int) -> Ranges:
        known = {table.name: Bucket(table.start, table.stop) for table in layout.tables}
        named = self.assign(layout.tables, servers)
        for name in (name for each in named for name in each):
            if name not in known:
                raise UsageError("placement", f"{self} names a table {name!r}, which the model does not have")
        return tuple(tuple(sorted(known[name] for name in each)) for each in named)

    def __str__(self) -> str:
        return str(getattr(self.assign, "__qualname__", self.assign))


PLACEMENTS: tuple[type[Part], ...] = (Elastic, Uniform, RoundRobin, Balanced)


def placement_of(given: object) -> Placement:
    """A placement, or a function that is one."""
    if isinstance(given, Placement) and not isinstance(given, type):
        return given
    if callable(given) and not isinstance(given, type):
        return Own(given)
    raise UsageError("placement", f"{given!r} is neither an object with a method `place` nor a function of the tables")


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
        if not _total(_held_by(ranges, server)):
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


def _held_by(ranges: Ranges, server: int) -> tuple[Bucket, ...]:
    return ranges[server] if server < len(ranges) else ()


def _total(pieces: Iterable[Bucket]) -> int:
    return sum(piece.size for piece in pieces)


def _equal(start: int, stop: int, parts: int) -> list[Bucket]:
    cuts = [start + (stop - start) * part // parts for part in range(parts + 1)]
    return [Bucket(first, last) for first, last in pairwise(cuts)]


def _joined(pieces: Iterable[Bucket]) -> tuple[Bucket, ...]:
    """The same values in as few ranges as possible."""
    found: list[Bucket] = []
    for piece in sorted(pieces):
        if found and found[-1].stop == piece.start:
            found[-1] = Bucket(found[-1].start, piece.stop)
        else:
            found.append(piece)
    return tuple(found)
