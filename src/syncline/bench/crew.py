"""The processes of one system: started, commanded, watched, and ended by their ids."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import wait
from tempfile import TemporaryFile
from threading import current_thread, main_thread
from typing import IO, Any

from syncline.bench.channel import Channel
from syncline.engines.process import ONE_THREAD
from syncline.errors import RunError


@dataclass(frozen=True)
class _Process:
    title: str
    handle: subprocess.Popen[bytes]
    channel: Channel
    errors: IO[bytes]


class BenchCrew:
    """Workers, which take commands, and servers, which serve them until they hang up.

    A process that loses its channel ends by itself, so none outlives the bench even if that is killed.
    """

    def __init__(self, system: str) -> None:
        self._system = system
        self._processes: list[_Process] = []
        self._workers: list[_Process] = []

    @property
    def pids(self) -> list[int]:
        """The ids of all processes that have been started and not yet ended."""
        return [process.handle.pid for process in self._processes]

    def add_server(self, program: str, **arguments: object) -> Any:
        """Start a server, and return the first thing that it says."""
        number = len(self._processes) - len(self._workers)
        return self._hear([self._start(f"server {number}", program, arguments)])[0]

    def add_worker(self, program: str, **arguments: object) -> None:
        """Start a worker without waiting for it."""
        self._workers.append(self._start(f"worker {len(self._workers)}", program, arguments))

    def ready(self) -> None:
        """Wait until every worker is ready."""
        self._hear(self._workers)

    def burst(self, rounds: int) -> list[float]:
        """Let all workers run so many rounds; the times of worker 0."""
        for worker in self._workers:
            try:
                worker.channel.send(rounds)
            except OSError:
                raise self._ended(worker) from None
        return [float(seconds) for seconds in self._hear(self._workers)[0]]

    def stop(self) -> None:
        """End all processes, at once: none has anything to save."""
        with _uninterrupted():
            for process in self._processes:
                process.handle.kill()
            for process in self._processes:
                process.handle.wait()
                process.channel.close()
                process.errors.close()
            self._processes.clear()
            self._workers.clear()

    def _start(self, title: str, program: str, arguments: dict[str, object]) -> _Process:
        with _uninterrupted():
            ours, theirs = Pipe()
            errors = TemporaryFile()  # noqa: SIM115  closed by stop()
            with theirs:
                handle = _spawn(theirs.fileno(), program, arguments, errors)
            process = _Process(title, handle, Channel(ours), errors)
            self._processes.append(process)
        return process

    def _hear(self, speakers: Sequence[_Process]) -> list[Any]:
        """One value from each; as soon as any process of the crew has ended, a failure instead."""
        watched: dict[Any, _Process] = {process.channel.connection: process for process in self._processes}
        said: dict[int, Any] = {}
        while len(said) < len(speakers):
            for connection in wait(list(watched)):
                process = watched[connection]
                try:
                    said[process.handle.pid] = process.channel.receive()
                except (EOFError, OSError):
                    raise self._ended(process) from None
        return [said[process.handle.pid] for process in speakers]

    def _ended(self, process: _Process) -> RunError:
        code = process.handle.wait()
        process.errors.seek(0)
        lines = process.errors.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it said nothing")
        return RunError(f"{self._system}: {process.title} ended with code {code}: {last.strip()}")


def _spawn(channel: int, program: str, arguments: dict[str, object], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process in a group of its own, since Ctrl-C is the bench's to handle."""
    command = [sys.executable, "-P", "-m", "syncline.bench.worker", str(channel), program, json.dumps(arguments)]
    return subprocess.Popen(
        command,
        env=_environment(),
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        pass_fds=[channel],
        process_group=0,
    )


def _environment() -> dict[str, str]:
    """This process's, with one thread each, and with the same modules within reach."""
    return os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Put Ctrl-C off, so that no process is started and not noted, or noted and not ended."""
    if current_thread() is not main_thread():
        yield
        return
    interrupts: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: interrupts.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before or signal.SIG_DFL)
    for number in interrupts[:1]:
        signal.raise_signal(number)
