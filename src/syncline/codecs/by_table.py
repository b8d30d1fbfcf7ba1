"""Codecs that choose a codec for each table: `by_size` (by its size) and `per_table` (by its name).

`choose(layout, bucket)` returns the codec of one bucket; the layout says which tables the bucket covers. If these have
different codecs, the bucket is encoded in pieces. Without a layout, values count as one table without a name.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import groupby

import numpy as np

from syncline.codecs.dense import Dense
from syncline.codecs.protocol import Bytes, Chance, Codec, Memory, is_exact, once
from syncline.codecs.sparse import TopK
from syncline.errors import PeerError, UsageError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Table, Values
from syncline.parts import Part
from syncline.units import whole


def codec_for(codec: Codec, layout: Layout, bucket: Bucket) -> Codec:
    """The codec that encodes this bucket: the one that `codec` chooses for it, or `codec` itself."""
    if isinstance(codec, Choice):
        return codec.choose(layout, bucket)
    choose = getattr(codec, "choose", None)
    chosen: Codec = choose(layout, bucket) if choose else codec
    return chosen


class Choice(Part):
    """A codec that chooses another codec for each table."""

    @abstractmethod
    def of_table(self, table: Table) -> Codec:
        """The codec of this table."""

    @abstractmethod
    def of_values(self, values: int) -> Codec:
        """The codec for this many values if their table is unknown."""

    @property
    def exact(self) -> bool:
        return all(is_exact(each) for each in self.choices())

    @abstractmethod
    def choices(self) -> tuple[Codec, ...]:
        """All codecs that it may choose."""

    def choose(self, layout: Layout, bucket: Bucket) -> Codec:
        """The codec of this bucket; neighbouring tables with the same codec are encoded together."""
        runs = groupby(self._tables(layout, bucket), key=lambda each: self.of_table(each[0]))
        pieces = [(codec, _joined(list(tables))) for codec, tables in runs]
        chosen = [(piece.size, codec_for(codec, layout, piece)) for codec, piece in pieces]
        return chosen[0][1] if len(chosen) == 1 else Piecewise(tuple(_flat(chosen)))

    def size(self, values: int) -> int:
        return self.of_values(values).size(values)

    def memory(self, values: int) -> Memory:
        return self.of_values(values).memory(values)

    def encode(self, update: Values, memory: Memory, out: Bytes, chance: Chance) -> Payload:
        return self.of_values(update.size).encode(update, memory, out, chance)

    def check(self, payload: Payload, values: int) -> None:
        self.of_values(values).check(payload, values)

    def decode(self, payload: Payload, out: Values) -> Values:
        return self.of_values(out.size).decode(payload, out)

    def add_into(self, payload: Payload, out: Values) -> None:
        self.of_values(out.size).add_into(payload, out)

    def _tables(self, layout: Layout, bucket: Bucket) -> Iterator[tuple[Table, Bucket]]:
        start = bucket.start
        while start < bucket.stop:
            table = layout.table_at(start)
            stop = min(table.stop, bucket.stop)
            yield table, Bucket(start, stop)
            start = stop


def _joined(tables: list[tuple[Table, Bucket]]) -> Bucket:
    return Bucket(tables[0][1].start, tables[-1][1].stop)


@dataclass(frozen=True)
class BySize(Choice):
    """`small` for tables of fewer than `values` values, `large` for the others.

    Small tables, such as biases, cost few bytes and influence training strongly, so it pays to send them exactly.
    """

    name = "by_size"
    example = "by_size:4096,large=topk:0.01"
    values: int = 4096
    large: Codec = TopK(0.01)
    small: Codec = Dense()

    def __post_init__(self) -> None:
        whole(self.values, "by_size", 1, name="values")

    def of_table(self, table: Table) -> Codec:
        return self.of_values(table.size)

    def of_values(self, values: int) -> Codec:
        return self.small if values < self.values else self.large

    def choices(self) -> tuple[Codec, ...]:
        return self.small, self.large


@dataclass(frozen=True)
class PerTable(Choice):
    """The codec of the first pattern that matches the table's name (`*`: any characters, `?`: one), else `other`."""

    name = "per_table"
    example = "per_table:[*.bias=dense,embed*=topk:0.01],other=fp16"
    tables: tuple[tuple[str, Codec], ...]
    other: Codec = Dense()

    def __post_init__(self) -> None:
        if not self.tables:
            raise UsageError("per_table", f"name at least one table, like {self.example}")
        for pattern, _ in self.tables:
            if not pattern or pattern != pattern.strip() or set(pattern) & set("[]=,"):
                problem = f"{pattern!r} is not a valid pattern: it must not contain '[]=,' or begin or end with blanks"
                raise UsageError("per_table", problem)

    def of_table(self, table: Table) -> Codec:
        return next((codec for pattern, codec in self.tables if fnmatchcase(table.name, pattern)), self.other)

    def of_values(self, values: int) -> Codec:
        return self.other

    def choices(self) -> tuple[Codec, ...]:
        return *(codec for _, codec in self.tables), self.other


