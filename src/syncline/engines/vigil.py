"""Who is stopped, and whose host acknowledges nothing any more: found without asking the processes themselves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from syncline.engines.control import Frozen
from syncline.engines.register import Guest
from syncline.engines.silence import Silence
from syncline.engines.watch import Stopped, host
from syncline.engines.wire import Wire


class Vigil:
    """Watches the processes of this host, and hears of those of others; `patience`: seconds one may be stopped."""

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._host = host()
        self._stopped = Stopped()
        self._silence = Silence()

    def is_here(self, guest: Guest, pid: int) -> bool:
        """Is it this process of this host?"""
        return (guest.hello.host, guest.hello.pid) == (self._host, pid)

    def stopped(self, guests: Mapping[int, Guest], now: float) -> Iterator[tuple[int, Guest]]:
        """Which of these are processes of this host that are stopped for too long."""
        for number, guest in list(guests.items()):
            if guest.hello.host == self._host and self._stopped.seconds(guest.hello.pid, now) > self.patience:
                yield number, guest

    def reported(self, guests: Mapping[int, Guest], frozen: Frozen) -> Iterator[tuple[int, Guest]]:
        """Which of these a launcher elsewhere means; those of this host are watched from here."""
        if frozen.host != self._host and frozen.seconds > self.patience:
            for number, guest in list(guests.items()):
                if (guest.hello.host, guest.hello.pid) == (frozen.host, frozen.pid):
                    yield number, guest

    def silent(self, wires: Iterable[Wire], now: float) -> Iterator[Wire]:
        """The connections at whose other end nobody acknowledges anything."""
        return (wire for wire in wires if self._silence.gone(wire, now))

    def forget(self, wire: Wire) -> None:
        self._silence.forget(wire)
