"""Convert between named tensors and the model vector, and divide the model vector into buckets.

The model vector is one flat float32 array. A table is one named tensor in it. A bucket is a range of the model vector:
neighbouring tables, or a piece of a large table, inside one shard. A bucket's range is its name, so a move may split a
bucket but never merges two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import ceil, isfinite, prod
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

Values = npt.NDArray[np.float32]
"""A piece of the model vector, or of an update to it."""

Payload = npt.NDArray[Any]
"""The data that a message carries beside its header: values, or values that a codec has encoded."""

VALUE_BYTES = 4
"""The model vector is float32."""

LARGEST = float(np.finfo(np.float32).max)
"""The largest finite value of the model vector."""

Offset = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A place in the model vector; a message with another number is not decoded."""

BUCKET_VALUES = (1 << 20) // VALUE_BYTES
"""About 1 MiB: large enough to make the cost of a message negligible, small enough to overlap transfers."""


class Bucket(msgspec.Struct, frozen=True, order=True, array_like=True, cache_hash=True, gc=False):
    """A range of the model vector, in values.

    Updates are sent, applied, counted and answered per bucket.
    """

    start: Offset
    stop: Offset

    @property
    def size(self) -> int:
        return self.stop - self.start

    def __str__(self) -> str:
        return f"values {self.start}..{self.stop}"


Weigh = Callable[[Bucket], tuple[int, int]]
"""The bytes of a bucket's update and of its parameters on the wire, at most."""

Within = Callable[[Bucket, Bucket], slice]
"""(bucket, piece of it) -> the slice of the bucket's array that holds the values of the piece."""


def within(whole: Bucket, piece: Bucket) -> slice:
    """The `Within` of a real model, whose array holds one element per value."""
    return slice(piece.start - whole.start, piece.stop - whole.start)


@dataclass(frozen=True, slots=True)
class Table:
    """One named tensor and where it starts in the model vector."""

    name: str
    shape: tuple[int, ...]
    start: int

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def stop(self) -> int:
        return self.start + self.size


@dataclass(frozen=True)
class Layout:
    """The tables of a model in order, back to back."""

    tables: tuple[Table, ...]

    @classmethod
    def of(cls, shapes: Iterable[tuple[str, Sequence[int]]]) -> Layout:
        """The layout of tensors with these names and shapes, in this order."""
        tables: list[Table] = []
        start = 0
        for name, shape in shapes:
            table = Table(name, tuple(shape), start)
            tables.append(table)
            start = table.stop
        return cls(tuple(tables))

    @property
    def size(self) -> int:
        """The length of the model vector."""
        return self.tables[-1].stop if self.tables else 0

    @cached_property
    def _starts(self) -> list[int]:
        return [table.start for table in self.tables]

    def table_at(self, offset: int) -> Table:
        """The table that holds this value of the model vector."""
        if not 0 <= offset < self.size:
            raise IndexError(f"offset {offset} is outside a model vector of {self.size} values")
        return self.tables[bisect_right(self._starts, offset) - 1]

    def first_not_finite(self, bucket: Bucket, values: Values) -> Table | None:
        """The table of the first NaN or infinity among the values of this bucket, if there is one."""
        bad = np.flatnonzero(~np.isfinite(values))
        return self.table_at(bucket.start + int(bad[0])) if bad.size else None

    def difference(self, other: Layout) -> str | None:
        """A text that describes the first difference between two layouts, or None if they are equal."""
        for number, (mine, theirs) in enumerate(zip(self.tables, other.tables, strict=False)):
            if (mine.name, mine.shape) != (theirs.name, theirs.shape):
                return f"table {number}: {mine.name} {mine.shape} here, {theirs.name} {theirs.shape} there"
        if len(self.tables) != len(other.tables):
            longer = max(self.tables, other.tables, key=len)
            extra = longer[min(len(self.tables), len(other.tables))]
            where = "here" if longer is self.tables else "there"
            return f"table {extra.name} {extra.shape} is only {where}"
        return None


def buckets(
    layout: Layout, ranges: Iterable[Bucket], limit: int = BUCKET_VALUES, by_table: bool = False
) -> tuple[Bucket, ...]:
    """Split the ranges of one shard into buckets of at most `limit` values, at table borders where possible.

    With `by_table=True` no bucket contains values of two tables.
    """
    found: list[Bucket] = []
    for whole in sorted(ranges):
        open_start = whole.start
        for piece in _pieces(layout, whole.start, whole.stop):
            if piece.size > limit or by_table:
                if open_start < piece.start:
                    found.append(Bucket(open_start, piece.start))
                found.extend(_equal_parts(piece, limit))
                open_start = piece.stop
            elif piece.stop - open_start > limit:
                found.append(Bucket(open_start, piece.start))
                open_start = piece.start
        if open_start < whole.stop:
            found.append(Bucket(open_start, whole.stop))
    return tuple(found)


def _pieces(layout: Layout, start: int, stop: int) -> Iterable[Bucket]:
    """The parts of the tables that lie in this range."""
    while start < stop:
        end = min(layout.table_at(start).stop, stop)
        yield Bucket(start, end)
        start = end


def _equal_parts(piece: Bucket, limit: int) -> Iterable[Bucket]:
    parts = ceil(piece.size / limit)
    cuts = [piece.start + piece.size * part // parts for part in range(parts + 1)]
    return (Bucket(start, stop) for start, stop in pairwise(cuts))


def is_finite(values: Values) -> bool:
    """Return True if no value is NaN or infinite.

    A finite sum of squares proves it. Large values can overflow that sum; only then is each value checked.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return isfinite(np.dot(values, values)) or bool(np.isfinite(values).all())


CACHED_VALUES = 1 << 15
"""Values of a block that stays in a core's cache while it is copied and checked."""


def copy_finite(values: Values, out: Values) -> bool:
    """Copy a flat array, and return True if no value is NaN or infinite; memory is read only once."""
    finite = True
    for start in range(0, out.size, CACHED_VALUES):
        block = out[start : start + CACHED_VALUES]
        block[:] = values[start : start + CACHED_VALUES]
        finite = finite and is_finite(block)
    return finite
