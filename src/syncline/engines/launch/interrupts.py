"""Handle the signals that ask a run to end or to pause: delay them in critical sections, and raise only once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a request to end, and a closed terminal or ssh connection."""


@contextmanager
def delay_interrupts() -> Iterator[Iterable[int]]:
    """Block interrupts until the end of the `with` block; yields the signals that were blocked before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def interruptible() -> Iterator[None]:
    """In the `with` block, SIGTERM and SIGHUP raise KeyboardInterrupt like Ctrl-C, so that the command cleans up.

    A signal that is ignored or handled at the start stays so.
    """
    unhandled = [number for number in INTERRUPTS if signal.getsignal(number) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def pausing(pause: Callable[[], None], resume: Callable[[], None]) -> Iterator[None]:
    """In the `with` block: call `pause` before Ctrl-Z (SIGTSTP) stops this process, and `resume` when it continues."""

    def stop(*_: object) -> None:
        pause()
        os.kill(os.getpid(), signal.SIGSTOP)
        resume()

    before = signal.getsignal(signal.SIGTSTP)
    if before is signal.SIG_DFL:
        signal.signal(signal.SIGTSTP, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTSTP, before)


class InterruptHandler:
    """The first interrupt raises KeyboardInterrupt with its signal number; every further one only calls `again`.

    So the handling of the first interrupt is never broken off. A signal that is ignored at the start (`nohup`) stays
    ignored.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again
        self._armed = True
        self._before: dict[int, Any] = {}

    def over(self) -> None:
        """Stop raising: the code that follows must not be broken off."""
        self._armed = False

    def __enter__(self) -> InterruptHandler:
        for number in INTERRUPTS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt(number)
        self._again()
