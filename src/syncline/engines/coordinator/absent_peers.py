"""Which peers do not come back to a coordinator that was started again, and are lost.

1. Launchers and servers do not compute for long. They are lost if they have not come back after `BACK_SECONDS`.
2. A worker may compute for an hour, and notices only then that the coordinator had died. It is lost when its process
   has ended: on this host the kernel says so, on another one its launcher. If that launcher has not come back either,
   the worker is lost after `BACK_SECONDS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from syncline.engines.coordinator.coordination import Coordination
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello
from syncline.engines.process_state import host, state_of

BACK_SECONDS = 60.0
"""Seconds in which peers must come back that do not compute."""

TOO_LATE = f"it did not come back within {BACK_SECONDS:g} s"


class AbsentPeers:
    """The peers of a coordinator that was started again at the time `since`."""

    def __init__(self, run: Coordination, since: float) -> None:
        self._run = run
        self._until = since + BACK_SECONDS
        self._here = host()

    def lost(self, absent: Iterable[Connection], now: float) -> Iterator[tuple[Connection, str]]:
        """Those of these connections whose peers are lost, and why; "": the process has ended."""
        for wire in absent:
            hello = self._hello(wire)
            if hello.host == self._here and _has_ended(hello.pid):
                yield wire, ""
            elif now > self._until and not self._may_compute(hello):
                yield wire, TOO_LATE

    def _hello(self, wire: Connection) -> Hello:
        peer = self._run.peers.get(wire)
        return self._run.launchers.all[wire] if peer is None else peer.hello

    def _may_compute(self, hello: Hello) -> bool:
        """Is this a worker, and will somebody say when its process ends?"""
        launchers = self._run.launchers.all
        there = any(other.host == hello.host and not wire.away for wire, other in launchers.items())
        return hello.role == "worker" and (hello.host == self._here or there)


def _has_ended(pid: int) -> bool:
    return state_of(pid) in (None, "Z", "X")
