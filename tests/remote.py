"""Commands on the hosts of a test: two network namespaces, or this machine with only its loopback address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any

import lanes
from engine import PATIENCE, until
from netns import Host

SECRET = "a secret of a test that no other run has"


@dataclass(frozen=True)
class Loopback:
    """This machine in the place of a host; what `start` has started is killed at the end."""

    stack: ExitStack = field(repr=False)
    address: str = "127.0.0.1"

    def start(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        process = self.stack.enter_context(subprocess.Popen(command, **options))
        self.stack.callback(process.kill)
        return process


@contextmanager
def loopback() -> Iterator[Loopback]:
    with ExitStack() as stack:
        yield Loopback(stack)


def free_port() -> int:
    """A port of this machine on which nobody listens now."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


class Running:
    """A process on a host whose lines are read as they come: `syncline WORDS`, or another module."""

    patience = PATIENCE

    def __init__(self, host: Host | Loopback, *words: object, command: list[str] | None = None, **extra: str) -> None:
        source, sink = os.pipe()  # not subprocess.PIPE: closing that waits for the thread that reads it
        self.process: subprocess.Popen[str] = host.start(
            *(command or lanes.command(*words)),
            env={**lanes.environment(), **extra},
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        os.close(sink)
        self.lines: list[str] = []
        self._thread = Thread(target=self._read, args=(source,), daemon=True)
        self._thread.start()

    def _read(self, source: int) -> None:
        with open(source) as output:
            self.lines.extend(output)

    def line_with(self, text: str, times: int = 1) -> str:
        """Wait for a line with this text, or for as many, and return the last."""

        def found() -> str | None:
            over = not self._thread.is_alive()  # first: its last lines are then there
            lines = [line for line in list(self.lines) if text in line]
            assert len(lines) >= times or not over, f"it has ended without {text!r}"
            return lines[times - 1] if len(lines) >= times else None

        try:
            return str(until(found, repr(text), self.patience))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.text}") from None

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def end(self) -> int:
        code = self.process.wait(self.patience)
        self._thread.join()
        return code

    @property
    def text(self) -> str:
        return "".join(self.lines)
