"""Programs that a test starts and waits for. When a program ends, all processes that it started must have ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex

from engine import MARK, QUIET, until

SECONDS = 120.0
"""Seconds; far more than any program here takes, also on a busy machine. A program that takes longer hangs."""


@dataclass(frozen=True)
class Done:
    """The exit code and the output of a program."""

    code: int
    output: str
    errors: str

    @property
    def story(self) -> str:
        return f"exit code {self.code}\n--- err\n{self.errors}\n--- out\n{self.output}"


def run(directory: Path, *commands: Sequence[str], environments: Sequence[dict[str, str]] = ()) -> list[Done]:
    """Run these at the same time, each to its end, with its own environment if there is one."""
    own = [*environments, *({} for _ in commands[len(environments) :])]
    with ExitStack() as stack:
        mark = stack.enter_context(_nothing_left())
        started = [
            stack.enter_context(
                subprocess.Popen(
                    command,
                    cwd=directory,
                    env={**os.environ, **QUIET, **environment, MARK: mark},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for command, environment in zip(commands, own, strict=True)
        ]
        return [_done(process, mark) for process in started]


def _done(process: subprocess.Popen[str], mark: str) -> Done:
    try:
        output, errors = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        _kill(mark)
        output, errors = process.communicate()
        raise AssertionError(f"it does not end\n{Done(-1, output, errors).story}") from None
    return Done(process.returncode, output, errors)


@contextmanager
def _nothing_left() -> Iterator[str]:
    """A mark in the environment of all processes that a test starts. At the end no such process may be left."""
    mark = token_hex(8)
    try:
        yield mark
        until(lambda: not _marked(mark), f"the end of all processes, {_marked(mark)}")
    finally:
        _kill(mark)


def _kill(mark: str) -> None:
    for pid in _marked(mark):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _marked(mark: str) -> list[int]:
    wanted, found = f"{MARK}={mark}".encode(), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                found.append(int(name))
    return found
