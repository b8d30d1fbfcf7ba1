"""The launcher: starts a coordinator, servers and workers, says what becomes of each, and leaves nothing behind.

1. Every child is killed by the kernel when the launcher dies, however it dies. What a child has started, and not sent
   into a session of its own, is killed when the child ends.
2. A worker that dies is one line; the run goes on. A server that dies ends the run.
3. The run has ended well if a worker has, and no server was lost.
4. A worker that has been stopped for longer than the patience counts as dead: the end of the run does not wait for it.
"""

from __future__ import annotations

import os
import secrets
import selectors
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import IO

from syncline.engines import addresses, keys
from syncline.engines.control import Abort, Figures, Frozen, Hello, Refused, Seen, Stop, Welcome
from syncline.engines.frames import Frame
from syncline.engines.plan import Plan
from syncline.engines.process import end_with_parent, lean, say
from syncline.engines.watch import Stopped, host, patience
from syncline.engines.wire import Wire
from syncline.engines.wiring import CONNECT_SECONDS, Wiring, connect_coordinator
from syncline.errors import PeerError, RunError

GRACE = 5.0
"""Seconds that a process has to end by itself after it was asked to."""

INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
"""They wait while a process is started: one that nobody has noted could not be ended."""


@dataclass(eq=False)
class Child:
    """A process that the launcher has started."""

    name: str
    process: subprocess.Popen[bytes]
    rest: bytes = b""
    code: int | None = None


Line = Callable[[str, str], None]
"""What is done with a line that a process has written: (name, text)."""


