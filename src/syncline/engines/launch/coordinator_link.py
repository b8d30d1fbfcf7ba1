"""The launcher's connection to the coordinator of its own run, or of the run that its workers join."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Abort, ChangeRequest, Frozen, Heartbeat, Hello, Seen, Started, Stop
from syncline.engines.net.frames import Frame
from syncline.engines.net.heartbeats import Heartbeats, Silence
from syncline.engines.net.lasting import RESUME_SECONDS, LastingConnection, try_again
from syncline.engines.net.tcp_liveness import unacknowledged
from syncline.engines.net.wiring import Wiring, connect_coordinator
from syncline.errors import PeerError, RunError


class CoordinatorLink:
    """Sends messages to the coordinator and receives its messages."""

    def __init__(self, wire: Connection, wiring: Wiring, patience: float = inf) -> None:
        """`patience`: seconds for which the coordinator may be stopped, if it runs on another host."""
        self._wire = wire
        self.wiring = wiring
        """The wiring with which the connection was made."""
        self.gone = False
        self.away = False
        """The coordinator has died, and may be started again."""
        self._until = 0.0
        """How long this link tries to come back."""
        self._beats = Heartbeats(patience, unacknowledged)
        wire.trust()

    @property
    def is_open(self) -> bool:
        return not self.gone and not self.away

    def fileno(self) -> int:
        return self._wire.fileno()

    def tell(self, message: Abort | Seen | Started | Frozen | Stop | ChangeRequest | Heartbeat) -> None:
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
                    self._beats.heard(self._wire, monotonic())
                    found.append(message)  # one by one, to keep those that came before the end of the stream
        except (EOFError, OSError):
            self.away = isinstance(self._wire, LastingConnection) and self._wire.comes_back
            self.gone = not self.away
            self._until = monotonic() + RESUME_SECONDS
        except PeerError:
            self.gone = True
        return found

    def forgo(self) -> None:
        """The coordinator is not started again if it dies."""
        if isinstance(self._wire, LastingConnection):
            self._wire.forgo()
        self.gone |= self.away
        self.away = False

    def come_back(self) -> bool:
        """Try to reach a coordinator that is started again; True if it is there."""
        line = self._wire
        assert isinstance(line, LastingConnection), "only such a connection is away"
        line.away = True
        try:
            found = try_again(line)
            if found is not None:
                line.resume(*found)
                self._beats.heard(line, monotonic())
        except (RunError, PeerError):
            self.forgo()
            return False
        if found is None and monotonic() > self._until:
            self.forgo()
        self.away &= found is None
        return found is not None

    def beat(self, now: float) -> str:
        """Send a heartbeat if it is due; return why the run cannot be reached any more, or ""."""
        if self.gone or self.away:
            return ""
        if self._beats.due(now):
            self.tell(Heartbeat())
        verdict, seconds = self._beats.verdict(self._wire, now), f"{self._beats.silence(self._wire, now):.0f} s"
        match verdict:
            case Silence.STOPPED:
                return f"the coordinator at {self.wiring.coordinator} is stopped: it has sent nothing for {seconds}"
            case Silence.GONE:
                return f"cut off from the run at {self.wiring.coordinator}: nothing has come from it for {seconds}"
        return ""

    def close(self) -> None:
        self._wire.close()


def reach(places: tuple[str, ...], wiring: Wiring, hello: Hello, patience: float = inf) -> CoordinatorLink:
    """Connect to the coordinator at the first of these addresses where it answers."""
    problems: list[RunError] = []
    for place in places:
        here = replace(wiring, coordinator=place)
        try:
            return CoordinatorLink(connect_coordinator(here, hello), here, patience)
        except RunError as error:
            problems.append(error)
    if len(problems) == 1:
        raise problems[0]
    raise RunError("; ".join(map(str, problems)))


def _no_payload(message: Frame, size: int) -> memoryview:
    raise PeerError(f"it sent {type(message).__name__} with a payload of {size:,} bytes")
