"""Signals that ask a run to end: put off where something must be whole, and heeded once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

INTERRUPTS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Ctrl-C, a polite end, and a terminal or an ssh connection that is gone."""


@contextmanager
def put_off() -> Iterator[Iterable[int]]:
    """Let interrupts wait until the end of this; what was put off before."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Heed:
    """The first interrupt raises KeyboardInterrupt with its number; every further one only calls `again`.

    So whatever is done about the first one is done to its end. One that is ignored when it begins (`nohup`) stays so.
    """

    def __init__(self, again: Callable[[], None]) -> None:
        self._again = again
        self._armed = True
        self._before: dict[int, Any] = {}

    def over(self) -> None:
        """Raise no more: what follows must not be broken off."""
        self._armed = False

    def __enter__(self) -> Heed:
        for number in INTERRUPTS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._heed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _heed(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise KeyboardInterrupt(number)
        self._again()
