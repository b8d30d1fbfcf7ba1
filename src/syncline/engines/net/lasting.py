"""A connection with the coordinator that survives the death of the coordinator.

1. Both sides count the frames that they send and receive, except those that are about a moment (`is_counted`).
2. Each side keeps what it has sent until the other one acknowledges it (`Heard`). Acknowledgements come every
   `HEARD_EVERY` frames, so little is kept.
3. A coordinator that is started again has the same counts and frames as the one before, because it has replayed the
   inputs of that one. Its peers connect again. They show the key of their connection and say how many frames they have
   received (`Resume`); the coordinator answers with its own count (`Resumed`). Then both send the rest again.
4. So every counted frame arrives once, in order, and the protocol above knows nothing of it.
"""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic, sleep

from syncline.engines.net.connection import Connection, Sink
from syncline.engines.net.control import (
    Frozen,
    Heard,
    Heartbeat,
    LastWord,
    Notice,
    Pulse,
    Refused,
    Resume,
    Resumed,
    Waiting,
)
from syncline.engines.net.frames import Frame
from syncline.errors import PeerError, RunError

HEARD_EVERY = 16
"""After how many frames the receiver acknowledges them."""

RESUME_SECONDS = 60.0
"""Seconds for which a peer tries to reach a coordinator that is started again. That usually takes a second."""

PAUSE_SECONDS = 0.1
"""Seconds between two attempts."""

ANSWER_SECONDS = 5.0
"""Seconds in which the coordinator must answer an attempt."""

OF_THE_MOMENT = (Heard, LastWord, Resume, Resumed, Pulse, Waiting, Heartbeat, Frozen)
"""Messages that nobody repeats: a later one says more, or they are about this connection."""

Again = Callable[[], Connection]
"""Connects to the coordinator once more; OSError or RunError if that fails."""


def is_counted(message: Frame) -> bool:
    """Must this message arrive, even if the coordinator dies?"""
    return not isinstance(message, OF_THE_MOMENT) and not (isinstance(message, Notice) and message.passing)


class LastingConnection(Connection):
    """One end of such a connection; the peer has `again` to connect anew, the coordinator has not."""

    def __init__(self, sock: socket.socket, key: str = "", again: Again | None = None) -> None:
        super().__init__(sock)
        self.key = key
        self.again = again
        self.lasting = True
        """Whether frames are kept; False if the run turns out not to start its coordinator again."""
        self.sent = 0
        """How many counted frames were sent."""
        self.heard = 0
        """How many counted frames were received."""
        self._near = sock.family == socket.AF_UNIX
        self._kept: deque[Frame] = deque()
        """The frames that the peer has not acknowledged."""
        self._told = 0
        """How many frames we have acknowledged."""

    @classmethod
    def absent(cls, near: bool) -> LastingConnection:
        """The connection of a peer that has not come back yet; `near`: it is on this host."""
        made = cls(socket.socket(socket.AF_UNIX))
        made.close()
        made._near = near
        made.away = True
        return made

    @property
    def ended(self) -> bool:
        return not (self.open or self.away)

    @property
    def is_near(self) -> bool:
        return self._near

    @property
    def comes_back(self) -> bool:
        """Can this end connect again?"""
        return self.lasting and self.again is not None

    def forgo(self) -> None:
        """The coordinator is not started again if it dies: keep nothing."""
        self.lasting = False
        self._kept.clear()

    # Sending.

    def send(self, message: Frame, payload: memoryview | None = None, *, lasting: bool = False) -> None:
        if self.lasting and is_counted(message):
            self.sent += 1
            self._kept.append(message)
        if self.open:
            try:
                super().send(message, payload, lasting=lasting)
            except OSError:
                if not self.lasting:
                    raise  # else the event loop reads the end of the connection, and what is kept is sent later

    def has_heard(self, count: int) -> bool:
        """Has the peer acknowledged so many frames?"""
        return self.sent - len(self._kept) >= count

    def acknowledged(self, count: int) -> None:
        """The peer has received this many frames."""
        if not self.sent - len(self._kept) <= count <= self.sent:
            raise PeerError(f"it says that it has received {count:,} messages of {self.sent:,}")
        for _ in range(count - (self.sent - len(self._kept))):
            self._kept.popleft()

    # Receiving.

    def receive(self, sink: Sink) -> Iterator[tuple[Frame, memoryview | None]]:
        for message, payload in super().receive(sink):
            if isinstance(message, Heard | LastWord):
                self._of_connection(message)
                continue
            self.heard += is_counted(message)
            yield message, payload
            self._tell()

    def _of_connection(self, message: Heard | LastWord) -> None:
        if isinstance(message, LastWord):
            self.forgo()
        elif self.lasting:
            self.acknowledged(message.count)

    def _tell(self) -> None:
        """Acknowledge what was received, now and then; it has been handled."""
        if self.lasting and self.open and self.heard >= self._told + HEARD_EVERY:
            self._told = self.heard
            self.send(Heard(self.heard))

    # Coming back.

    def resume(self, other: Connection, heard: int) -> None:
        """Go on with the socket of `other`; the peer has received `heard` frames. Send the rest again."""
        self.acknowledged(heard)
        self.adopt(other)
        self.away = False
        self.returns += 1
        for message in self._kept:
            with suppress(OSError):  # the event loop reads the end of the connection
                super().send(message)


def come_back(line: LastingConnection) -> tuple[Connection, int]:
    """Connect to the coordinator again; return the connection and how many frames it has received.

    `RunError` if the coordinator is not started again in time, or does not know this peer any more.
    """
    until = monotonic() + RESUME_SECONDS
    while line.away:
        found = try_again(line)
        if found is not None:
            return found
        if monotonic() > until:
            break
        sleep(PAUSE_SECONDS)
    raise RunError(f"the coordinator did not come back within {RESUME_SECONDS:g} s")


def try_again(line: LastingConnection) -> tuple[Connection, int] | None:
    """Try once; None if the coordinator cannot be reached yet."""
    assert line.again is not None
    try:
        wire = line.again()
    except (OSError, RunError):
        return None
    try:
        wire.send(Resume(line.key, line.heard))
        return wire, _answer(wire)
    except (OSError, EOFError):
        wire.close()
        return None
    except BaseException:
        wire.close()
        raise


def _answer(wire: Connection) -> int:
    """The count that the coordinator answers with; `OSError` or `EOFError` if it does not."""
    until = monotonic() + ANSWER_SECONDS
    while monotonic() < until:
        wire.flush()
        select.select([wire], [], [], 0.1)
        for message, _ in wire.receive(_no_payload):
            if isinstance(message, Resumed):
                return message.heard
            problem = message.reason if isinstance(message, Refused) else f"it answered {type(message).__name__}"
            raise RunError(f"the coordinator has started again, and does not know this process any more: {problem}")
    raise TimeoutError


def _no_payload(message: Frame, size: int) -> memoryview:
    raise PeerError(f"it sent {type(message).__name__} with a payload of {size:,} bytes")
