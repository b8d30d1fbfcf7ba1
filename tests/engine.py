"""Real runs on this machine: starts `syncline run` with a program for the workers, and checks that it leaves nothing.

Every process of a run inherits a mark in its environment, so the tests find all processes of a run by that mark.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import Any

import lanes

MARK = "MARK_OF_A_TEST_RUN"

QUIET = {"OMP_NUM_THREADS": "1"}
"""Set as a user would, so that the run prints no message about threads."""

PATIENCE = 120.0
"""The timeout of a test in seconds. No test asserts a time; this only ends a test that hangs."""

_ACCEPTS = 0x10000
"""Linux: the flag of a Unix socket that listens (SO_ACCEPTCON)."""

PREAMBLE = """
import ctypes, os, signal, subprocess, sys, time
from pathlib import Path
import numpy as np
import syncline

def say(*words):
    print(*words, flush=True)

def there(name):
    return Path(name).exists()

def begin(**shapes):
    global session, tables, rank
    session = syncline.connect()
    rank = session.rank
    tables = session.tables({name: np.zeros(shape) for name, shape in (shapes or {"w": 50_000, "b": 10}).items()})

def step(value=1.0):
    for name, table in tables.items():
        session.update(name, np.full_like(table, value))
    session.clock()
    session.sync()

def compute_until(name):
    # Holds the interpreter, so that no thread of it can run, until somebody opens this pipe to write.
    if not there(name):
        os.mkfifo(name)
    ctypes.PyDLL(None).open(name.encode(), os.O_RDONLY)

def steps_until(name, said="under way"):
    while not there(name):
        step()
        if said and session.iteration == 3:
            say(said)
        time.sleep(0.002)
