"""Placements by table. When servers join or leave, they place everything again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncline.layout import Bucket, Layout, Table
from syncline.parts import Part
from syncline.placement.protocol import Ranges, equal


@dataclass(frozen=True)
class Uniform(Part):
    """Split every table over all servers; the first server rotates, so that small tables load all servers equally."""

    name = "uniform"

    def place(self, layout: Layout, servers: int) -> Ranges:
        held: list[list[Bucket]] = [[] for _ in range(servers)]
        for number, table in enumerate(layout.tables):
            for place, piece in enumerate(equal(table.start, table.stop, servers)):
                if piece.size:
                    held[(number + place) % servers].append(piece)
        return tuple(map(tuple, held))


@dataclass(frozen=True)
class RoundRobin(Part):
    """Give the tables to the servers in turn."""

    name = "roundrobin"

    def place(self, layout: Layout, servers: int) -> Ranges:
        return tuple(
            tuple(Bucket(table.start, table.stop) for table in layout.tables[server::servers])
            for server in range(servers)
        )


@dataclass(frozen=True)
class Balanced(Part):
    """Sort the tables by size; give each, largest first, to the server that holds the fewest values so far."""

    name = "balanced"

    def place(self, layout: Layout, servers: int) -> Ranges:
        held: list[list[Table]] = [[] for _ in range(servers)]
        load = [0] * servers
        for table in sorted(layout.tables, key=lambda table: -table.size):
            least = load.index(min(load))
            held[least].append(table)
            load[least] += table.size
        return tuple(_joined(Bucket(table.start, table.stop) for table in each) for each in held)


def _joined(pieces: Iterable[Bucket]) -> tuple[Bucket, ...]:
    """The same values in as few ranges as possible."""
    found: list[Bucket] = []
    for piece in sorted(pieces):
        if found and found[-1].stop == piece.start:
            found[-1] = Bucket(found[-1].start, piece.stop)
        else:
            found.append(piece)
    return tuple(found)
