"""A launcher's link to its guard (guard.py): the process that ends everything if the launcher cannot."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

from syncline.engines import guard
from syncline.engines.process_state import state_of


class GuardLink:
    """Starts the guard of the process `watched`, tells it what to end, and replaces it if it dies or is stopped."""

    def __init__(self, watched: int, patience: float, started: Callable[[int], None] | None = None) -> None:
        """`started` is called with the process id of each guard that is started."""
        self._watched = watched
        self._patience = patience
        self._started = started
        self._known: dict[int, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        words = [str(self._watched), str(os.getpid()), str(self._patience)]
        command = [sys.executable, "-I", "-S", guard.__file__, *words]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, bufsize=0
        )
        for pid, how in self._known.items():
            self._tell(f"{how} {pid}")
        if self._started is not None:
            self._started(self.pid)

    def add(self, pid: int, *, wait: bool = False) -> None:
        """End the session of this process if the watched process dies; with `wait`, after a moment."""
        self._known[pid] = "++" if wait else "+"
        self._tell(f"{self._known[pid]} {pid}")

    def remove(self, pid: int) -> None:
        """This process and its session have ended."""
        if self._known.pop(pid, None) is not None:
            self._tell(f"- {pid}")

    def pause(self) -> None:
        """The user stops the watched process; that is no reason to end the run."""
        self._tell("pause")

    def resume(self) -> None:
        self._tell("resume")

    def check(self) -> None:
        """Start a new guard if this one has ended or is stopped."""
        if self._process is not None and (self._process.poll() is not None or state_of(self.pid) == "T"):
            self._discard(self._process)
            self.start()

    def close(self) -> None:
        """End the guard; everything that it knows of has ended, or may live on."""
        if self._process is not None:
            self._tell("quit")
            self._discard(self._process, kill=state_of(self.pid) == "T")
            self._process = None

    def _discard(self, process: subprocess.Popen[bytes], kill: bool = True) -> None:
        assert process.stdin is not None
        if kill:
            process.kill()
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()

    def _tell(self, line: str) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            with suppress(BrokenPipeError):  # it is dead; `check` replaces it
                self._process.stdin.write(line.encode() + b"\n")