"""


def until(condition: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """Wait until the condition is true, and return its value."""
    give_up = time.monotonic() + patience
    while not (found := condition()):
        if time.monotonic() > give_up:
            raise AssertionError(f"not within {patience:g} s: {what}")
        time.sleep(0.01)
    return found


class Run:
    """One `syncline run`, or another module that starts the workers, and all its processes."""

    def __init__(
        self,
        directory: Path,
        body: str,
        *options: str,
        words: Sequence[str] = (),
        module: Sequence[str] = ("syncline", "run"),
        name: str = "",
        **environment: str,
    ) -> None:
        """`name`: of the program's file, which otherwise has a name of its own in every run."""
        self.mark = token_hex(8)
        self.directory = directory
        program = directory / (name or f"program-{self.mark}.py")
        program.write_text(PREAMBLE + body)
        self._files = [directory / f"{name}-{self.mark}" for name in ("out", "err")]
        command = [sys.executable, "-m", *module, *options, str(program), *words]
        with self._files[0].open("w") as out, self._files[1].open("w") as err:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                stdout=out,
                stderr=err,
                env={**lanes.environment(), **QUIET, **environment, MARK: self.mark},
            )

    @property
    def out(self) -> str:
        """The output of the workers so far."""
        return self._files[0].read_text()

    @property
    def err(self) -> str:
        """The output of the run itself so far."""
        return self._files[1].read_text()

    def touch(self, name: str) -> None:
        """Create the file that the workers wait for."""
        (self.directory / name).touch()

    def hears(self, pattern: str, times: int = 1) -> re.Match[str]:
        """Wait until the output matches the pattern `times` times, and return the last match."""

        def heard() -> re.Match[str] | None:
            over = self.process.poll() is not None  # checked first, so that the output below is complete
            found = list(re.finditer(pattern, self.out + self.err))
            assert not over or len(found) >= times, f"it has ended without {pattern!r}"
            return found[times - 1] if len(found) >= times else None

        try:
            found = until(heard, f"{pattern!r}, {times} times")
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.story()}") from None
        assert isinstance(found, re.Match)
        return found

    def ends(self) -> int:
        """Wait for the end of the run, and return its exit code."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not end\n{self.story()}") from None

    def story(self) -> str:
        """Everything known about the run, for the message of an assertion."""
        left = {pid: _command(pid) for pid in self.processes()}
        return f"exit code {self.process.poll()}\n--- err\n{self.err}\n--- out\n{self.out}\n--- processes\n{left}"

    # Processes.

    def processes(self) -> list[int]:
        """Every live process of the run, including the launcher."""
        mark = f"{MARK}={self.mark}".encode()
        return [pid for pid in _pids() if mark in _environment(pid)]

    def server(self, number: int) -> int:
        return self._one(f"server{number}")

    def server_that_joined(self) -> int:
        """The only server that this launcher has added to another run; that run has assigned its number."""
        found = [pid for pid in self.processes() if _command(pid).split()[1:] == ["-m", "syncline.engines.server"]]
        assert len(found) == 1, self.story()
        return found[0]

    def coordinator(self) -> int:
        return self._one("coordinator")

    def worker(self, number: int) -> int:
        """A worker that was started with the run (not one that joined)."""
        return self._one(f"worker{number}")

    def guard(self) -> int:
        """The guard of the launcher."""
        return self._one("guard")

    def worker_that_joined(self) -> int:
        """The only worker that this launcher has added to another run."""
        others = (self.process.pid, self.find("guard"))
        found = [pid for pid in self.processes() if pid not in others and "-m syncline" not in _command(pid)]
        assert len(found) == 1, self.story()
        return found[0]

    def _one(self, who: str) -> int:
        pid = self.find(who)
        assert pid is not None, f"there is no {who}\n{self.story()}"
        return pid

    def find(self, who: str) -> int | None:
        """The process of `worker0`, `server1`, the `coordinator` or the `guard`; None if it does not run."""
        if who == "guard":
            return next((pid for pid in self.processes() if "syncline/engines/guard.py" in _command(pid)), None)
        role, number = re.fullmatch(r"([a-z]+)(\d*)", who).groups()  # type: ignore[union-attr]
        words = ["-m", f"syncline.engines.{role}"] + [number] * bool(number)
        for pid in self.processes():
            if role == "worker":
                found = f"SYNCLINE_WORKER={number}".encode() in _environment(pid) and _parent(pid) == self.process.pid
            else:
                found = _command(pid).split()[1 : 1 + len(words)] == words
            if found:
                return pid
        return None

    def kill(self, pid: int, number: int = signal.SIGKILL) -> None:
        os.kill(pid, number)

    def sockets(self) -> set[str]:
        """The inode numbers of the sockets on which its processes listen."""
        return {inode for pid in self.processes() for inode in _sockets(pid)} & listening()

    def gone(self) -> None:
        """Wait until no process of the run is left."""
        until(lambda: not self.processes(), f"the end of all processes\n{self.story()}")


@contextmanager
def running(
    directory: Path,
    body: str,
    *options: str,
    words: Sequence[str] = (),
    module: Sequence[str] = ("syncline", "run"),
    name: str = "",
    **environment: str,
) -> Iterator[Run]:
    """A run that must leave nothing behind. The test must wait for the run's end itself."""
    names = set(os.listdir("/dev/shm"))
    run = Run(directory, body, *options, words=words, module=module, name=name, **environment)
    try:
        yield run
        assert run.process.poll() is not None, f"the test is over, and the run is not\n{run.story()}"
        run.gone()
        assert not [name for name in set(os.listdir("/dev/shm")) - names if "syncline" in name]
    finally:
        for pid in (run.process.pid, *run.processes()):
            with suppress(ProcessLookupError):
                if run.process.poll() is None or pid != run.process.pid:
                    os.kill(pid, signal.SIGKILL)
        run.process.wait()


def listening() -> set[str]:
    """The inode numbers of all listening TCP and Unix sockets on this machine."""
    found = set()
    for table in ("tcp", "tcp6"):
        lines = Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        found |= {fields[9] for fields in map(str.split, lines) if fields[3] == "0A"}
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return found | {fields[6] for fields in map(str.split, lines) if int(fields[3], 16) & _ACCEPTS}


def state(pid: int) -> str:
    """The kernel's letter for the state of a process; empty if the process does not exist."""
    return (_stat(pid) or ["?"])[0].strip("?")


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _environment(pid: int) -> list[bytes]:
    return _read(pid, "environ").split(b"\0")


def _command(pid: int) -> str:
    return _read(pid, "cmdline").replace(b"\0", b" ").decode()


def _stat(pid: int) -> list[str]:
    return _read(pid, "stat").decode().rpartition(")")[2].split()


def _parent(pid: int) -> int:
    return int((_stat(pid) or ["", "0"])[1])


def _sockets(pid: int) -> Iterator[str]:
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found = re.fullmatch(r"socket:\[(\d+)\]", os.readlink(f"/proc/{pid}/fd/{name}"))
                if found:
                    yield found[1]
