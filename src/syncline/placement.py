"""Placements: which shard holds which ranges of the model vector. Pure functions of the tables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol, runtime_checkable

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.parts import Part

Ranges = tuple[tuple[Bucket, ...], ...]
"""For each server the ranges that it holds."""


@runtime_checkable
class Placement(Protocol):
    def place(self, layout: Layout, servers: int) -> Ranges:
        """Give every value of the model vector to exactly one server."""
        ...


@dataclass(frozen=True)
class Elastic(Part):
    """Cut the model vector into equal ranges, whatever the tables."""

    name = "elastic"

    def place(self, layout: Layout, servers: int) -> Ranges:
        cuts = [layout.size * server // servers for server in range(servers + 1)]
        return tuple((Bucket(start, stop),) for start, stop in pairwise(cuts))


@dataclass(frozen=True)
class RoundRobin(Part):
    """Deal the tables in turn."""

    name = "roundrobin"

    def place(self, layout: Layout, servers: int) -> Ranges:
        return tuple(
            tuple(Bucket(table.start, table.stop) for table in layout.tables[server::servers])
            for server in range(servers)
        )


PLACEMENTS: tuple[type[Part], ...] = (Elastic, RoundRobin)


def checked(placement: Placement, layout: Layout, servers: int) -> Ranges:
    """The placement's answer, refused unless every value lies on exactly one server and no server is empty."""
    ranges = placement.place(layout, servers)
    if len(ranges) != servers:
        raise UsageError("placement", f"{placement} names {len(ranges)} servers where there are {servers}")
    for server, held in enumerate(ranges):
        if not sum(piece.size for piece in held):
            most = f"{len(layout.tables)} tables" if isinstance(placement, RoundRobin) else f"{layout.size} values"
            raise UsageError(
                "servers", f"{placement} leaves server {server} of {servers} without a value; there are {most}"
            )
    at = 0
    for piece in sorted(piece for held in ranges for piece in held):
        if piece.start != at:
            table = layout.table_at(min(at, piece.start))
            fault = "leaves out" if piece.start > at else "gives twice"
            raise UsageError("placement", f"{placement} {fault} values of table {table.name!r}")
        at = piece.stop
    if at != layout.size:
        raise UsageError("placement", f"{placement} ends at value {at} of {layout.size}")
    return ranges
