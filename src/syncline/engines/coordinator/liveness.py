"""Find the processes that are stopped, and the hosts that no longer acknowledge data, without asking them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Frozen, Hello
from syncline.engines.net.tcp_liveness import TcpLiveness
from syncline.engines.process_state import Stopped, host, state_of


class Liveness:
    """Checks the processes of this host; launchers report those of other hosts. `patience`: seconds of stop allowed."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._host = host()
        self._stopped = Stopped()
        self._silence = TcpLiveness()

    def is_here(self, entry: RosterEntry, pid: int, on: str = "") -> bool:
        """Is this entry the process `pid` of this host, or of the host `on`?"""
        return (entry.hello.host, entry.hello.pid) == (on or self._host, pid)

    def is_stopped(self, hello: Hello) -> bool:
        """Is this process of this host stopped now?"""
        return hello.host == self._host and state_of(hello.pid) in ("T", "t")

    def stopped_seconds(self, hello: Hello, now: float) -> float:
        """For how many seconds this process of this host has been stopped."""
        return self._stopped.seconds(hello.pid, now) if hello.host == self._host else 0.0

    def stopped(self, entries: Mapping[int, RosterEntry], now: float) -> Iterator[tuple[int, RosterEntry]]:
        """The processes of this host that have been stopped for too long."""
        for number, entry in list(entries.items()):
            if self.stopped_seconds(entry.hello, now) > self.patience:
                yield number, entry

    def stopped_of(self, pids: Iterable[int], now: float) -> list[int]:
        """Those of these processes of this host that have been stopped for too long."""
        return [pid for pid in pids if self._stopped.seconds(pid, now) > self.patience]

    def reported(self, entries: Mapping[int, RosterEntry], frozen: Frozen) -> Iterator[tuple[int, RosterEntry]]:
        """The processes that a launcher on another host reports as stopped; those of this host we check ourselves."""
        if frozen.host != self._host and frozen.seconds > self.patience:
            for number, entry in list(entries.items()):
                if (entry.hello.host, entry.hello.pid) == (frozen.host, frozen.pid):
                    yield number, entry

    def silent(self, wires: Iterable[Connection], now: float) -> Iterator[Connection]:
        """The connections whose peer's host no longer acknowledges data."""
        return (wire for wire in wires if self._silence.gone(wire, now))

    def forget(self, wire: Connection) -> None:
        self._silence.forget(wire)
