"""A TLS handshake that has ended before the event loop has looked at it."""

from __future__ import annotations

import socket
from pathlib import Path
from threading import Thread

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Abort
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import Frame
from syncline.engines.net.keys import client_context, make_key_file, server_context
from syncline.errors import PeerError

SIZE = 1 << 22


class Owner:
    """Receives nothing."""

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        raise AssertionError(message)

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        raise AssertionError(message)

    def broke(self, wire: Connection, error: PeerError) -> None:
        raise error

    def closed(self, wire: Connection, reason: str) -> None:
        raise AssertionError(reason)


def test_what_waits_is_sent_although_no_event_follows_the_handshake(tmp_path: Path) -> None:
    """The peer has nothing to say after the handshake, so only the loop itself can find out that it is over."""
    key = tmp_path / "key"
    make_key_file(key)
    ours, theirs = socket.socketpair()
    received = bytearray()

    def read_all() -> None:
        with server_context(key).wrap_socket(theirs, server_side=True) as peer:
            while more := peer.recv(1 << 16):
                received.extend(more)

    reader = Thread(target=read_all)
    reader.start()
    tls = client_context(key).wrap_socket(ours, server_hostname="syncline")
    tls.setblocking(False)
    wire, loop = Connection(tls), EventLoop(Owner())
    loop.call(wire, tls)
    try:
        payload = memoryview(bytes(SIZE))
        wire.send(Abort(""), payload)
        assert wire.waiting, "the socket takes less at once"
        loop.write(wire)
        for _ in range(400):
            if not wire.waiting:
                break
            loop.turn(0.05)
        assert not wire.waiting
    finally:
        loop.close()
        reader.join(30)
    assert len(received) > SIZE
