"""A function as a placement."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from syncline.errors import UsageError
from syncline.layout import Bucket, Layout, Table
from syncline.placement.protocol import Placement, Ranges


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


def placement_of(given: object) -> Placement:
    """A placement, or a function that is one."""
    if isinstance(given, Placement) and not isinstance(given, type):
        return given
    if callable(given) and not isinstance(given, type):
        return Own(given)
    raise UsageError("placement", f"{given!r} is neither an object with a method `place` nor a function of the tables")
