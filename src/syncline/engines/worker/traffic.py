"""All connections of one worker: what it sends, how it waits, and why there may be no going on."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from math import inf
from time import monotonic

from syncline.engines.net.connection import Connection
from syncline.engines.net.connections import ConnectionReader, Connections
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import Frame
from syncline.engines.net.tcp_liveness import TcpLiveness
from syncline.engines.process import say
from syncline.engines.worker.background_thread import BackgroundThread
from syncline.errors import RunError, SynclineError
from syncline.messages import COORDINATOR, Message, NodeId

NOTICE_SECONDS = 10.0
"""Whoever waits longer than this at the start is told for what."""

LOOK_SECONDS = 1.0
"""Seconds between two looks whether a host has fallen silent."""

REASON_SECONDS = 0.5
"""For so long the coordinator is listened to, which may know why a server is gone."""

MUCH = 1 << 16
"""A payload of so many bytes is worth a thread that moves it while the program computes."""

NO_COORDINATOR = "the coordinator is gone{}, and the membership cannot change without it"


class Traffic:
    """Connections that are read and written while the program waits, and in the background while it computes."""

    def __init__(self, reader: ConnectionReader, awaits: Callable[[], bool]) -> None:
        """`awaits`: is an answer under way that the program does not wait for yet?"""
        self.error: SynclineError | None = None
        """Why this worker can take no further part."""
        self._awaits = awaits
        self._wires = Connections(reader)
        self.turn = BackgroundThread(self._wires, self._busy, self.fail)
        """Whoever has it may touch the wires and the node."""

    def _busy(self) -> bool:
        return self._wires.waiting or self._awaits()

    def __contains__(self, id: NodeId) -> bool:
        return id in self._wires

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
    ) -> None:
        """A connection whose handshake of TLS is yet to come; `hello` is said first."""
        self._wires.call(id, wire, tls, hello, messages)

    def known(self, id: NodeId, wire: Connection, messages: tuple[type[Message], ...], limit: int) -> None:
        """A connection that was accepted, and whose peer has said who it is."""
        self._wires.known(id, wire, messages, limit)

    def end(self, id: NodeId) -> None:
        """Close a connection without a word to anybody."""
        self._wires.end(id)

    def send(self, to: NodeId, message: Frame, payload: memoryview | None = None, *, lasting: bool = True) -> None:
        """Send a frame; a `lasting` payload stays as it is until it is answered, so it is not copied."""
        with self.turn:
            if self.error is not None:
                raise self.error
            if to not in self._wires:
                raise self.fail(RunError(NO_COORDINATOR.format("") if to == COORDINATOR else f"{to} is gone"))
            self._wires.send(to, message, payload, lasting=lasting)
            if payload is not None and (payload.nbytes >= MUCH or self._wires.waiting):
                self.turn.wake()

    def wait(self, done: Callable[[], bool], seconds: float = inf, notice: str = "") -> None:
        """Read and write until something holds, for at most so long; `notice`: what the user is told after a while."""
        silence = None
        began = now = looked = monotonic()
        with self.turn:
            while not done():
                if self.error is not None:
                    raise self.error
                left = began + seconds - now
                if left < 0:
                    raise RunError(f"nothing was heard for {seconds:g} s")
                self._wires.turn(min(left, LOOK_SECONDS))
                now = monotonic()
                if now - looked >= LOOK_SECONDS:
                    silence, looked = silence or TcpLiveness(), now  # new: nobody has looked while the program computed
                    self._wires.look(silence, now)
                if notice and now - began >= NOTICE_SECONDS:
                    say(f"syncline: {notice}")
                    notice = ""

    def fail(self, error: SynclineError) -> SynclineError:
        """Note that there is no going on: whoever asks again is told again, and nobody waits for what will not come."""
        self.error = self.error or error
        return self.error

    def hear_why(self) -> None:
        """The coordinator may know more of a loss, and says so: that is the better error."""
        until = monotonic() + REASON_SECONDS
        while COORDINATOR in self._wires and monotonic() < until:
            self._wires.turn(max(until - monotonic(), 0.0))

    def close(self) -> None:
        self.turn.close()
        self._wires.close()
