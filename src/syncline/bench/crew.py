"""The processes of one system: start them, send them commands, watch them, and end them by their process ids."""

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
    """Worker processes, which take commands, and server processes, which serve them until they disconnect.

    A process ends when its channel is closed, so none outlives the bench, even if the bench is killed.
    """

    def __init__(self, system: str) -> None:
        self._system = system
        self._processes: list[_Process] = []
        self._workers: list[_Process] = []

    @property
    def pids(self) -> list[int]:
        """The ids of all running processes."""
        return [process.handle.pid for process in self._processes]

    def add_server(self, program: str, **arguments: object) -> Any:
        """Start a server, and return the first value that it sends."""
        number = len(self._processes) - len(self._workers)
        return self._receive([self._start(f"server {number}", program, arguments)])[0]

    def add_worker(self, program: str, **arguments: object) -> None:
        """Start a worker without waiting for it."""
        self._workers.append(self._start(f"worker {len(self._workers)}", program, arguments))

    def ready(self) -> None:
        """Wait until every worker is ready."""
        self._receive(self._workers)

    def burst(self, rounds: int) -> list[float]:
        """Let all workers run this many rounds; return the times of worker 0."""
        for worker in self._workers:
            try:
                worker.channel.send(rounds)
            except OSError:
                raise self._ended(worker) from None
        return [float(seconds) for seconds in self._receive(self._workers)[0]]

    def stop(self) -> None:
        """Kill all processes; none has anything to save."""
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

    def _receive(self, senders: Sequence[_Process]) -> list[Any]:
        """One value from each sender; RunError as soon as any process of the crew ends."""
        watched: dict[Any, _Process] = {process.channel.connection: process for process in self._processes}
        received: dict[int, Any] = {}
        while len(received) < len(senders):
            for connection in wait(list(watched)):
                process = watched[connection]
                try:
                    received[process.handle.pid] = process.channel.receive()
                except (EOFError, OSError):
                    raise self._ended(process) from None
        return [received[process.handle.pid] for process in senders]

    def _ended(self, process: _Process) -> RunError:
        code = process.handle.wait()
        process.errors.seek(0)
        lines = process.errors.read().decode(errors="replace").split("\n")
        last = next((line for line in reversed(lines) if line.strip()), "it printed no error")
        return RunError(f"{self._system}: {process.title} ended with exit code {code}: {last.strip()}")


def _spawn(channel: int, program: str, arguments: dict[str, object], output: IO[bytes]) -> subprocess.Popen[bytes]:
    """A process in its own process group, so that Ctrl-C reaches only the bench."""
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
    """The environment of this process, with one compute thread and the same module search path."""
    return os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C, so that every process that is started is also recorded and ended."""
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
