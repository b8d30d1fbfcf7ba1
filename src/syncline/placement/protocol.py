"""The interface of a placement, which assigns every value of the model vector to one server."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import pairwise
from typing import Protocol, runtime_checkable

from syncline.layout import Bucket, Layout

Ranges = tuple[tuple[Bucket, ...], ...]
"""The ranges that each server holds, indexed by server number; empty if no server has that number."""


@runtime_checkable
class Placement(Protocol):
    def place(self, layout: Layout, servers: int) -> Ranges:
        """Assign every value of the model vector to exactly one server."""
        ...


@runtime_checkable
class Replacing(Placement, Protocol):
    """A placement that decides what moves when servers join or leave."""

    def replace(self, layout: Layout, held: Ranges, servers: Collection[int]) -> Ranges:
        """The ranges that these servers shall hold, given the ranges that each server holds now."""
        ...


def held_by(ranges: Ranges, server: int) -> tuple[Bucket, ...]:
    return ranges[server] if server < len(ranges) else ()


def total(pieces: Iterable[Bucket]) -> int:
    return sum(piece.size for piece in pieces)


def equal(start: int, stop: int, parts: int) -> list[Bucket]:
    cuts = [start + (stop - start) * part // parts for part in range(parts + 1)]
    return [Bucket(first, last) for first, last in pairwise(cuts)]
