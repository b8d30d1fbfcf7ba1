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


def _texts(times: list[float]) -> list[str]:
    """Each in the fewest digits that give it back; all at once, since Python's own `repr` takes as long as a push."""
    return msgspec.json.encode(times).decode()[1:-1].split(",")


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
        batch, middles = self._batch, self._middles
        if not batch:
            return
        times = _texts([record[0] for record in batch])
        self._write(
            "".join(
                [
                    f"{time}{middles[source, to, type(message)]}{getattr(message, 'progress', -1)},{size}\n"
                    for time, (_, source, to, message, size) in zip(times, batch, strict=True)
                ]
            )
        )
        self.bytes_pushed += sum([record[4] for record in batch if type(record[3]) is Push])
        self.bytes_pulled += sum([record[4] for record in batch if type(record[3]) is Params])
        self.bytes_wire += sum([record[4] for record in batch]) + self._headers([record[3] for record in batch])
        batch.clear()

    def _headers(self, messages: list[Message]) -> int:
        """The bytes of these headers: those of a list of them, less the ones that say that it is a list."""
        return len(self._encode(messages)) - len(self._encode([None] * len(messages))) + len(messages)

    def sha256(self) -> str:
        self.flush()
        return self._hash.hexdigest()

    def _write(self, text: str) -> None:
        self._hash.update(text.encode())
        if self._file is not None:
            self._file.write(text)
