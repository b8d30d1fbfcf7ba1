"""The user's own placements: a function as a placement, and the errors for one that returns something wrong."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from syncline.errors import SynclineError, UsageError
from syncline.layout import Bucket, Layout, Table
from syncline.placement.protocol import Placement, Ranges

Kind = TypeVar("Kind")

_RIGHT = "it gets the tables and the number of servers, and must return the tables of each server: [['a', 'b'], ['c']]"


Assign = Callable[[tuple[Table, ...], int], Iterable[Collection[str]]]
"""A function that gets the tables and the number of servers, and returns the names of each server's tables."""


@dataclass(frozen=True)
class Own:
    """Your own function: `assign(tables, servers)` returns, for each server, the names of the tables that it holds."""

    assign: Assign

    def place(self, layout: Layout, servers: int) -> Ranges:
        known = {table.name: Bucket(table.start, table.stop) for table in layout.tables}
        named = asked(self, lambda: self.assign(layout.tables, servers), str, _RIGHT)
        for name in (name for each in named for name in each):
            if name not in known:
                raise UsageError("placement", f"{self} names a table {name!r}, which the model does not have")
        return tuple(tuple(sorted(known[name] for name in each)) for each in named)

    def __str__(self) -> str:
        return str(getattr(self.assign, "__qualname__", self.assign))


def placement_of(given: object) -> Placement:
    """The placement itself, or a function wrapped as a placement."""
    if isinstance(given, Placement) and not isinstance(given, type):
        return given
    if callable(given) and not isinstance(given, type):
        return Own(given)
    raise UsageError("placement", f"{given!r} is neither an object with a method `place` nor a function of the tables")


def asked(placement: Placement, ask: Callable[[], object], kind: type[Kind], right: str) -> list[list[Kind]]:
    """The result of `ask()` as one list of `kind` per server; `right` describes a valid result, for errors."""

    def listed(answer: Any) -> list[Any]:
        if isinstance(answer, str) or not isinstance(answer, Iterable):
            raise UsageError("placement", f"{placement} returns {answer!r:.60}; {right}")
        return list(answer)

    try:
        found = [listed(each) for each in listed(ask())]
    except SynclineError:
        raise
    except Exception as error:  # the user's function may raise anything
        raise UsageError("placement", f"{placement} raised {type(error).__name__}: {error}; {right}") from error
    for each in (each for server in found for each in server):
        if not isinstance(each, kind):
            raise UsageError("placement", f"{placement} returns {each!r:.60} for a server; {right}")
    return found
