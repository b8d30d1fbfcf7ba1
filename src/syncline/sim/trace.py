"""The trace: (time, from, to, kind, progress, bytes) of every message, in the order of sending.

For speed, `record` only appends; names, lines and sums are made per batch, column by column.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from itertools import compress, repeat
from operator import attrgetter, is_
from typing import Any, Protocol

import msgspec

from syncline.messages import Message, NodeId, Params, Push

Record = tuple[float, NodeId, NodeId, Message, int]

HEADER = "time,from,to,kind,progress,bytes\n"


class TextTarget(Protocol):
    """What the trace is written to: a text file, or anything else with `write`."""

    def write(self, text: str, /) -> Any: ...


class _Routes(dict[tuple[NodeId, NodeId, type[Message]], str]):
    """The middle of a line (from, to, kind). Many messages share it, so each one is made once."""

    def __missing__(self, key: tuple[NodeId, NodeId, type[Message]]) -> str:
        source, to, message = key
        self[key] = f"{source},{to},{message.__struct_config__.tag}"
        return self[key]


_encode_lines = msgspec.json.Encoder().encode_lines


def _lines(rows: Iterable[tuple[float, str, int, int]]) -> bytes:
    """Write one line per row, with times in the shortest digits that restore them.

    This encodes the rows as JSON, which is fast, and removes the characters that do not belong into CSV.
    """
    return _encode_lines(rows).translate(None, b'[]"')


_progress = attrgetter("progress")


def _progresses(messages: Sequence[Message]) -> list[int]:
    """The iteration of each message; -1 for a message without one."""
    try:
        return list(map(_progress, messages))
    except AttributeError:
        return [getattr(message, "progress", -1) for message in messages]


def _bytes_of(kind: type[Message], kinds: Iterable[type[Message]], sizes: Iterable[int]) -> int:
    return sum(compress(sizes, map(is_, kinds, repeat(kind))))


class TraceLog:
    """Hashes the trace as CSV text, writes it to the file if one is given, and adds up the bytes."""

    def __init__(self, file: TextTarget | None = None, *, pairs: bool = False) -> None:
        """`pairs`: add up the payload bytes of every sender and receiver too."""
        self.pairs: Counter[tuple[NodeId, NodeId]] | None = Counter() if pairs else None
        self.bytes_pushed = 0
        self.bytes_pulled = 0
        self.bytes_wire = 0
        self._hash = sha256()
        self._file = file
        self._batch: list[Record] = []
        self.record: Callable[[Record], None] = self._batch.append
        """Record one message: (time, from, to, header, payload bytes)."""
        self._pushes: list[type[Message]] = [Push]
        self._routes = _Routes()
        self._encode = msgspec.msgpack.Encoder().encode
        self._write(HEADER.encode())

    def count_as_pushed(self, kinds: Iterable[type[Message]]) -> None:
        """Count the payloads of these kinds of message as pushed bytes too."""
        self._pushes += [kind for kind in kinds if kind not in self._pushes]

    def flush(self) -> None:
        """Process the recorded messages; call this regularly to limit memory use."""
        if not self._batch:
            return
        times, sources, tos, messages, sizes = zip(*self._batch, strict=True)
        self._batch.clear()
        kinds = list(map(type, messages))
        routes = map(self._routes.__getitem__, zip(sources, tos, kinds, strict=True))
        self._write(_lines(zip(times, routes, _progresses(messages), sizes, strict=True)))
        self.bytes_pushed += sum(_bytes_of(kind, kinds, sizes) for kind in self._pushes)
        self.bytes_pulled += _bytes_of(Params, kinds, sizes)
        self.bytes_wire += sum(sizes) + self._headers(messages)
        if self.pairs is not None:
            for source, to, size in zip(sources, tos, sizes, strict=True):
                self.pairs[source, to] += size

    def _headers(self, messages: Sequence[Message]) -> int:
        """The bytes of these headers, encoded as one list, without the bytes of the list itself."""
        return len(self._encode(messages)) - len(self._encode([None] * len(messages))) + len(messages)

    def sha256(self) -> str:
        self.flush()
        return self._hash.hexdigest()

    def _write(self, text: bytes) -> None:
        self._hash.update(text)
        if self._file is not None:
            self._file.write(text.decode())
