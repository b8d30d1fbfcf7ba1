"""A process that a launcher starts: with a group of its own, and ended with all that it has started."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, BinaryIO

from syncline.engines.launch.interrupts import put_off
from syncline.engines.launch.lines import Lines
from syncline.engines.process import end_with_parent

PASSED_ON = "SYNCLINE_PATIENCE"
"""The only variable of ours that is the user's to set."""


@dataclass(eq=False)
class Child:
    """A process that the launcher has started."""

    name: str
    process: subprocess.Popen[bytes]
    stream: IO[bytes]
    """What it writes, and is passed on."""
    lines: Lines = field(default_factory=Lines)
    log: BinaryIO | None = None
    """The same, as it comes, in a file."""
    code: int | None = None
    numbered: bool = False
    """It has joined another run, which has given it its number."""
    restarts: int = 0
    """How many times this worker was started before, and died."""
    frozen: bool = False
    """It was stopped for so long that the run has gone on without it."""
    seen: tuple[float, str] | None = None
    """When it was lost, and the coordinator's word for it: said if the process does not tell better by its end."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_ended(self) -> bool:
        """Is it over? It is not reaped yet, so its number, and its group's, is still its own."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> None:
        """End what it has started, and take its exit code."""
        self.signal(signal.SIGKILL)
        self.code = self.process.wait()

    def signal(self, number: int) -> None:
        """To it and all that it has started, unless it was reaped."""
        if self.code is None:
            with suppress(ProcessLookupError):  # it was killed before it had a group
                os.killpg(self.pid, number)

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr, self.log):
            if stream is not None:
                stream.close()

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.code is not None and self.code < 0:
            named = {each.value: f" ({each.name})" for each in signal.Signals}
            return f"{self.name} ended by signal {-self.code}{named.get(-self.code, '')}"
        return f"{self.name} ended with exit code {self.code}"


def inherited(*layers: Mapping[str, str]) -> dict[str, str]:
    """The environment that a process of a run gets from outside: nothing of another run's wiring."""
    merged = {key: word for layer in layers for key, word in layer.items()}
    return {key: word for key, word in merged.items() if not key.startswith("SYNCLINE_") or key == PASSED_ON}


def spawn(
    name: str, command: list[str], environment: Mapping[str, str], everyone: list[Child], *, answers: bool = False
) -> Child:
    """Start a process and note it in `everyone`; `answers`: its stdout is for the launcher, and only stderr is shown.

    An interrupt waits meanwhile: a process that nobody has noted could not be ended.
    """
    parent = os.getpid()
    with put_off() as mask:
        process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if answers else subprocess.STDOUT,
            preexec_fn=lambda: _prepare(parent, mask),
            start_new_session=True,
        )
        stream = process.stderr if answers else process.stdout
        assert stream is not None
        child = Child(name, process, stream)
        everyone.append(child)
    os.set_blocking(stream.fileno(), False)
    return child


def _prepare(parent: int, mask: Iterable[int]) -> None:
    """In a new process, before its program is loaded."""
    end_with_parent(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def log_file(directory: str, name: str) -> BinaryIO | None:
    """Where the output of a process goes beside the terminal, if anywhere."""
    return (Path(directory) / f"{name}.log").open("wb", buffering=0) if directory else None
