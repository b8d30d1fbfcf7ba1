"""stdout and stderr of the command: a full disk costs the text that does not fit, never the run.

If the reader of a pipe goes away (`syncline run ... | head`), writing still fails, and the command ends.
"""

from __future__ import annotations

import io
import os
import sys
from errno import EPIPE
from typing import TextIO


class ReaderGone(BrokenPipeError):
    """Nobody reads the output of this command any more."""


class Streams:
    """Both streams, from `guard` on."""

    def __init__(self) -> None:
        self.lost = False
        """True if some text could not be written."""

    def guard(self) -> None:
        """Replace both streams of this process; leave those alone that a test or a notebook has put in their place."""
        open_missing()
        if sys.stdout in (sys.__stdout__, None):
            sys.stdout = self._guarded(1, sys.__stdout__)
        if sys.stderr in (sys.__stderr__, None):
            sys.stderr = self._guarded(2, sys.__stderr__)

    def lose(self, fd: int, error: OSError) -> None:
        """Text could not be written: remember it, and say it once, on the other stream."""
        before, self.lost = self.lost, True
        if fd == 1 and not before:
            print(f"syncline: stdout: {error.strerror}; the rest of the output is lost", file=sys.stderr)

    def _guarded(self, fd: int, before: TextIO | None) -> TextIO:
        encoding, errors = ("utf-8", "backslashreplace") if before is None else (before.encoding, before.errors)
        raw = io.BufferedWriter(_Guarded(fd, self))
        return io.TextIOWrapper(raw, encoding, errors, line_buffering=True, write_through=True)


class _Guarded(io.FileIO):
    """An open file that discards what it cannot write, unless nobody reads it any more."""

    def __init__(self, fd: int, streams: Streams) -> None:
        super().__init__(fd, "w", closefd=False)
        self._streams = streams

    def write(self, data: object, /) -> int:
        try:
            return super().write(data)  # type: ignore[arg-type]
        except OSError as error:
            if error.errno == EPIPE:
                raise ReaderGone(*error.args) from None
            self._streams.lose(self.fileno(), error)
            return memoryview(data).nbytes  # type: ignore[arg-type]


def open_missing() -> None:
    """Open /dev/null for the standard streams that were closed: else files and sockets get their numbers."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number


def discard() -> None:
    """Redirect stdout and stderr to /dev/null; otherwise Python would report an error at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
