"""What the coordinator's decisions read of the world, and do to it, besides sending frames.

Decisions are a function of the inputs of the coordinator (coordination.py). So they take the time from the present
input, and everything else that they read goes through `recorded`. While a journal is replayed, the world is left alone:
what the decisions did to it has been done.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Protocol, TypeVar

from syncline.engines.guard import kill_session
from syncline.engines.net.connection import Connection
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.refusals import RefusalLog

Fact = TypeVar("Fact", str, float, bool, list[str])
"""What can be recorded."""


class Record(Protocol):
    """Keeps what was read, so that a replay finds the same."""

    def recorded(self, read: Callable[[], Fact]) -> Fact:
        """Read something, or return what was read before, in a replay."""
        ...


class Unrecorded:
    """Reads without keeping anything."""

    def recorded(self, read: Callable[[], Fact]) -> Fact:
        return read()


class Outside:
    """The world of one coordinator process."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._refusals = RefusalLog("coordinator")
        self.now = monotonic()
        """The time of the present input."""
        self.record: Record = Unrecorded()
        self.absent = False
        """A journal is replayed."""
        self.forget: Callable[[Connection], None] = lambda _: None
        """Called when decisions have ended a connection."""

    def recorded(self, read: Callable[[], Fact]) -> Fact:
        return self.record.recorded(read)

    def write(self, wire: Connection) -> None:
        """Send what waits on this connection."""
        self._loop.write(wire)

    def known(self, wire: Connection, limit: int) -> None:
        """The peer has identified itself, and may send headers of up to `limit` bytes."""
        self._loop.known(wire, limit)

    def drop(self, wire: Connection) -> None:
        """End a connection."""
        self._loop.drop(wire)
        self.forget(wire)

    def refused(self, reason: str) -> None:
        """Print that a connection was refused."""
        if not self.absent:
            self._refusals.sent_away(reason)

    def kill(self, pid: int) -> None:
        """Kill a process of this host, and what it has started."""
        if not self.absent:
            kill_session(pid)
