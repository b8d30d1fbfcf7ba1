"""All processes that a launcher has started: their output passed on, their ends noticed, and none left behind."""

from __future__ import annotations

import selectors
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

from syncline.engines.launch.child import Child, log_file, spawn
from syncline.engines.launch.interrupts import put_off


class Children:
    """The processes, in the order in which they were started; `line` is told what each of them says."""

    def __init__(self, line: Callable[[Child, str], None], log_dir: str = "") -> None:
        self._line = line
        self._log_dir = log_dir
        self._selector = selectors.DefaultSelector()
        self._everyone: list[Child] = []

    def start(self, name: str, command: list[str], environment: Mapping[str, str], *, answers: bool = False) -> Child:
        """Start one; `answers`: its stdout is for the launcher, and only its stderr is shown."""
        child = spawn(name, command, environment, self._everyone, answers=answers)
        child.log = log_file(self._log_dir, name)
        self._selector.register(child.stream, selectors.EVENT_READ, child)
        return child

    def replace(self, former: Child, command: list[str], environment: Mapping[str, str]) -> Child:
        """Start a process in the place of one that has ended: its output goes on where the other's has stopped."""
        while former.stream in self._selector.get_map() and self._output(former):
            pass  # its last words come first
        child = spawn(former.name, command, environment, self._everyone)
        child.log, former.log = former.log, None
        self._selector.register(child.stream, selectors.EVENT_READ, child)
        return child

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Whenever there is something to read, do this, before any output is passed on: it may explain it."""
        self._selector.register(fd, selectors.EVENT_READ, action)

    def forget(self, fd: int) -> None:
        self._selector.unregister(fd)

    def turn(self, seconds: float) -> None:
        """Wait for something to read, and pass it on."""
        ready = [key.data for key, _ in self._selector.select(seconds)]
        for each in sorted(ready, key=lambda each: isinstance(each, Child)):
            if isinstance(each, Child):
                self._output(each)
            else:
                each()

    def ended(self) -> Iterator[Child]:
        """Those who have ended since the last time."""
        for child in self._everyone:
            if child.code is None and child.has_ended():
                child.reap()
                yield child

    def _output(self, child: Child) -> bool:
        """Pass on what a process has written; False: there is nothing more, now or ever."""
        data = child.stream.read(1 << 16)
        if data is None:
            return False
        if not data:
            self._selector.unregister(child.stream)
        if child.log is not None:
            with suppress(OSError):  # a full disk is no reason to stop
                child.log.write(data)
        for text in child.lines.feed(data) if data else child.lines.end():
            self._line(child, text)
        return bool(data)

    def stop(self) -> None:
        """End every process that is left, and everything it has started; no interrupt comes in between."""
        with put_off():
            for child in self._everyone:
                child.signal(signal.SIGKILL)
            for child in self._everyone:
                child.code = child.process.wait()
            try:
                for child in self._everyone:
                    while child.stream in self._selector.get_map() and self._output(child):
                        pass  # its last words
            finally:
                for child in self._everyone:
                    child.close()
                self._selector.close()
