"""All processes that the launcher has started: pass on their output, notice when they end, and leave none behind."""

from __future__ import annotations

import selectors
import signal
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from time import monotonic

from syncline.engines.failure_report import END, read_report
from syncline.engines.launch.child import Child, spawn
from syncline.engines.launch.held_output import printed_failure
from syncline.engines.launch.interrupts import delay_interrupts
from syncline.engines.launch.process_log import ProcessLog

_MOST_READS = 64
"""How often the output of a process is read at its end; a pipe holds less. More can come from what it has started."""


class Children:
    """The processes, in the order in which they were started.

    `line` is called with each line of their output, `lost` with a sentence if a log cannot be written, and `failed`
    when the program of a worker has said why it failed.
    """

    def __init__(
        self,
        line: Callable[[Child, str], None],
        log_dir: str = "",
        lost: Callable[[str], None] = lambda _: None,
        failed: Callable[[Child], None] = lambda _: None,
    ) -> None:
        self._line = line
        self._failed = failed
        self._log_dir = log_dir
        self._lost = lost
        self._selector = selectors.DefaultSelector()
        self._everyone: list[Child] = []

    def start(
        self,
        name: str,
        command: list[str],
        environment: Mapping[str, str],
        *,
        answers: bool = False,
        reports: bool = False,
    ) -> Child:
        """Start a process; `answers` and `reports` as for `spawn`."""
        child = spawn(name, command, environment, self._everyone, answers=answers, reports=reports)
        if self._log_dir:
            child.log = ProcessLog(self._log_dir, name, self._lost)
        self._watch(child)
        return child

    def _watch(self, child: Child) -> None:
        self._selector.register(child.stream, selectors.EVENT_READ, child)
        if child.reports is not None:
            self._selector.register(child.reports, selectors.EVENT_READ, partial(self._report, child))

    def replace(self, former: Child, command: list[str], environment: Mapping[str, str]) -> Child:
        """Start a process in place of one that has ended; its output follows the output of the former."""
        self._drain(former)
        kind = {"answers": former.process.stderr is not None, "reports": former.reports is not None}
        child = spawn(former.name, command, environment, self._everyone, **kind)
        child.log, former.log = former.log, None
        self._watch(child)
        return child

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Call `action` whenever `fd` is readable, before passing on output, since it may explain that output."""
        self._selector.register(fd, selectors.EVENT_READ, action)

    def forget(self, fd: int) -> None:
        self._selector.unregister(fd)

    def turn(self, seconds: float) -> None:
        """Wait up to this many seconds for output, and pass it on."""
        ready = [key.data for key, _ in self._selector.select(seconds)]
        for each in sorted(ready, key=lambda each: isinstance(each, Child)):
            if isinstance(each, Child):
                self._output(each)
            else:
                each()
        self._show_overdue(monotonic())

    def running(self) -> list[Child]:
        """The processes that have not ended."""
        return [child for child in self._everyone if child.code is None]

    def ended(self) -> Iterator[Child]:
        """The processes that have ended since the last call."""
        for child in self._everyone:
            if child.code is None and child.has_ended():
                child.reap()
                self._report(child)
                self._finish(child)
                yield child

    def _output(self, child: Child) -> bool:
        """Pass on what a process has written; return False if there is nothing more to read now."""
        data = child.stream.read(1 << 16)
        if data is None:
            return False
        if not data:
            self._selector.unregister(child.stream)
        if child.log is not None:
            child.log.write(data)
        for text in child.lines.feed(data) if data else child.lines.end():
            for line in [text] if child.held is None else child.held.feed(text, monotonic()):
                self._line(child, line)
        return bool(data)

    def _drain(self, child: Child) -> None:
        """Pass on everything that a process has written so far."""
        for _ in range(_MOST_READS):
            if child.stream not in self._selector.get_map() or not self._output(child):
                return

    def _show_overdue(self, now: float) -> None:
        """Show the lines that a worker was held back for, if it has not ended since."""
        for child in self.running():
            if child.held is not None and child.held.is_overdue(now) and not child.has_ended():
                for line in child.held.take():
                    self._line(child, line)

    def _finish(self, child: Child) -> None:
        """Pass on the rest of the output of a process that has ended, or read in it why its program failed."""
        self._drain(child)
        lines = [] if child.held is None else child.held.take()
        child.held = None
        if lines and child.code and child.failure is None:
            child.failure = printed_failure(lines)
            if child.failure is not None:
                self._failed(child)
                return
        for line in lines:
            self._line(child, line)

    def _report(self, child: Child) -> None:
        """Read why the program of a worker failed, after the output that came before."""
        if child.reports is None or child.reports not in self._selector.get_map():
            return
        data: bytes | None = child.reports.read(1 << 16)  # None: nothing yet
        child.said += data or b""
        if data is None or (data and not data.endswith(END)):
            return
        self._selector.unregister(child.reports)
        child.failure = read_report(child.said)
        if child.failure is not None:
            self._drain(child)
            if child.log is not None:
                child.log.write(child.failure.whole.encode())
            self._failed(child)

    def stop(self) -> None:
        """Kill every remaining process and its session; interrupts are delayed meanwhile."""
        with delay_interrupts():
            for child in self._everyone:
                child.signal(signal.SIGKILL)
            for child in self._everyone:
                child.code = child.process.wait()
            try:
                for child in self._everyone:
                    self._finish(child)
            finally:
                for child in self._everyone:
                    child.close()
                self._selector.close()
