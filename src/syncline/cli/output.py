"""The files that a command writes beside its work.

1. They are complete or not there: a file is written under another name, which changes at the end. A device or a pipe is
   written directly.
2. They never cost the work: if one cannot be written (a full disk), the command says so in one line and goes on. It
   then ends with the exit code INCOMPLETE instead of 0.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from tempfile import mkstemp
from typing import Annotated, Self, TextIO

import typer

from syncline.cli.strategy_options import OUTPUT
from syncline.engines.launch.interrupts import delay_interrupts
from syncline.errors import UsageError, one_line

INCOMPLETE = 3
"""The exit code of a command that succeeded, but could not write all of its output."""

Force = Annotated[
    bool,
    typer.Option("--force", rich_help_panel=OUTPUT, help="Overwrite files that Syncline has not written."),
]


class SideOutputs:
    """The files of one command: `with` completes them, or removes them if the command fails."""

    def __init__(self) -> None:
        self.lost = False
        """True if an output is missing or not complete."""
        self._files: list[SideFile] = []

    def open(self, option: str, path: Path | None) -> SideFile | None:
        """A file of this command; None without a path."""
        if path is None:
            return None
        with delay_interrupts():  # a file that is created is also in the list
            self._files.append(SideFile(option, path, self.lose))
        return self._files[-1]

    def lose(self, option: str, path: Path, error: OSError) -> None:
        """An output cannot be written: say so, and remember it."""
        self.lost = True
        reason = one_line(f"{option}: cannot write {str(path)!r}: {error.strerror or error}")
        print(f"syncline: {reason}; everything else is kept", file=sys.stderr)

    def end(self) -> None:
        """End the command; the exit code says whether all output was written."""
        if self.lost:
            raise typer.Exit(INCOMPLETE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            for file in self._files if kind is None else ():
                file.complete()
        finally:
            for file in self._files:
                file.drop()


class SideFile:
    """One file; after a failure nothing more is written, and whatever was there before stays."""

    def __init__(self, option: str, path: Path, lose: Callable[[str, Path, OSError], None]) -> None:
        self._option, self._path, self._lose = option, path, lose
        self._direct = path.exists() and not path.is_file()
        self._target = path if self._direct else path.resolve()  # where /dev/stdout leads, a pipe has no path
        self._text: TextIO | None = None
        self._over = False
        try:
            self._place = self._target if self._direct else _beside(self._target)
        except OSError as error:
            raise UsageError(option, f"cannot write {str(path)!r}: {error.strerror}") from None

    def write(self, text: str) -> None:
        self._attempt(lambda: self._write(text))

    def draw(self, action: Callable[[Path], None]) -> None:
        """Let `action` write the file at the path that it gets."""
        self._attempt(lambda: action(self._place))

    def complete(self) -> None:
        """Everything is written: give the file its name."""
        self._attempt(self._complete)

    def drop(self) -> None:
        """Remove and close the file, unless it is complete."""
        self._over = True
        if not self._direct:
            self._place.unlink(missing_ok=True)
        with suppress(OSError):  # what could not be written is not written when the file is closed, either
            if self._text is not None:
                self._text.close()

    def _attempt(self, action: Callable[[], None]) -> None:
        if self._over:
            return
        try:
            action()
        except OSError as error:
            self.drop()
            self._lose(self._option, self._path, error)

    def _write(self, text: str) -> None:
        if self._text is None:
            self._text = self._place.open("w")
        self._text.write(text)

    def _complete(self) -> None:
        if self._text is not None:
            self._text.close()
        if not self._direct:
            self._place.chmod(0o666 & ~_umask())
            self._place.replace(self._target)
        self._over = True


def _beside(target: Path) -> Path:
    """A new file in the same folder."""
    handle, name = mkstemp(prefix=target.name[:100] + ".", suffix=".part", dir=target.parent)
    os.close(handle)
    return Path(name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
