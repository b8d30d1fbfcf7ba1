"""The event loop of coordinator, server and worker: many connections, listeners and timers, on one thread.

1. The loop reads a limited amount from each connection at a time, and writes as much as its socket accepts.
2. The loop passes frames to its owner. If a frame breaks the protocol, the owner decides what happens to the sender.
3. An accepted connection is unauthenticated until the owner calls `known`.
4. Timers fire in `turn`, in the order of their times.
5. A caller can poll the loop like a file (`fileno`): it is readable when there is something to do.
6. Work that may block, such as a connect to a peer that does not accept, runs aside in a thread; what follows from it
   runs in `turn`.
"""

from __future__ import annotations

import errno
import os
import resource
import secrets
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from ipaddress import IPv6Network
from itertools import count
from threading import Lock, Thread
from time import monotonic
from typing import Protocol

from syncline.engines.net.addresses import peer_credentials, tune
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Passed
from syncline.engines.net.frames import HEADER, Frame
from syncline.engines.net.lasting import LastingConnection, come_back
from syncline.engines.process import os_problem, say
from syncline.errors import PeerError, SynclineError

HELLO_SECONDS = 5.0
"""Seconds in which an accepted peer must identify itself; after that the loop closes its connection."""

MOST_UNAUTHENTICATED = 512
"""How many unauthenticated connections may be open, or half of the process's descriptors if that is less.

If there are more, the loop closes one of the host that has the most of them, chosen at random. A host that opens many
displaces only its own. If others share its address, each of theirs is closed only with a small probability.
"""

BACKLOG = 64 << 20
"""The loop stops reading from a peer for which more than this many bytes wait to be sent."""

_ACCEPTS_PER_TURN = 16

_READABLE = select.EPOLLIN


def source_of(address: object) -> str:
    """The host that a connection comes from; for IPv6 its network, since a host has many addresses there."""
    if not isinstance(address, tuple):
        return ""  # a Unix socket
    host = str(address[0]).partition("%")[0]
    return str(IPv6Network(f"{host}/64", strict=False)) if ":" in host else host


class LoopOwner(Protocol):
    """Handles the frames of a loop's connections."""

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        """Return memory for a payload of `size` bytes, or raise `PeerError`."""
        ...

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        """Handle a complete frame; raise `PeerError` if it breaks the protocol."""
        ...

    def broke(self, wire: Connection, error: PeerError) -> None:
        """The peer has sent a frame that breaks the protocol."""
        ...

    def closed(self, wire: Connection, reason: str) -> None:
        """The connection has ended; `reason` is empty if the peer closed it."""
        ...


