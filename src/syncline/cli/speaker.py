"""Prints the output of a run: workers on stdout, everything else on stderr, each line with the process's name."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from syncline.cli.streams import discard

CLOSED = 128 + signal.SIGPIPE
"""The exit code of a program whose output pipe was closed."""


class Closed(Exception):
    """The reader of the output has closed it (`syncline run ... | head`)."""


@contextmanager
def quiet_end() -> Iterator[None]:
    """If the output is closed, end like other programs do: without an error message."""
    try:
        yield
    except Closed:
        raise typer.Exit(CLOSED) from None


class Speaker:
    """Prints lines until the output is closed."""

    def __init__(self) -> None:
        self._closed = False

    def line(self, name: str, text: str) -> None:
        """Print a line of the process of that name, or of `syncline` itself."""
        if self._closed:
            return
        stream = sys.stdout if name.startswith("w") else sys.stderr
        try:
            print(f"[{name}] {text}" if name != "syncline" else f"syncline: {text}", flush=True, file=stream)
        except OSError:  # nobody reads it any more
            self._closed = True
            discard()
            raise Closed from None