@dataclass(frozen=True)
class Piecewise:
    """The codec of a bucket that covers tables with different codecs: it concatenates their payloads.

    If a codec is not `exact`, four bytes in front of its payload give the length. The state spans the whole bucket, so
    that it can be split like the bucket.
    """

    pieces: tuple[tuple[int, Codec], ...]
    """(number of values, their codec) of each piece, in order."""

    name = "pieces"

    @property
    def exact(self) -> bool:
        return all(is_exact(codec) for _, codec in self.pieces)

    @property
    def values(self) -> int:
        return sum(values for values, _ in self.pieces)

    def size(self, values: int) -> int:
        self._expect(values)
        return sum(_head(codec) + codec.size(count) for count, codec in self.pieces)

    def memory(self, values: int) -> Memory:
        self._expect(values)
        names = {name: None for count, codec in self.pieces for name in codec.memory(0)}
        return {name: np.zeros(values, np.float32) for name in names}

    def encode(self, update: Values, memory: Memory, out: Bytes, chance: Chance) -> Payload:
        self._expect(update.size)
        chance = once(chance)
        used = 0
        for values, codec in self._cuts():
            begin = used + _head(codec)
            own = {name: memory[name][values] for name in codec.memory(0)}
            payload = codec.encode(
                update[values], own, out[begin : begin + codec.size(values.stop - values.start)], chance
            )
            if begin > used:
                out[used:begin].view("<u4")[0] = payload.nbytes
            used = begin + payload.nbytes
            if payload.dtype != np.uint8:  # dense: the update itself
                out[begin:used] = payload.view(np.uint8)
        return out[:used]

    def check(self, payload: Payload, values: int) -> None:
        for cut, codec, piece in self._split(payload, values):
            codec.check(piece, cut.stop - cut.start)

    def decode(self, payload: Payload, out: Values) -> Values:
        for values, codec, piece in self._split(payload, out.size):
            read = codec.decode(piece, out[values])
            if not np.may_share_memory(read, out):
                out[values] = read
        return out

    def add_into(self, payload: Payload, out: Values) -> None:
        for values, codec, piece in self._split(payload, out.size):
            codec.add_into(piece, out[values])

    def _cuts(self) -> Iterator[tuple[slice, Codec]]:
        start = 0
        for values, codec in self.pieces:
            yield slice(start, start + values), codec
            start += values

    def _split(self, payload: Payload, values: int) -> list[tuple[slice, Codec, Payload]]:
        """The payloads of the pieces; PeerError if a length is wrong, before anything is decoded."""
        self._expect(values)
        if payload.dtype != np.uint8 or payload.ndim != 1:
            raise PeerError(f"a payload of several pieces must be bytes, not {payload.dtype}{list(payload.shape)}")
        found: list[tuple[slice, Codec, Payload]] = []
        used = 0
        for cut, codec in self._cuts():
            head = _head(codec)
            if payload.size < used + head:
                raise PeerError(f"a payload ends after {payload.size} bytes, before its piece at byte {used}")
            size = int(payload[used : used + head].view("<u4")[0]) if head else codec.size(cut.stop - cut.start)
            found.append((cut, codec, payload[used + head : used + head + size]))
            used += head + size
        if used != payload.size:
            raise PeerError(f"a payload of several pieces must have {used} bytes, not {payload.size}")
        return found

    def _expect(self, values: int) -> None:
        if values != self.values:
            raise PeerError(f"this codec is for a bucket of {self.values} values, not {values}")


def _flat(pieces: list[tuple[int, Codec]]) -> Iterator[tuple[int, Codec]]:
    for values, codec in pieces:
        yield from codec.pieces if isinstance(codec, Piecewise) else ((values, codec),)


def _head(codec: Codec) -> int:
    return 0 if is_exact(codec) else VALUE_BYTES
