"""One process that the launcher starts. It leads its own session, and is killed together with that session."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import IO

from syncline.engines.failure_report import VARIABLE, FailureReport
from syncline.engines.guard import kill_session
from syncline.engines.launch.held_output import HeldOutput
from syncline.engines.launch.interrupts import delay_interrupts
from syncline.engines.launch.lines import Lines
from syncline.engines.launch.process_log import ProcessLog
from syncline.engines.process import end_with_parent

PASSED_ON = "SYNCLINE_PATIENCE"
"""The only SYNCLINE_ variable that the user may set."""


@dataclass(eq=False)
class Child:
    """A process that the launcher has started."""

    name: str
    process: subprocess.Popen[bytes]
    stream: IO[bytes]
    """The output of the process, which the launcher passes on."""
    lines: Lines = field(default_factory=Lines)
    reports: IO[bytes] | None = None
    """A pipe to which a worker writes why its program failed."""
    held: HeldOutput | None = None
    """Lines of its output that may say why its program failed; None after its end."""
    said: bytes = b""
    """What has come through that pipe."""
    failure: FailureReport | None = None
    """Why its program failed, if it has said so."""
    log: ProcessLog | None = None
    """A file with the same output."""
    code: int | None = None
    numbered: bool = False
    """It has joined another run, which assigned its number."""
    later: bool = False
    """A worker that was started while the run trained (`--grow`)."""
    restarts: int = 0
    """How many times this worker was started before, and died."""
    frozen: bool = False
    """It was stopped for so long that the run continued without it."""
    stopped: float = 0.0
    """For how many seconds it has been stopped (SIGSTOP), when the launcher last looked."""
    lost: tuple[float, str] | None = None
    """When the coordinator lost it, and the coordinator's reason. The launcher reports that reason only if the end of
    the process gives no better one."""

    @property
    def pid(self) -> int:
        return self.process.pid

    def has_ended(self) -> bool:
        """Return True if it has ended. This does not reap it, so its process id and group id are not reused yet."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def reap(self) -> None:
        """Kill the processes that it has started, and collect its exit code."""
        self.signal(signal.SIGKILL)
        self.code = self.process.wait()

    def signal(self, number: int) -> None:
        """Send a signal to it and to its process group, unless it was reaped; SIGKILL goes to its whole session."""
        if self.code is not None:
            return
        if number == signal.SIGKILL:
            kill_session(self.pid)
            return
        with suppress(ProcessLookupError):  # it was killed before it had a process group
            os.killpg(self.pid, number)

    def close(self) -> None:
        for stream in (self.process.stdout, self.process.stderr, self.reports, self.log):
            if stream is not None:
                stream.close()

    @property
    def reason(self) -> str:
        """Why its program failed, in one line; "" if it has not said so, or was only told that the run is over."""
        return self.failure.line if self.failure is not None and self.failure.own else ""

    @property
    def end(self) -> str:
        """A text that says how it ended."""
        if self.code is not None and self.code < 0:
            named = {each.value: f" ({each.name})" for each in signal.Signals}
            return f"{self.name} ended by signal {-self.code}{named.get(-self.code, '')}"
        return f"{self.name} ended with exit code {self.code}"


def inherited(*layers: Mapping[str, str]) -> dict[str, str]:
    """The environment that a process of a run inherits, without the SYNCLINE_ variables of another run."""
    merged = {key: word for layer in layers for key, word in layer.items()}
    return {key: word for key, word in merged.items() if not key.startswith("SYNCLINE_") or key == PASSED_ON}


def spawn(
    name: str,
    command: list[str],
    environment: Mapping[str, str],
    everyone: list[Child],
    *,
    answers: bool = False,
    reports: bool = False,
) -> Child:
    """Start a process and add it to `everyone`.

    With `answers=True` the launcher reads its stdout, and shows only its stderr. With `reports=True` it gets a pipe for
    a report of its failure. Interrupts are delayed meanwhile, so that every process that is started is also in the list
    and can be ended.
    """
    parent = os.getpid()
    with delay_interrupts() as mask:
        source, sink = os.pipe() if reports else (-1, -1)
        process = subprocess.Popen(
            command,
            env={**environment, VARIABLE: str(sink)} if reports else environment,
            pass_fds=(sink,) if reports else (),
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
        if reports:
            os.close(sink)
            child.reports = os.fdopen(source, "rb", buffering=0)
            os.set_blocking(source, False)
            child.held = HeldOutput()
    os.set_blocking(stream.fileno(), False)
    return child


def _prepare(parent: int, mask: Iterable[int]) -> None:
    """Runs in the new process, before its program is loaded."""
    end_with_parent(parent)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
