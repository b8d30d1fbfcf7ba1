"""What `syncline run` prints: a run's own words on stderr, its workers' on stdout, each with its name before it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

CLOSED = 128 + signal.SIGPIPE
"""The exit code of a program whose reader is gone."""


class Closed(Exception):
    """Whoever read the output has gone (`syncline run ... | head`)."""


@contextmanager
def quiet_end() -> Iterator[None]:
    """End as other programs do when nobody reads what they print: without a word."""
    try:
        yield
    except Closed:
        raise typer.Exit(CLOSED) from None


class Speaker:
    """Prints lines until nobody reads them any more."""

    def __init__(self) -> None:
        self._closed = False

    def line(self, name: str, text: str) -> None:
        """A line of the process of that name, or of `syncline` itself."""
        if self._closed:
            return
        stream = sys.stdout if name.startswith("w") else sys.stderr
        try:
            print(f"[{name}] {text}" if name != "syncline" else f"syncline: {text}", flush=True, file=stream)
        except OSError:  # a closed pipe, or a terminal that is gone
            self._closed = True
            _discard()
            raise Closed from None


def _discard() -> None:
    """Let what is still to be written go nowhere: Python would complain of it at its end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(nowhere, stream.fileno())
    os.close(nowhere)
