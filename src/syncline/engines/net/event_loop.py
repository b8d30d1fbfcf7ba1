"""The event loop of coordinator, server and worker: many connections, listeners and timers, on one thread.

1. Every connection is read for a share at a time and written as far as its socket takes it.
2. Frames go to the owner of the loop. If one breaks the protocol, the owner says what that costs its sender.
3. A connection that was accepted is a stranger until the owner says that it is known.
4. Timers fire in `turn`, in the order of their times.
5. The loop can be waited for like a file (`fileno`): it is readable when there is something to do.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import ssl
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from time import monotonic
from typing import Protocol

from syncline.engines.net.addresses import peer_credentials, tune
from syncline.engines.net.connection import Connection
from syncline.engines.net.frames import HEADER, Frame
from syncline.errors import PeerError

HELLO_SECONDS = 5.0
"""A stranger that has not said who it is by then is sent away."""

STRANGERS = 128
"""If there are more at once, the one that has been silent for longest is sent away."""

BACKLOG = 64 << 20
"""From whoever leaves so many bytes of answers unread, nothing is read until it reads."""

_KNOCKS = 16


class LoopOwner(Protocol):
    """Whoever handles the frames of a wire."""

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        """Where a payload of this size goes, or `PeerError`."""
        ...

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        """A frame has arrived whole; `PeerError`: it breaks the protocol."""
        ...

    def broke(self, wire: Connection, error: PeerError) -> None:
        """A frame has broken the protocol."""
        ...

    def closed(self, wire: Connection, reason: str) -> None:
        """The peer is gone: why, in words; empty if it just closed."""
        ...


class EventLoop:
    """Waits with epoll; every connection is read for a share at a time and written as far as it takes."""

    def __init__(self, owner: LoopOwner, backlog: float | None = None) -> None:
        """`backlog`: nothing is read from a peer that leaves more bytes than this unread; None: `BACKLOG`."""
        self._owner = owner
        self._own_backlog = backlog
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timers_set = count()
        self._epoll = select.epoll()
        self._wires: dict[int, Connection] = {}
        self._listeners: dict[int, tuple[socket.socket, ssl.SSLContext | None]] = {}
        self._strangers: dict[Connection, float] = {}
        self._shaking: dict[Connection, ssl.SSLSocket] = {}
        self._interest: dict[int, int] = {}
        self._actions: dict[int, Callable[[], None]] = {}
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        """A descriptor to give up when there is no other: so that whoever knocks can be sent away."""

    def listen(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Accept strangers here; with a context, only inside TLS."""
        sock.setblocking(False)
        self._listeners[sock.fileno()] = (sock, context)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def add(self, wire: Connection, *, stranger: bool = False) -> None:
        """Watch a wire."""
        fd = wire.fileno()
        self._wires[fd] = wire
        self._interest[fd] = select.EPOLLIN
        self._epoll.register(fd, select.EPOLLIN)
        if stranger:
            self._strangers[wire] = monotonic() + HELLO_SECONDS
        if wire.waiting:
            self.write(wire)

    def call(self, wire: Connection, shaken: ssl.SSLSocket | None) -> None:
        """Watch a wire that we have opened; if it speaks TLS, its handshake is done here, so that nobody blocks."""
        if shaken is not None:
            self._shaking[wire] = shaken
        self.add(wire)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do this after so many seconds, in a `turn`."""
        heappush(self._timers, (monotonic() + seconds, next(self._timers_set), action))

    @property
    def _backlog(self) -> float:
        return BACKLOG if self._own_backlog is None else self._own_backlog

    @property
    def waiting(self) -> bool:
        """Is there something that a socket has not taken yet?"""
        return any(wire.waiting for wire in self._wires.values())

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Whenever there is something to read here, do this."""
        self._actions[fd] = action
        self._epoll.register(fd, select.EPOLLIN)

    def known(self, wire: Connection, limit: int = HEADER) -> None:
        """This stranger has said who it is, and may send headers of up to `limit` bytes."""
        self._strangers.pop(wire, None)
        wire.trust(limit)

    def drop(self, wire: Connection) -> None:
        """Close a wire without a word to its owner."""
        fd = wire.fileno()
        if self._wires.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            del self._interest[fd]
        self._strangers.pop(wire, None)
        self._shaking.pop(wire, None)
        wire.close()

    def write(self, wire: Connection) -> None:
        """See to it that what this wire still holds gets out."""
        fd = wire.fileno()
        if fd < 0 or wire in self._shaking:
            return
        wanted = select.EPOLLIN if wire.backlog <= self._backlog else 0
        if wire.waiting:
            wanted |= select.EPOLLOUT
        if self._interest.get(fd, wanted) != wanted:
            self._interest[fd] = wanted
            self._epoll.modify(fd, wanted)

    def lose(self, wire: Connection, reason: str) -> None:
        """Close a wire, and tell its owner why."""
        if wire.fileno() < 0:
            return
        self.drop(wire)
        self._owner.closed(wire, reason)

    def close(self) -> None:
        """End everything; a second time does nothing."""
        if self._epoll.closed:
            return
        for wire in list(self._wires.values()):
            self.drop(wire)
        for sock, _ in self._listeners.values():
            sock.close()
        self._listeners.clear()
        self._epoll.close()
        os.close(self._spare)

    def turn(self, timeout: float) -> None:
        """Wait for at most so long, and handle what has happened."""
        if self._strangers:
            self._send_away()
            timeout = min(timeout, 1.0)
        if self._timers:
            timeout = min(timeout, max(self._timers[0][0] - monotonic(), 0.0))
        for fd, what in self._epoll.poll(timeout):
            if fd in self._listeners:
                self._accept_some(*self._listeners[fd])
                continue
            if fd in self._actions:
                self._actions[fd]()
                continue
            wire = self._wires.get(fd)
            if wire is None:
                continue
            if wire in self._shaking:
                self._shake(wire)
                continue
            if what & select.EPOLLOUT:
                self._flush(wire)
            if what & ~select.EPOLLOUT and wire.fileno() >= 0:
                self._read(wire)
        if self._timers:
            self._fire()

    def _fire(self) -> None:
        now = monotonic()
        while self._timers and self._timers[0][0] <= now:
            heappop(self._timers)[2]()

    def _read(self, wire: Connection) -> None:
        owner = self._owner
        try:
            for message, payload in wire.receive(lambda message, size: owner.sink(wire, message, size)):
                owner.frame(wire, message, payload)
                if wire.fileno() < 0 or wire.backlog > self._backlog:
                    return
        except EOFError:
            self.lose(wire, "")
        except PeerError as error:
            owner.broke(wire, error)
        except OSError as error:
            self.lose(wire, str(error))

    def _flush(self, wire: Connection) -> None:
        paused = wire.backlog > self._backlog
        try:
            wire.flush()
        except OSError as error:
            self.lose(wire, str(error))
            return
        self.write(wire)
        if paused and wire.backlog <= self._backlog:
            self._read(wire)  # what it sent before the pause may be read from the socket already

    # Strangers.

    def _accept_some(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept as many as there are, but not so many that others wait for long."""
        for _ in range(_KNOCKS):
            try:
                peer, _ = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._turn_away(sock)
                return  # it went away again before it was accepted
            self._accept(peer, context)

    def _accept(self, peer: socket.socket, context: ssl.SSLContext | None) -> None:
        try:
            self._take_in(peer, context)
        except OSError:
            peer.close()  # it went away meanwhile
        if len(self._strangers) > STRANGERS:
            self.lose(next(iter(self._strangers)), f"was one of more than {STRANGERS} that said nothing")

    def _turn_away(self, sock: socket.socket) -> None:
        """There is no descriptor left: accept with the spare one, and close, or the knocking would never end."""
        os.close(self._spare)
        try:
            sock.accept()[0].close()
        except OSError:
            pass
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _take_in(self, peer: socket.socket, context: ssl.SSLContext | None) -> None:
        peer.setblocking(False)
        if peer.family == socket.AF_UNIX and peer_credentials(peer).uid != os.getuid():
            peer.close()
            return
        tune(peer)
        if context is None:
            self.add(Connection(peer), stranger=True)
            return
        peer.getpeername()  # fails if it is gone: `wrap_socket` would too, and leave a socket behind
        shaken = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        wire = Connection(shaken)
        self._shaking[wire] = shaken
        self.add(wire, stranger=True)

    def _shake(self, wire: Connection) -> None:
        try:
            self._shaking[wire].do_handshake()
        except ssl.SSLWantReadError:
            self._epoll.modify(wire.fileno(), select.EPOLLIN)
        except ssl.SSLWantWriteError:
            self._epoll.modify(wire.fileno(), select.EPOLLIN | select.EPOLLOUT)
        except OSError as error:
            self.lose(wire, f"no TLS with the right key: {error}")
        else:
            del self._shaking[wire]
            self._interest[wire.fileno()] = 0
            self.write(wire)
            self._read(wire)

    def _send_away(self) -> None:
        now = monotonic()
        for wire in [wire for wire, until in self._strangers.items() if now > until]:
            self.lose(wire, f"said nothing for {HELLO_SECONDS:g} s")
