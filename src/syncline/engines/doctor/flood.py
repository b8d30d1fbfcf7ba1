"""Measure how fast one side can send: count what arrives, and keep the way full for some seconds."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from syncline.engines.doctor.messages import BLOCK, FloodBlock, FloodEnd
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Control
from syncline.engines.net.event_loop import EventLoop

PAUSE = 0.001
"""Seconds between two looks whether the socket takes more."""

MOST_BYTES = 1 << 29
"""The most bytes of one measurement; a fast network then needs less time."""


class BlockCount:
    """Counts blocks, from the end of the first to the end of the last."""

    def __init__(self) -> None:
        self.bytes = 0
        self._begun: float | None = None
        self._last = 0.0

    def block(self, size: int, now: float) -> None:
        if self._begun is None:
            self._begun = now
        else:
            self.bytes += size
        self._last = now

    @property
    def seconds(self) -> float:
        return 0.0 if self._begun is None else self._last - self._begun


def flood(loop: EventLoop, wire: Connection, seconds: float, done: Callable[[], None] = lambda: None) -> None:
    """Send blocks for this long, from the loop's turns; then send the end and call `done`."""
    until, left = monotonic() + seconds, MOST_BYTES
    payload = memoryview(bytes(BLOCK))

    def more() -> None:
        nonlocal left
        if wire.fileno() < 0:
            return
        while not wire.waiting and left > 0 and monotonic() < until:
            if not say(loop, wire, FloodBlock(), payload):
                return
            left -= BLOCK
        if wire.waiting or (left > 0 and monotonic() < until):
            loop.call_later(PAUSE, more)
        elif say(loop, wire, FloodEnd()):
            done()

    more()


def say(loop: EventLoop, wire: Connection, message: Control, payload: memoryview | None = None) -> bool:
    """Send a message; return False if the connection has ended, which the loop then notices."""
    if wire.fileno() < 0:
        return False
    try:
        wire.send(message, payload, lasting=True)
    except OSError:
        return False
    if wire.waiting:
        loop.write(wire)
    return True
