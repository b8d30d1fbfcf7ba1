"""All connections of one worker: sending, waiting, and the error that has ended its part in the run."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from math import ceil, inf
from time import monotonic

from syncline.engines.net.connection import Connection
from syncline.engines.net.connections import ConnectionReader, Connections
from syncline.engines.net.control import Waiting
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import Frame
from syncline.engines.net.link_use import ConnectionUse
from syncline.engines.net.tcp_liveness import TcpLiveness
from syncline.engines.process import say
from syncline.engines.worker.background_thread import BackgroundThread
from syncline.errors import RunError, SynclineError
from syncline.messages import COORDINATOR, Message, NodeId

NOTICE_SECONDS = 10.0
"""Seconds after which a worker that waits tells the coordinator, which tells the user for whom the run waits."""

STILL_SECONDS = 20.0
"""Seconds after which a worker that waits says that nothing comes. Less than it takes to send an update again."""

LOOK_SECONDS = 1.0
"""Seconds between two checks for hosts that have died."""

REASON_SECONDS = 0.5
"""Seconds that a worker waits for the coordinator to say why a server is gone."""

MUCH = 1 << 16
"""Once the program has sent this many bytes since it last waited, a background thread serves the connections."""

NO_COORDINATOR = "the coordinator is gone{}, and the membership cannot change without it"


class Traffic:
    """Reads and writes the connections while the program waits, and in the background while it computes."""

    def __init__(self, reader: ConnectionReader, awaits: Callable[[], bool]) -> None:
        """`awaits`: is an answer outstanding that the program does not wait for yet?"""
        self.error: SynclineError | None = None
        """Why this worker cannot continue."""
        self._awaits = awaits
        self._sent = 0
        """The bytes of payload that were sent since the program last waited."""
        self._said: Waiting | None = None
        """What the coordinator knows about the present wait."""
        self._returns = 0
        """How many times the coordinator was started again when it was told."""
        self._wires = Connections(reader)
        self.turn = BackgroundThread(self._wires, self._busy, self.fail)
        """The lock for the connections and the node."""

    def _busy(self) -> bool:
        return self._wires.waiting or self._awaits()

    def __contains__(self, id: NodeId) -> bool:
        return id in self._wires

    def waits(self, id: NodeId) -> bool:
        """Do bytes wait to be sent to this node?"""
        return self._wires.waits(id)

    def use(self, id: NodeId) -> ConnectionUse | None:
        """What the kernel has counted of the connection to this node; None if it does not say."""
        return self._wires.use(id)

    @property
    def coordinator_away(self) -> bool:
        """Has the coordinator died, and may it be started again?"""
        return self._wires.is_away(COORDINATOR)

    def after_turns(self, action: Callable[[], None]) -> None:
        """Call `action` whenever the connections were read and written."""
        self._wires.turned = action

    @property
    def loop(self) -> EventLoop:
        return self._wires.loop

    def add(self, id: NodeId, wire: Connection, messages: tuple[type[Message], ...] = ()) -> None:
        self._wires.add(id, wire, messages)

    def call(
        self,
        id: NodeId,
        wire: Connection,
        tls: ssl.SSLSocket | None,
        hello: Frame,
        messages: tuple[type[Message], ...],
        fd: int | None = None,
    ) -> None:
        """Add a connection whose TLS handshake is still to come, and send `hello` first; `fd`: goes along with it."""
        self._wires.call(id, wire, tls, hello, messages, fd)

    def known(self, id: NodeId, wire: Connection, messages: tuple[type[Message], ...], limit: int) -> None:
        """Add an accepted connection whose peer has identified itself."""
        self._wires.known(id, wire, messages, limit)

    def end(self, id: NodeId) -> None:
        """Close a connection without telling the reader."""
        self._wires.end(id)

    def send(self, to: NodeId, message: Frame, payload: memoryview | None = None, *, lasting: bool = True) -> None:
        """Send a frame; a `lasting` payload does not change until the peer has answered, so it is not copied."""
        with self.turn:
            if self.error is not None:
                raise self.error
            if to not in self._wires:
                raise self.fail(RunError(NO_COORDINATOR.format("") if to == COORDINATOR else f"{to} is gone"))
            self._wires.send(to, message, payload, lasting=lasting)
            if payload is not None:
                self._sent += payload.nbytes
                if self._sent >= MUCH or self._wires.waits(to):
                    self.turn.wake()

    def wait(self, done: Callable[[], bool], seconds: float = inf, notice: str = "") -> None:
        """Read and write until `done()`, for at most `seconds`; tell the coordinator if that takes long.

        `notice`: a line that this worker prints then.
        """
        with self.turn:
            self._sent = 0
            try:
                self._wait(done, seconds, notice)
            finally:
                if self._said is not None:
                    self._said = None
                    self._tell_coordinator(Waiting(0))

    def _wait(self, done: Callable[[], bool], seconds: float, notice: str) -> None:
        silence, stillness = None, None
        began = now = looked = monotonic()
        while not done():
            if self.error is not None:
                raise self.error
            left = began + seconds - now
            if left < 0:
                raise RunError(f"no answer for {seconds:g} s")
            self._wires.turn(min(left, LOOK_SECONDS))
            now = monotonic()
            if now - looked >= LOOK_SECONDS:
                silence, looked = silence or TcpLiveness(), now  # new: there were no checks before this call
                self._wires.look(silence, now)
                stillness = stillness or _Stillness(self._wires, now)
                stillness.look(now)
            if now - began >= NOTICE_SECONDS:
                self._say_waiting(
                    ceil(now - began), stillness is not None and stillness.seconds >= STILL_SECONDS, notice
                )

    def _say_waiting(self, seconds: int, still: bool, notice: str) -> None:
        returns = self._wires.returns(COORDINATOR)
        if self._said is not None and self._said.still == still and returns == self._returns:
            return
        if self._said is None and notice:
            say(f"syncline: {notice}")
        self._returns = returns
        self._said = Waiting(seconds, still)
        self._tell_coordinator(self._said)

    def _tell_coordinator(self, message: Waiting) -> None:
        if self.error is None and COORDINATOR in self._wires:
            self._wires.send(COORDINATOR, message)

    def fail(self, error: SynclineError) -> SynclineError:
        """Record the first error. Every later call raises it, and waiting calls stop."""
        self.error = self.error or error
        return self.error

    def hear_why(self) -> None:
        """Wait briefly for the coordinator, which may send a better reason for a lost connection."""
        until = monotonic() + REASON_SECONDS
        while COORDINATOR in self._wires and monotonic() < until:
            self._wires.turn(max(until - monotonic(), 0.0))

    def close(self) -> None:
        self.turn.close()
        self._wires.close()


class _Stillness:
    """How long nothing has come to a worker that waits, while everything that it sent has arrived."""

    def __init__(self, wires: Connections, now: float) -> None:
        self._wires = wires
        self._received = wires.received
        self._since = now
        self.seconds = 0.0

    def look(self, now: float) -> None:
        """Call this at intervals. What is sent again after a while does not count, only what is received."""
        received = self._wires.received
        if received != self._received or (self.seconds < STILL_SECONDS and not self._wires.delivered):
            self._received, self._since = received, now
        self.seconds = now - self._since
