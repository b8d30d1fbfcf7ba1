"""The checkpoints of one model on one server: a file for each bucket, and one with the initial values.

1. A file is whole or not there: it is written under another name, and renamed.
2. A server that starts again reads what the process before it has written. A process that was killed has lost nothing
   that it has renamed; the files are not flushed to the disk, because they do not outlive the run.
3. The launcher names the folder and removes it at the end of the run. A server makes it when it first writes.
4. If the strategy names a directory that all hosts share, the folder is there, and its name is derived from the run. If
   a server is lost for good, with its host, others read what it has written. So these files are flushed to the disk.
   The launcher removes this folder too: a link in its own folder leads to it. A server that joins must find it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from shutil import rmtree
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

SHARED = "shared"
"""The name of the link to the folder that all hosts share."""


class CheckpointFolder:
    """Writes and reads checkpoints; `kind`: the type of their states."""

    def __init__(self, folder: str, server: NodeId, model: str, kind: Any, shared: str = "", run: str = "") -> None:
        """`folder`: on this host. `shared`: a directory of all hosts; empty: none. `run`: the identity of the run."""
        self._local = Path(folder)
        self._shared = bool(shared)
        self._top = Path(shared) / f"syncline-{sha256(run.encode()).hexdigest()[:16]}" if shared else self._local
        self._model = model
        self._folder = self._folder_of(server)
        self._kind = kind

    def _folder_of(self, server: NodeId) -> Path:
        return self._top / str(server) / quote(self._model, safe="")

    def check_joined(self) -> None:
        """Raise `RunError` if a server that joins does not see the folder of the run, or cannot write to it."""
        if not self._shared:
            return
        where = self._top.parent
        if not self._top.is_dir():
            raise RunError(f"copies: {where} is not the directory of the other hosts: it has no folder of this run")
        try:
            self._make()
        except OSError as error:
            raise RunError(f"copies: cannot write to {where}: {error.strerror}") from None

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

    def read(self, bucket: Bucket, server: NodeId | None = None) -> Save | None:
        """The last checkpoint of a bucket, of this server or another one; None if there is none."""
        place = (self._folder if server is None else self._folder_of(server)) / _name(bucket)
        try:
            data = place.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise RunError(f"cannot read the checkpoint {place}: {error.strerror}") from None
        (length,) = _LENGTH.unpack_from(data)
        start = _LENGTH.size + length
        header = memoryview(data)[_LENGTH.size : start]
        serial, kind, state = msgspec.msgpack.decode(header, type=tuple[int, str, self._kind])  # type: ignore[name-defined]
        payload = np.frombuffer(data, kind, offset=start) if kind else None
        return Save(bucket, serial, state, payload)

    def _write(self, name: str, parts: Iterable[memoryview]) -> None:
        place, new = self._folder / name, self._folder / f"{name}.new"
        try:
            if not self._folder.is_dir():
                self._make()
            with new.open("wb") as file:
                for part in parts:
                    file.write(part)
                if self._shared:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(new, place)
        except OSError as error:
            raise RunError(f"cannot write the checkpoint {place}: {error.strerror}") from None

    def _make(self) -> None:
        for top in {self._local, self._top}:
            top.mkdir(0o700, exist_ok=True)  # only its owner may read it
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._shared:
            with suppress(FileExistsError):  # another server of this host has made it
                (self._local / SHARED).symlink_to(self._top)


def remove(folder: str) -> None:
    """Remove the checkpoints of a run, also those in the directory of all hosts."""
    shared = Path(folder) / SHARED
    if shared.is_symlink():
        rmtree(shared.resolve(), ignore_errors=True)
    rmtree(folder, ignore_errors=True)


def _name(bucket: Bucket) -> str:
    return f"{bucket.start}-{bucket.stop}"
