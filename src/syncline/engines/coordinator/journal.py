"""The journal of the coordinator: a file with every input of its decisions, and with what they have read.

1. An entry is written before the decisions get it. So whatever a peer has been told follows from what the file has.
2. An entry is 4 bytes for its length and a msgpack array. The last one may be cut off if the process is killed while it
   writes; such an entry was never handled, and is removed.
3. The file is written at once and not flushed to the disk: it has to survive a process, not a machine.
4. It grows with what happens to members, servers and settings, but not with iterations: they are no inputs. The values
   of all-gathers, which a program may make in every iteration, are removed once everybody has the result (`compact`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from struct import Struct

import msgspec

from syncline.errors import RunError

_LENGTH = Struct("<I")

NAME = "journal"

CANNOT_REPLAY = 3
"""The exit code of a coordinator that was started again and cannot continue."""


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """The base class of all entries."""


class Listens(_Entry, frozen=True, tag="listens"):
    """The first entry: where the coordinator listens, so that the next one can listen there too."""

    protocol: int
    unix: str
    tcp: str


class Came(_Entry, frozen=True, tag="came"):
    """A process has connected and sent its first frame."""

    now: float
    wire: int
    near: bool
    header: bytes


class Sent(_Entry, frozen=True, tag="sent"):
    """A peer has sent a frame."""

    now: float
    wire: int
    header: bytes
    shares: bool = False
    """It is a value for an all-gather."""


class ConnectionClosed(_Entry, frozen=True, tag="closed"):
    """A connection has ended."""

    now: float
    wire: int
    reason: str


class ProcessStopped(_Entry, frozen=True, tag="stopped"):
    """A process has been stopped (SIGSTOP) for too long."""

    now: float
    role: str
    number: int
    patience: float


class Deadlocked(_Entry, frozen=True, tag="deadlock"):
    """The workers wait for each other for ever."""

    now: float
    reason: str


class TimersDue(_Entry, frozen=True, tag="timers"):
    """Timers have expired."""

    now: float


class TimePassed(_Entry, frozen=True, tag="look"):
    """Something was due because time has passed."""

    now: float


class FactRead(_Entry, frozen=True, tag="read"):
    """What the decisions have read while they handled the entry before."""

    fact: str | bool | float | list[str]


class RemovedCounts(_Entry, frozen=True, tag="counts"):
    """What was removed from the journal: how many frames were received and sent, by connection."""

    by_wire: dict[int, tuple[int, int]]


Entry = (
    Listens
    | Came
    | Sent
    | ConnectionClosed
    | ProcessStopped
    | Deadlocked
    | TimersDue
    | TimePassed
    | FactRead
    | RemovedCounts
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Entry)


class Journal:
    """Appends entries to the file in this folder, which is made if it is missing."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)
        self.path = self._folder / NAME
        self._file = -1
        self.size = 0
        """In bytes."""
        self.count = 0
        """The number of entries."""

    def open(self) -> list[Entry]:
        """Open the file, and return the entries that it has."""
        self._folder.mkdir(0o700, exist_ok=True)  # only its owner may read it
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        found, self.size = entries_of(self.path.read_bytes())
        os.ftruncate(self._file, self.size)
        self.count = len(found)
        return found

    def add(self, entry: Entry) -> None:
        data = _packed(entry)
        written = os.write(self._file, data)
        if written != len(data):
            raise RunError(f"cannot write {self.path}: the disk is full")
        self.size += written
        self.count += 1

    def cut(self, size: int, count: int) -> None:
        """Remove what was added since the file had this size, and this many entries."""
        os.ftruncate(self._file, size)
        self.size, self.count = size, count

    def rewrite(self, keeps: Callable[[int, Entry], bool], more: Callable[[], Entry]) -> None:
        """Keep some of the entries, by their place and content, then add one. The file changes as a whole or not."""
        found, _ = entries_of(self.path.read_bytes())
        new = self.path.with_suffix(".new")
        kept = [entry for place, entry in enumerate(found) if keeps(place, entry)]
        data = b"".join(map(_packed, [*kept, more()]))
        file = os.open(new, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for start in range(0, len(data), 1 << 20):
            os.write(file, data[start : start + (1 << 20)])
        os.replace(new, self.path)
        os.close(self._file)
        self._file, self.size, self.count = file, len(data), len(kept) + 1

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def _packed(entry: Entry) -> bytes:
    data = _encoder.encode(entry)
    return _LENGTH.pack(len(data)) + data


def entries_of(data: bytes) -> tuple[list[Entry], int]:
    """The whole entries of a journal, and how many bytes they have."""
    found = list(_entries(data))
    return [entry for entry, _ in found], found[-1][1] if found else 0


def _entries(data: bytes) -> Iterator[tuple[Entry, int]]:
    start = 0
    while start + _LENGTH.size <= len(data):
        (length,) = _LENGTH.unpack_from(data, start)
        start += _LENGTH.size + length
        if start > len(data):
            return
        yield _decoder.decode(memoryview(data)[start - length : start]), start
