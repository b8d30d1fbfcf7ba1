"""One thread that waits for many connections: frames go to whoever owns their wire, and a bad one costs its sender."""

from __future__ import annotations

import os
import select
import socket
import ssl
from time import monotonic
from typing import Protocol

from syncline.engines.addresses import peer_credentials, tune
from syncline.engines.frames import Frame
from syncline.engines.wire import Wire
from syncline.errors import PeerError

HELLO_SECONDS = 5.0
"""A stranger that has not said who it is by then is sent away."""


class Owner(Protocol):
    """Whoever handles the frames of a wire."""

    def sink(self, wire: Wire, message: Frame, size: int) -> memoryview:
        """Where a payload of this size goes, or `PeerError`."""
        ...

    def frame(self, wire: Wire, message: Frame, payload: memoryview | None) -> None:
        """A frame has arrived whole; `PeerError` costs the sender its connection."""
        ...

    def closed(self, wire: Wire, reason: str) -> None:
        """The peer is gone: why, in words; empty if it just closed."""
        ...


class Reactor:
    """Waits with epoll; every wire is read until it is empty and written as far as it takes."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._epoll = select.epoll()
        self._wires: dict[int, Wire] = {}
        self._listeners: dict[int, tuple[socket.socket, ssl.SSLContext | None]] = {}
        self._strangers: dict[Wire, float] = {}
        self._shaking: dict[Wire, ssl.SSLSocket] = {}
        self._writing: set[int] = set()

    def listen(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Accept strangers here; with a context, only inside TLS."""
        sock.setblocking(False)
        self._listeners[sock.fileno()] = (sock, context)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def add(self, wire: Wire, *, stranger: bool = False) -> None:
        """Watch a wire."""
        self._wires[wire.fileno()] = wire
        self._epoll.register(wire.fileno(), select.EPOLLIN)
        if stranger:
            self._strangers[wire] = monotonic() + HELLO_SECONDS
        if wire.waiting:
            self.write(wire)

    def known(self, wire: Wire) -> None:
        """This stranger has said who it is."""
        self._strangers.pop(wire, None)
        wire.trust()

    def drop(self, wire: Wire) -> None:
        """Close a wire without a word to its owner."""
        fd = wire.fileno()
        if self._wires.pop(fd, None) is not None:
            self._epoll.unregister(fd)
        self._writing.discard(fd)
        self._strangers.pop(wire, None)
        self._shaking.pop(wire, None)
        wire.close()

    def write(self, wire: Wire) -> None:
        """See to it that what this wire still holds gets out."""
        fd = wire.fileno()
        if fd >= 0 and wire.waiting and fd not in self._writing:
            self._writing.add(fd)
            self._epoll.modify(fd, select.EPOLLIN | select.EPOLLOUT)

    def close(self) -> None:
        for wire in list(self._wires.values()):
            self.drop(wire)
        for sock, _ in self._listeners.values():
            sock.close()
        self._listeners.clear()
        self._epoll.close()

    def turn(self, timeout: float) -> None:
        """Wait for at most so long, and handle what has happened."""
        if self._strangers:
            self._send_away()
            timeout = min(timeout, 1.0)
        for fd, what in self._epoll.poll(timeout):
            if fd in self._listeners:
                self._accept(*self._listeners[fd])
                continue
            wire = self._wires.get(fd)
            if wire is None:
                continue
            if wire in self._shaking:
                self._shake(wire)
                continue
            if what & select.EPOLLOUT:
                self._flush(fd, wire)
            if what & ~select.EPOLLOUT:
                self._read(wire)

    def _read(self, wire: Wire) -> None:
        owner = self._owner
        try:
            for message, payload in wire.receive(lambda message, size: owner.sink(wire, message, size)):
                owner.frame(wire, message, payload)
                if wire.fileno() < 0:
                    return
        except EOFError:
            self._lose(wire, "")
        except (PeerError, OSError) as error:
            self._lose(wire, str(error))

    def _flush(self, fd: int, wire: Wire) -> None:
        try:
            wire.flush()
        except OSError as error:
            self._lose(wire, str(error))
            return
        if not wire.waiting:
            self._writing.discard(fd)
            self._epoll.modify(fd, select.EPOLLIN)

    def _lose(self, wire: Wire, reason: str) -> None:
        self.drop(wire)
        self._owner.closed(wire, reason)

    # Strangers.

    def _accept(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            peer, _ = sock.accept()
        except OSError:
            return  # it went away again before it was accepted
        peer.setblocking(False)
        if peer.family == socket.AF_UNIX and peer_credentials(peer).uid != os.getuid():
            peer.close()
            return
        if peer.family != socket.AF_UNIX:
            tune(peer)
        if context is None:
            self.add(Wire(peer), stranger=True)
            return
        shaken = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        wire = Wire(shaken)
        self._shaking[wire] = shaken
        self.add(wire, stranger=True)

    def _shake(self, wire: Wire) -> None:
        try:
            self._shaking[wire].do_handshake()
        except ssl.SSLWantReadError:
            self._epoll.modify(wire.fileno(), select.EPOLLIN)
        except ssl.SSLWantWriteError:
            self._epoll.modify(wire.fileno(), select.EPOLLIN | select.EPOLLOUT)
        except OSError as error:
            self._lose(wire, f"no TLS with the right key: {error}")
        else:
            del self._shaking[wire]
            self._epoll.modify(wire.fileno(), select.EPOLLIN)
            self._read(wire)

    def _send_away(self) -> None:
        now = monotonic()
        for wire in [wire for wire, until in self._strangers.items() if now > until]:
            self._lose(wire, f"said nothing for {HELLO_SECONDS:g} s")
