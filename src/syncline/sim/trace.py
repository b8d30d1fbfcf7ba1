"""The trace: (time, from, to, kind, progress, bytes) of every message, in the order in which they were sent.

What every message needs is kept short; names, texts and sums are made batch by batch.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import TextIO

import msgspec

from syncline.messages import Message, NodeId, Params, Push

Record = tuple[float, NodeId, NodeId, Message, int]

HEADER = "time,from,to,kind,progress,bytes\n"


class _Middles(dict[tuple[NodeId, NodeId, type[Message]], str]):
    """The middle of a line, which many messages share; each is made once."""

    def __missing__(self, key: tuple[NodeId, NodeId, type[Message]]) -> str:
        source, to, message = key
        self[key] = f",{source},{to},{message.__struct_config__.tag},"
        return self[key]


class TraceLog:
    """Hashes the trace as the text of a CSV file, writes that file if one is given, and adds up the bytes."""

    def __init__(self, file: TextIO | None = None) -> None:
        self.bytes_pushed = 0
        self.bytes_pulled = 0
        self.bytes_wire = 0
        self._hash = sha256()
        self._file = file
        self._batch: list[Record] = []
        self.record: Callable[[Record], None] = self._batch.append
        """Note one message: (time, from, to, header, payload bytes)."""
        self._middles = _Middles()
        self._encode = msgspec.msgpack.Encoder().encode
        self._write(HEADER)

    def flush(self) -> None:
        """Work through what was noted; to be called now and then, to keep the memory small."""
        middles = self._middles
        lines: list[str] = []
        payloads: dict[type[Message], int] = {}
        before, text = -1.0, ""
        for time, source, to, message, size in self._batch:
            kind = type(message)
            if time != before:
                before, text = time, repr(time)
            lines.append(f"{text}{middles[source, to, kind]}{getattr(message, 'progress', -1)},{size}\n")
            if size:
                payloads[kind] = payloads.get(kind, 0) + size
        headers = [each[3] for each in self._batch]
        self.bytes_wire += sum(payloads.values()) + sum(map(len, map(self._encode, headers)))
        self.bytes_pushed += payloads.get(Push, 0)
        self.bytes_pulled += payloads.get(Params, 0)
        self._write("".join(lines))
        self._batch.clear()

    def sha256(self) -> str:
        self.flush()
        return self._hash.hexdigest()

    def _write(self, text: str) -> None:
        self._hash.update(text.encode())
        if self._file is not None:
            self._file.write(text)