class EventLoop:
    """Waits with epoll for connections, listeners and timers."""

    def __init__(
        self,
        owner: LoopOwner,
        backlog: float | None = None,
        made: Callable[[socket.socket], Connection] = Connection,
    ) -> None:
        """`backlog`: stop reading from a peer for which more bytes than this wait to be sent; None: `BACKLOG`.

        `made`: makes the connection for an accepted socket.
        """
        self._owner = owner
        self._made = made
        self._own_backlog = backlog
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timers_set = count()
        self._epoll = select.epoll()
        self._wires: dict[int, Connection] = {}
        self._listeners: dict[int, tuple[socket.socket, ssl.SSLContext | None]] = {}
        self._takes_passed = False
        self._context_of_passed: ssl.SSLContext | None = None
        self._unauthenticated: dict[Connection, tuple[float, str]] = {}
        """When each of them is closed, and which host it comes from."""
        self._handshaking: dict[Connection, ssl.SSLSocket] = {}
        self._interest: dict[int, int] = {}
        self._gathered: dict[Connection, None] = {}
        """The connections for which small frames wait until the end of the turn."""
        self._actions: dict[int, Callable[[], None]] = {}
        self._follows: deque[Callable[[], None]] = deque()
        self._bell = -1
        """Rings when work that ran aside is done; -1: there was none so far."""
        self._aside = Lock()
        self._away: list[LastingConnection] = []
        """Connections that have ended, and are being made again."""
        self._said_limit = False
        """Was the user told that this process can open no more files?"""
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        """A spare file descriptor, to accept and close a connection when the process has no descriptors left."""

    def listen(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        """Accept connections here; with a context, only with TLS."""
        sock.setblocking(False)
        self._listeners[sock.fileno()] = (sock, context)
        self._epoll.register(sock.fileno(), select.EPOLLIN)

    def accept_passed(self, context: ssl.SSLContext | None) -> None:
        """Also take connections that the launcher has accepted for this process, with this context for TLS."""
        self._takes_passed, self._context_of_passed = True, context

    def add(self, wire: Connection, *, unauthenticated: bool = False, source: str = "") -> None:
        """Watch a connection; `unauthenticated`: its peer, at the host `source`, must still identify itself."""
        fd = wire.fileno()
        self._wires[fd] = wire
        self._interest[fd] = select.EPOLLIN
        self._epoll.register(fd, select.EPOLLIN)
        if unauthenticated:
            self._unauthenticated[wire] = (monotonic() + HELLO_SECONDS, source)
        if wire.waiting:
            self.write(wire)

    def call(self, wire: Connection, tls: ssl.SSLSocket | None) -> None:
        """Watch a connection that we have opened; the loop does the TLS handshake, if any, without blocking."""
        if tls is not None:
            self._handshaking[wire] = tls
        self.add(wire)

    def fileno(self) -> int:
        return self._epoll.fileno()

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` after this many seconds, in `turn`."""
        heappush(self._timers, (monotonic() + seconds, next(self._timers_set), action))

    def aside(self, work: Callable[[], Callable[[], None]]) -> None:
        """Run `work` in a thread, and the function that it returns in `turn`. `work` must not use the loop."""
        if self._bell < 0:
            self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
            self.watch(self._bell, self._follow)

        def run() -> None:
            follow = work()
            with self._aside:
                if self._bell >= 0:
                    self._follows.append(follow)
                    os.eventfd_write(self._bell, 1)

        Thread(target=run, name="syncline-aside", daemon=True).start()

    def _follow(self) -> None:
        os.eventfd_read(self._bell)
        while self._follows:
            self._follows.popleft()()

    @property
    def _backlog(self) -> float:
        return BACKLOG if self._own_backlog is None else self._own_backlog

    @property
    def waiting(self) -> bool:
        """Do bytes wait to be sent on any connection?"""
        return any(wire.waiting for wire in self._wires.values())

    def watch(self, fd: int, action: Callable[[], None]) -> None:
        """Call `action` whenever this file descriptor is readable."""
        self._actions[fd] = action
        self._epoll.register(fd, select.EPOLLIN)

    def known(self, wire: Connection, limit: int = HEADER) -> None:
        """The peer has identified itself, and may send headers of up to `limit` bytes."""
        self._unauthenticated.pop(wire, None)
        wire.trust(limit)

    def drop(self, wire: Connection) -> None:
        """Close a connection without telling the owner."""
        fd = wire.fileno()
        if self._wires.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            del self._interest[fd]
        self._unauthenticated.pop(wire, None)
        self._handshaking.pop(wire, None)
        wire.away = False
        wire.close()

    def release(self, wire: Connection) -> None:
        """Watch this connection no longer, and leave its socket open."""
        fd = wire.fileno()
        if self._wires.pop(fd, None) is not None:
            self._epoll.unregister(fd)
            del self._interest[fd]
        self._unauthenticated.pop(wire, None)

    def write(self, wire: Connection) -> None:
        """Send the bytes that wait on this connection as soon as the socket accepts them."""
        fd, tls = wire.fileno(), self._handshaking.get(wire)
        if fd < 0 or (tls is not None and tls.version() is None):
            return
        if tls is not None:  # writing has ended the handshake, and perhaps no event follows
            del self._handshaking[wire]
            self._interest[fd] = 0
        wanted = select.EPOLLIN if wire.backlog <= self._backlog else 0
        if wire.waiting:
            wanted |= select.EPOLLOUT
        if self._interest.get(fd, wanted) != wanted:
            self._interest[fd] = wanted
            self._epoll.modify(fd, wanted)

    def gather(self, wire: Connection, message: Frame) -> None:
        """Send a small frame together with others to this peer, when everything that has been received is handled."""
        wire.gather(message)
        self._gathered[wire] = None

    def lose(self, wire: Connection, reason: str) -> None:
        """Close a connection, and tell the owner why."""
        if wire.fileno() < 0:
            return
        self.drop(wire)
        self._owner.closed(wire, reason)

    def close(self) -> None:
        """Close everything; a second call does nothing."""
        if self._epoll.closed:
            return
        for wire in list(self._wires.values()):
            self.drop(wire)
        for away in self._away:
            away.away = False  # the thread that tries to connect it ends
        for sock, _ in self._listeners.values():
            sock.close()
        self._listeners.clear()
        self._epoll.close()
        with self._aside:
            if self._bell >= 0:
                os.close(self._bell)
                self._bell = -1
        os.close(self._spare)

    def turn(self, timeout: float) -> None:
        """Wait for at most `timeout` seconds, then handle what has happened."""
        if self._unauthenticated:
            self._close_silent()
            timeout = min(timeout, 1.0)
        if self._timers:
            timeout = min(timeout, max(self._timers[0][0] - monotonic(), 0.0))
        for fd, what in self._epoll.poll(timeout):
            wire = self._wires.get(fd)
            if wire is None:
                self._act(fd)
            elif self._handshaking and wire in self._handshaking:
                self._handshake(wire)
            elif what == _READABLE:
                self._read(wire)
            else:
                if what & select.EPOLLOUT:
                    self._flush(wire)
                if what & ~select.EPOLLOUT and wire.fileno() >= 0:
                    self._read(wire)
        if self._timers:
            self._fire()
        while self._gathered:
            wire, _ = self._gathered.popitem()
            if wire.fileno() >= 0 and wire not in self._handshaking:
                self._flush(wire)

    def _act(self, fd: int) -> None:
        """Handle a file descriptor that is not a connection's."""
        if fd in self._listeners:
            self._accept_some(*self._listeners[fd])
        elif fd in self._actions:
            self._actions[fd]()

    def _fire(self) -> None:
        now = monotonic()
        while self._timers and self._timers[0][0] <= now:
            heappop(self._timers)[2]()

    def _read(self, wire: Connection) -> None:
        owner = self._owner
        try:
            for message, payload in wire.receive(lambda message, size: owner.sink(wire, message, size)):
                if type(message) is Passed:
                    self._take_passed(wire)
                else:
                    owner.frame(wire, message, payload)
                if not wire.open or (wire.backlog and wire.backlog > self._backlog):
                    break
            return
        except EOFError:
            reason, broken = "", None
        except PeerError as error:
            reason, broken = "", error
        except OSError as error:
            reason, broken = str(error), None
        if broken is None:  # outside of the `except`, so that the owner's own error has no other one behind it
            self._ended(wire, reason)
        else:
            owner.broke(wire, broken)

    def _flush(self, wire: Connection) -> None:
        paused = wire.backlog > self._backlog
        reason = None
        try:
            wire.flush()
        except OSError as error:
            reason = str(error)
        if reason is not None:
            self._ended(wire, reason)
            return
        self.write(wire)
        if paused and wire.backlog <= self._backlog:
            self._read(wire)  # frames from before the pause may be in our buffer already

    # Connections that come back.

    def _ended(self, wire: Connection, reason: str) -> None:
        """A connection has ended: connect again if it is one with a coordinator that is started again."""
        if not isinstance(wire, LastingConnection) or not wire.comes_back:
            self.lose(wire, reason)
            return
        self.drop(wire)
        wire.away = True
        self._away.append(wire)

        def work() -> Callable[[], None]:
            try:
                found = come_back(wire)
            except (SynclineError, OSError) as error:
                problem = str(error)
                return lambda: self._stays_away(wire, f"{reason}{reason and '; '}{problem}")
            return lambda: self._is_back(wire, *found)

        self.aside(work)

    def _stays_away(self, wire: LastingConnection, reason: str) -> None:
        self._away.remove(wire)
        if wire.away:
            wire.away = False
            self._owner.closed(wire, reason)

    def _is_back(self, wire: LastingConnection, other: Connection, heard: int) -> None:
        self._away.remove(wire)
        if not wire.away:
            other.close()  # the owner has ended it meanwhile
            return
        problem = None
        try:
            wire.resume(other, heard)
        except PeerError as error:
            problem = error
        if problem is not None:
            other.close()
            wire.away = False
            self._owner.closed(wire, str(problem))
            return
        self.add(wire)
        self._read(wire)  # what came together with the answer

    # Accepting connections.

    def _accept_some(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        """Accept the waiting connections, up to a limit, so that the other connections do not wait for long."""
        for _ in range(_ACCEPTS_PER_TURN):
            try:
                peer, address = sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._refuse_without_descriptor(sock, error)
                return  # the peer closed before we accepted
            self._accept(peer, context, source_of(address))

    def _accept(self, peer: socket.socket, context: ssl.SSLContext | None, source: str) -> None:
        try:
            self._add_accepted(peer, context, source)
        except OSError:
            peer.close()  # the peer closed meanwhile
        most = min(MOST_UNAUTHENTICATED, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2)
        if len(self._unauthenticated) > most:
            self._displace(most)

    def _displace(self, most: int) -> None:
        """Close an unauthenticated connection of the host that has the most of them, but not the newest."""
        waiting: dict[str, list[Connection]] = {}
        for wire, (_, source) in self._unauthenticated.items():
            waiting.setdefault(source, []).append(wire)
        crowd = max(waiting.values(), key=len)
        self.lose(secrets.choice(crowd[:-1] or crowd), f"more than {most} connections had not identified themselves")

    def _refuse_without_descriptor(self, sock: socket.socket, error: OSError) -> None:
        """No descriptors are left: accept with the spare one and close, or epoll would report the peer for ever."""
        if not self._said_limit:
            self._said_limit = True
            say(f"syncline: a connection was refused: {os_problem(error)}")
        os.close(self._spare)
        try:
            sock.accept()[0].close()
        except OSError:
            pass
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def _add_accepted(self, peer: socket.socket, context: ssl.SSLContext | None, source: str) -> None:
        peer.setblocking(False)
        if peer.family == socket.AF_UNIX and peer_credentials(peer).uid != os.getuid():
            peer.close()
            return
        tune(peer)
        if context is None:
            self.add(self._made(peer), unauthenticated=True, source=source)
            return
        peer.getpeername()  # fails if the peer has closed; `wrap_socket` would fail too, and leak the socket
        tls = context.wrap_socket(peer, server_side=True, do_handshake_on_connect=False)
        wire = self._made(tls)
        self._handshaking[wire] = tls
        self.add(wire, unauthenticated=True, source=source)

    def _take_passed(self, wire: Connection) -> None:
        """Go on with a connection that the launcher has accepted as if it had been accepted here."""
        if not self._takes_passed or wire not in self._unauthenticated or not wire.fds:
            raise PeerError("it passed on a connection, which this process does not expect")
        peer = socket.socket(fileno=wire.fds.pop())
        self.drop(wire)
        if peer.family not in (socket.AF_INET, socket.AF_INET6):
            peer.close()
            return
        try:
            source = source_of(peer.getpeername())
        except OSError:
            peer.close()  # the peer closed meanwhile
            return
        self._accept(peer, self._context_of_passed, source)

    def _handshake(self, wire: Connection) -> None:
        try:
            self._handshaking[wire].do_handshake()
        except ssl.SSLWantReadError:
            self._epoll.modify(wire.fileno(), select.EPOLLIN)
        except ssl.SSLWantWriteError:
            self._epoll.modify(wire.fileno(), select.EPOLLIN | select.EPOLLOUT)
        except OSError as error:
            self.lose(wire, f"the TLS handshake with the run's key failed: {error}")
        else:
            del self._handshaking[wire]
            self._interest[wire.fileno()] = 0
            self.write(wire)
            self._read(wire)

    def _close_silent(self) -> None:
        now = monotonic()
        for wire in [wire for wire, (until, _) in self._unauthenticated.items() if now > until]:
            self.lose(wire, f"it did not identify itself within {HELLO_SECONDS:g} s")
