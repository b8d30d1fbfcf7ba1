"""All processes that the launcher has started: pass on their output, notice when they end, and leave none behind."""

from __future__ import annotations

import selectors
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from syncline.engines.launch.child import Child, log_file, spawn
from syncline.engines.launch.interrupts import delay_interrupts


class Children:
    """The processes, in the order in which they were started; `line` is called with each line of their output."""

    def __init__(self, line: Callable[[Child, str], None], log_dir: str = "") -> None:
        self._line = line
        self._log_dir = log_dir
        self._selector = selectors.DefaultSelector()
        self._everyone: list[Child] = []

    def start(self, name: str, command: list[str], environment: Mapping[str, str], *, answers: bool = False) -> Child:
        """Start a process; with `answers=True` the launcher reads its stdout, and shows only its stderr."""
        child = spawn(name, command, environment, self._everyone, answers=answers)
        child.log = log_file(self._log_dir, name)
        self._selector.register(child.stream, selectors.EVENT_READ, child)
        return child

    def replace(self, former: Child, command: list[str], environment: Mapping[str, str]) -> Child:
        """Start a process in place of one that has ended; its output follows the output of the former."""
        while former.stream in self._selector.get_map() and self._output(former):
            pass  # the rest of its output comes first
        child = spawn(former.name, command, environment, self._everyone)
        child.log, former.log = former.log, None
        self._selector.register(child.stream, selectors.EVENT_READ, child)
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

    def running(self) -> list[Child]:
        """The processes that have not ended."""
        return [child for child in self._everyone if child.code is None]

    def ended(self) -> Iterator[Child]:
        """The processes that have ended since the last call."""
        for child in self._everyone:
            if child.code is None and child.has_ended():
                child.reap()
                yield child

    def _output(self, child: Child) -> bool:
        """Pass on what a process has written; return False if there is nothing more to read now."""
        data = child.stream.read(1 << 16)
        if data is None:
            return False
        if not data:
            self._selector.unregister(child.stream)
        if child.log is not None:
            with suppress(OSError):  # do not stop the run because the disk is full
                child.log.write(data)
        for text in child.lines.feed(data) if data else child.lines.end():
            self._line(child, text)
        return bool(data)

    def stop(self) -> None:
        """Kill every remaining process and its session; interrupts are delayed meanwhile."""
        with delay_interrupts():
            for child in self._everyone:
                child.signal(signal.SIGKILL)
            for child in self._everyone:
                child.code = child.process.wait()
            try:
                for child in self._everyone:
                    while child.stream in self._selector.get_map() and self._output(child):
                        pass  # the rest of its output
            finally:
                for child in self._everyone:
                    child.close()
                self._selector.close()
