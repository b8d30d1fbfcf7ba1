"""The launcher's connection to the coordinator of its own run, or of the run that its workers join."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Abort, ChangeRequest, Frozen, Hello, Seen, Started, Stop
from syncline.engines.net.frames import Frame
from syncline.engines.net.wiring import Wiring, connect_coordinator
from syncline.errors import PeerError, RunError


class CoordinatorLink:
    """Sends messages to the coordinator and receives its messages."""

    def __init__(self, wire: Connection, wiring: Wiring) -> None:
        self._wire = wire
        self.wiring = wiring
        """The wiring with which the connection was made."""
        self.gone = False
        wire.trust()

    def fileno(self) -> int:
        return self._wire.fileno()

    def tell(self, message: Abort | Seen | Started | Frozen | Stop | ChangeRequest) -> None:
        """Send a message; a lost connection is noticed in `receive`."""
        if not self.gone:
            with suppress(OSError):
                self._wire.send(message)

    def receive(self) -> list[Frame]:
        """The messages that have arrived."""
        found: list[Frame] = []
        before = -1
        try:
            while not self.gone and len(found) > before:  # the last call finds nothing more, or the end of the stream
                before = len(found)
                for message, _ in self._wire.receive(_no_payload):
                    found.append(message)  # one by one, to keep those that came before the end of the stream
        except (EOFError, OSError, PeerError):
            self.gone = True
        return found

    def close(self) -> None:
        self._wire.close()


def reach(places: tuple[str, ...], wiring: Wiring, hello: Hello) -> CoordinatorLink:
    """Connect to the coordinator at the first of these addresses where it answers."""
    problems = []
    for place in places:
        here = replace(wiring, coordinator=place)
        try:
            return CoordinatorLink(connect_coordinator(here, hello), here)
        except RunError as error:
            problems.append(str(error))
    raise RunError("; ".join(problems))


def _no_payload(message: Frame, size: int) -> memoryview:
    raise PeerError(f"it sent {type(message).__name__} with a payload of {size:,} bytes")