class Launcher:
    """One run on this host, from start to end."""

    def __init__(self, plan: Plan, line: Line | None = None) -> None:
        self._plan = plan
        self._line = line or (lambda name, text: say(f"[{name}] {text}"))
        self._selector = selectors.DefaultSelector()
        self._wire: Wire | None = None
        self._everyone: list[Child] = []
        self.coordinator: Child | None = None
        self.servers: list[Child] = []
        self.workers: list[Child] = []
        self.figures: list[Figures] = []
        self.aborted: str | None = None
        self._began = monotonic()
        self._welcome = False
        self._usage = False
        """A worker was refused because what it asks for makes no sense."""
        self._stopped = Stopped()
        self._patience = patience(os.environ)
        self._look = 0.0
        self.address = ""

    def start(self) -> None:
        """Start everything."""
        self.open()
        for number in range(self._plan.workers):
            wiring = self.wiring if self._plan.joins else replace(self.wiring, worker=str(number))
            self.workers.append(self._spawn(f"w{number}", list(self._plan.command), wiring=wiring))

    def open(self) -> None:
        """Start all but the workers, or find the run that they join."""
        plan = self._plan
        self.wiring = replace(plan.wiring, run="" if plan.joins else secrets.token_hex(16))
        if not plan.joins:
            self._start_coordinator()
        self._attend()
        for number in range(plan.servers):
            command = [sys.executable, "-m", "syncline.engines.server", str(number)]
            self.servers.append(self._spawn(f"server{number}", command, lean()))

    def _start_coordinator(self) -> None:
        plan = self._plan
        words = [f"{key}={word}" for key, word in plan.settings.items()]
        command = [sys.executable, "-m", "syncline.engines.coordinator", str(plan.workers), str(plan.servers), *words]
        extra = {**lean(), "SYNCLINE_PORT": str(plan.port)}
        self.coordinator = self._spawn("coordinator", command, extra, stdout=subprocess.PIPE)
        assert self.coordinator.process.stdout is not None
        said = self.coordinator.process.stdout.readline().decode().split()
        if len(said) != 2:
            raise RunError("the coordinator did not start")
        unix, self.address = said
        self.wiring = replace(self.wiring, coordinator=unix)

    def _attend(self) -> None:
        """Connect to the coordinator, as the launcher of its run or as the agent of those who join it."""
        role = "agent" if self._plan.joins else "launcher"
        self._wire = connect_coordinator(self.wiring, Hello(self.wiring.run, role, pid=os.getpid(), host=host()))
        self._wire.trust()
        self._selector.register(self._wire.fileno(), selectors.EVENT_READ, self._wire)
        until = monotonic() + CONNECT_SECONDS
        while not self._welcome:
            self._turn(0.1)
            if self.aborted is not None:
                raise RunError(self.aborted)
            if self._wire is None:
                raise RunError(f"{self.wiring.coordinator} has closed the connection; {keys.CLOSED}")
            if monotonic() > until:
                raise RunError(f"{self.wiring.coordinator} does not answer as a coordinator would")

    def _spawn(
        self,
        name: str,
        command: list[str],
        extra: Mapping[str, str] | None = None,
        wiring: Wiring | None = None,
        stdout: int | None = None,
    ) -> Child:
        environment = {**os.environ, **self._plan.environment, **(extra or {}), **(wiring or self.wiring).environment()}
        parent, mask = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
        try:
            process = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=stdout or subprocess.PIPE,
                stderr=subprocess.PIPE if stdout else subprocess.STDOUT,
                preexec_fn=lambda: _prepare(parent, mask),
                start_new_session=True,
            )
            child = Child(name, process)
            self._everyone.append(child)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        stream = process.stderr if stdout else process.stdout
        assert stream is not None
        os.set_blocking(stream.fileno(), False)
        self._selector.register(stream, selectors.EVENT_READ, child)
        return child

    def reachable(self) -> str:
        """Where workers of other hosts can join."""
        address = addresses.parse(self.address, "--listen")
        return str(addresses.Address(addresses.own_address_for(address.host), address.port))

    # The run.

    def wait(self) -> int:
        """Let it run to its end; the exit code."""
        while any(self._runs(worker) for worker in self.workers) and self.aborted is None:
            self._turn(0.2)
        if self.aborted is not None:
            self._drain(GRACE)
        well = self.aborted is None and any(worker.code == 0 for worker in self.workers)
        if well:
            self._collect()
        elif self.aborted is None:
            self.aborted = self._no_coordinator()
        return 0 if well else 2 if self._usage else 1

    def _runs(self, worker: Child) -> bool:
        """Has this worker not ended, nor been stopped for longer than the patience?"""
        if worker.code is not None:
            return False
        return self._stopped.seconds(worker.process.pid, monotonic()) <= self._patience

    def _turn(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            if isinstance(key.data, Wire):
                self._hear(key.data)
            else:
                self._output(key.data, key.fileobj)  # type: ignore[arg-type]
        for child in (self.coordinator, *self.servers, *self.workers):
            if child is not None and child.code is None and _has_ended(child):
                _signal(child, signal.SIGKILL)
                child.code = child.process.wait()
                self._ended(child)
        if self._plan.joins and monotonic() > self._look:
            self._look = monotonic() + 0.5
            self._watch()

    def _watch(self) -> None:
        """Tell the coordinator, which is on another host, of workers that are stopped."""
        for worker in self.workers:
            seconds = self._stopped.seconds(worker.process.pid, monotonic())
            if seconds:
                self._tell(Frozen(host(), worker.process.pid, seconds))

    def _hear(self, wire: Wire) -> None:
        try:
            for message, _ in wire.receive(_no_payload):
                if isinstance(message, Abort):
                    self.aborted = self.aborted or message.reason
                elif isinstance(message, Figures):
                    self.figures.append(message)
                elif isinstance(message, Seen):
                    self._note(f"{message.role}{message.number}: {message.what}")
                    self._usage |= message.usage
                elif isinstance(message, Welcome):
                    self._welcome = True
                elif isinstance(message, Refused):
                    self.aborted = message.reason
        except (EOFError, OSError, PeerError):
            self._selector.unregister(wire.fileno())
            wire.close()
            self._wire = None

    def _output(self, child: Child, stream: IO[bytes]) -> bool:
        """Pass on what a process has written; False: there is nothing more, now or ever."""
        data = stream.read(1 << 16)
        if data is None:
            return False
        ended = not data
        if ended:
            self._selector.unregister(stream)
            data = b"\n" if child.rest else b""
        *lines, child.rest = (child.rest + data).split(b"\n")
        for text in lines:
            self._line(child.name, text.decode(errors="replace"))
        return not ended

    def _ended(self, child: Child) -> None:
        if child in self.workers and not self._plan.joins and self._wire is not None:
            self._tell(Seen("worker", self.workers.index(child), 0, f"ended {_why(child.code)}"))
        if child.code == 0:
            return
        self._note(f"{child.name} ended {_why(child.code)}")
        if child in self.servers and self.aborted is None:
            self.aborted = self._no_coordinator() or f"{child.name} ended {_why(child.code)}"
            self._tell(Abort(self.aborted))

    def _no_coordinator(self) -> str | None:
        """What there is to say if the coordinator has died."""
        if self.coordinator is None or not self.coordinator.code:
            return None
        return f"the coordinator ended {_why(self.coordinator.code)}, and without it nobody can join or leave"

    def _note(self, text: str) -> None:
        self._line("syncline", f"{monotonic() - self._began:.1f} s: {text}")

    def _tell(self, message: Abort | Seen | Frozen | Stop) -> None:
        """Tell the coordinator, if it is there; that it is gone is found elsewhere."""
        if self._wire is not None:
            with suppress(OSError):
                self._wire.send(message)

    def _collect(self) -> None:
        """Ask for the servers' figures, and let everything end by itself: the coordinator knows for whom to wait."""
        self._tell(Stop())
        while self._wire is not None and self.coordinator is not None and self.coordinator.code is None:
            self._turn(0.05)
        until = monotonic() + GRACE
        while monotonic() < until and any(child.code is None for child in self.servers):
            self._turn(0.05)
        if self._wire is not None:
            self._hear(self._wire)

    # The end.

    def _drain(self, seconds: float) -> None:
        until = monotonic() + seconds
        while monotonic() < until and any(worker.code is None for worker in self.workers):
            self._turn(0.1)

    def interrupt(self, number: int = signal.SIGINT) -> None:
        """Ask the workers to end, and wait for a moment."""
        for worker in self.workers:
            _signal(worker, number)
        self._drain(GRACE)

    def stop(self) -> None:
        """End every process that is left, and everything it has started."""
        for child in self._everyone:
            _signal(child, signal.SIGKILL)
        for child in self._everyone:
            child.code = child.process.wait()
        self._last_words()
        for child in self._everyone:
            for stream in (child.process.stdout, child.process.stderr):
                if stream is not None:
                    stream.close()
        if self._wire is not None:
            self._wire.close()
        self._selector.close()

    def _last_words(self) -> None:
        """Pass on what the processes had written before they ended."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Child):
                while self._output(key.data, key.fileobj):  # type: ignore[arg-type]
                    pass


def _prepare(parent: int, mask: Iterable[int]) -> None:
    """In a new process, before its program is loaded."""
    end_with_parent(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)


def _has_ended(child: Child) -> bool:
    """Is this process over? It is not reaped yet, so its number, and its group's, is still its own."""
    return os.waitid(os.P_PID, child.process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _signal(child: Child, number: int) -> None:
    """To a process that was not reaped, and to all that it has started."""
    if child.code is None:
        with suppress(ProcessLookupError):  # it was killed before it had a group
            os.killpg(child.process.pid, number)


def _no_payload(message: Frame, size: int) -> memoryview:
    raise PeerError(f"{type(message).__name__} with a payload of {size:,} bytes")


def _why(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by signal {-code} ({signal.Signals(-code).name})"
    return f"with exit code {code}"
