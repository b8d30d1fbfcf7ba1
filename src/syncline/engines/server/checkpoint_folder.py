"""The checkpoints of one model on one server: a file for each bucket, and one with the initial values.

1. A file is whole or not there: it is written under another name, and renamed.
2. A server that starts again reads what the process before it has written. A process that was killed has lost nothing
   that it has renamed; the files are not flushed to the disk, because they do not outlive the run.
3. The launcher names the folder and removes it at the end of the run. A server makes it when it first writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from struct import Struct
from typing import Any
from urllib.parse import quote

import msgspec
import numpy as np

from syncline.effects import Save
from syncline.errors import RunError
from syncline.layout import Bucket, Values
from syncline.messages import NodeId

_LENGTH = Struct("<Q")

_FIRST = "first"


class CheckpointFolder:
    """Writes and reads checkpoints; `kind`: the type of their states."""

    def __init__(self, folder: str, server: NodeId, model: str, kind: Any) -> None:
        self._top = Path(folder)
        self._folder = self._top / str(server) / quote(model, safe="")
        self._kind = kind

    def write_first(self, pieces: Mapping[Bucket, Values]) -> None:
        """Keep the initial values."""
        self._write(_FIRST, [pieces[bucket].data for bucket in sorted(pieces)])

    def read_first(self, buckets: Iterable[Bucket]) -> dict[Bucket, Values]:
        """The initial values; `RunError` if this server has never had all of them."""
        order = sorted(buckets)
        try:
            values = np.fromfile(self._folder / _FIRST, np.float32)
        except OSError as error:
            raise RunError(f"cannot start again: {self._folder / _FIRST}: {error.strerror}") from None
        if values.size != sum(bucket.size for bucket in order):
            raise RunError(f"cannot start again: {self._folder / _FIRST} is of another model")
        found, start = {}, 0
        for bucket in order:
            found[bucket] = values[start : start + bucket.size].copy()
            start += bucket.size
        return found

    def write(self, save: Save) -> None:
        """Replace the checkpoint of a bucket."""
        payload = save.payload
        header = msgspec.msgpack.encode((save.serial, "" if payload is None else payload.dtype.str, save.state))
        parts = [memoryview(_LENGTH.pack(len(header))), memoryview(header)]
        self._write(_name(save.bucket), parts if payload is None else [*parts, payload.data])

    def read(self, bucket: Bucket) -> Save | None:
        """The last checkpoint of a bucket; None if there is none."""
        try:
            data = (self._folder / _name(bucket)).read_bytes()
        except FileNotFoundError:
            return None
        (length,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size + length
        header = memoryview(data)[_LENGTH.size : start]
        serial, kind, state = msgspec.msgpack.decode(header, type=tuple[int, str, self._kind])  # type: ignore[name-defined]
        payload = np.frombuffer(data, kind, offset=start) if kind else None
        return Save(bucket, serial, state, payload)

    def _write(self, name: str, parts: Iterable[memoryview]) -> None:
        place, new = self._folder / name, self._folder / f"{name}.new"
        try:
            self._top.mkdir(0o700, exist_ok=True)  # only its owner may read it
            self._folder.mkdir(parents=True, exist_ok=True)
            with new.open("wb") as file:
                for part in parts:
                    file.write(part)
            os.replace(new, place)
        except OSError as error:
            raise RunError(f"cannot write the checkpoint {place}: {error.strerror}") from None


def _name(bucket: Bucket) -> str:
    return f"{bucket.start}-{bucket.stop}"
