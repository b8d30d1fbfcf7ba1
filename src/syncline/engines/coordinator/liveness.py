"""Who is stopped, and whose host acknowledges nothing any more: found without asking the processes themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Frozen
from syncline.engines.net.tcp_liveness import TcpLiveness
from syncline.engines.process_state import Stopped, host


class Liveness:
    """Watches the processes of this host, and hears of those of others; `patience`: seconds one may be stopped."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._host = host()
        self._stopped = Stopped()
        self._silence = TcpLiveness()

    def is_here(self, entry: RosterEntry, pid: int) -> bool:
        """Is it this process of this host?"""
        return (entry.hello.host, entry.hello.pid) == (self._host, pid)

    def stopped(self, entries: Mapping[int, RosterEntry], now: float) -> Iterator[tuple[int, RosterEntry]]:
        """Which of these are processes of this host that are stopped for too long."""
        for number, entry in list(entries.items()):
            if entry.hello.host == self._host and self._stopped.seconds(entry.hello.pid, now) > self.patience:
                yield number, entry

    def reported(self, entries: Mapping[int, RosterEntry], frozen: Frozen) -> Iterator[tuple[int, RosterEntry]]:
        """Which of these a launcher elsewhere means; those of this host are watched from here."""
        if frozen.host != self._host and frozen.seconds > self.patience:
            for number, entry in list(entries.items()):
                if (entry.hello.host, entry.hello.pid) == (frozen.host, frozen.pid):
                    yield number, entry

    def silent(self, wires: Iterable[Connection], now: float) -> Iterator[Connection]:
        """The connections at whose other end nobody acknowledges anything."""
        return (wire for wire in wires if self._silence.gone(wire, now))

    def forget(self, wire: Connection) -> None:
        self._silence.forget(wire)
