"""The log file of a process (`--log-dir`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

MARK = b"syncline: output of "
"""How every log begins. By this a later run knows that it may overwrite the file."""


class ProcessLog:
    """A copy of a process's output. If it cannot be written (a full disk), `lost` gets a line, and the run goes on."""

    def __init__(self, directory: str, name: str, lost: Callable[[str], None]) -> None:
        self._path = Path(directory) / f"{name}.log"
        self._lost = lost
        self._file: BinaryIO | None = None
        try:
            self._file = self._path.open("wb", buffering=0)
        except OSError as error:
            self._lose(error)
        self.write(MARK + f"{name}\n".encode())

    def write(self, data: bytes) -> None:
        try:
            while data and self._file is not None:
                data = data[self._file.write(data) :]
        except OSError as error:
            self._lose(error)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _lose(self, error: OSError) -> None:
        self.close()
        self._file = None
        self._lost(f"--log-dir: cannot write {str(self._path)!r}: {error.strerror}; the rest of this log is missing")
