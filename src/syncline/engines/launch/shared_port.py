"""One port for all processes of a host: the launcher listens there, and passes each connection to its process.

1. A connection says first for whom it is (net/port_preamble.py); without that it is for the coordinator. The launcher
   reads nothing else. The process that gets the socket goes on as if it had accepted it: TLS, then `Hello`.
2. A stranger cannot block the port: reading never waits, a connection that has not said for whom it is within
   PREAMBLE_SECONDS is closed, and if too many wait, one of the host that has the most is closed.
3. Only processes of the same user on this host get connections. One that is not of this run refuses them: its key or
   its identity differs, or it shares no port.
4. If the launcher is stopped (Ctrl-Z), new connections wait until it continues; those that are there go on.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic

from syncline.engines.launch.port_option import listen_at
from syncline.engines.net import addresses
from syncline.engines.net.control import Passed
from syncline.engines.net.event_loop import source_of
from syncline.engines.net.frames import pack
from syncline.engines.net.port_preamble import LONGEST_NAME, MAGIC, is_target
from syncline.engines.net.refusals import RefusalLog

PREAMBLE_SECONDS = 5.0
"""Seconds in which a connection must say for whom it is."""

MOST_UNDECIDED = 128
"""How many connections may not have said yet for whom they are."""

_ACCEPTS_AT_ONCE = 16


@dataclass(eq=False)
class Undecided:
    """A connection that has not said yet for whom it is."""

    sock: socket.socket
    source: str
    until: float
    begun: bool = False
    """It has sent the beginning of a preamble."""
    length: int = -1
    name: bytes = b""


class SharedPort:
    """Listens, and passes connections on; `watch` and `forget` let the launcher's loop call it."""

    def __init__(
        self,
        watch: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
        coordinator: Callable[[], str],
    ) -> None:
        """`coordinator`: the name of the coordinator's Unix socket, "" if it is not on this host."""
        self._watch = watch
        self._forget = forget
        self._coordinator = coordinator
        self._listener: socket.socket | None = None
        self._undecided: list[Undecided] = []
        self._refusals = RefusalLog("syncline")
        self._spare = -1
        """A spare file descriptor, to accept and close a connection when there are none left."""

    def start(self, host: str, port: int) -> None:
        self._listener = listen_at(host, port)
        self._listener.setblocking(False)
        self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._watch(self._listener.fileno(), self._accept_some)

    def close(self) -> None:
        for each in list(self._undecided):
            self._end(each)
        if self._listener is not None:
            self._forget(self._listener.fileno())
            self._listener.close()
            self._listener = None
            os.close(self._spare)

    def close_silent(self, now: float) -> None:
        """Close the connections that have not said for whom they are; call this at intervals."""
        for each in [each for each in self._undecided if now > each.until]:
            self._refuse(each, f"it did not say within {PREAMBLE_SECONDS:g} s for whom it is")

    def _accept_some(self) -> None:
        assert self._listener is not None
        for _ in range(_ACCEPTS_AT_ONCE):
            try:
                sock, where = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    self._refuse_without_descriptor()
                return  # the peer closed before we accepted
            self._accept(sock, source_of(where))

    def _accept(self, sock: socket.socket, source: str) -> None:
        sock.setblocking(False)
        # Not readable before a decision is possible: a stranger who sends less must not keep this process busy.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, len(MAGIC))
        each = Undecided(sock, source, monotonic() + PREAMBLE_SECONDS)
        self._undecided.append(each)
        self._watch(sock.fileno(), lambda: self._read(each))
        if len(self._undecided) > MOST_UNDECIDED:
            self._displace()

    def _displace(self) -> None:
        """Close a connection of the host that has the most of them, but not the newest."""
        waiting: dict[str, list[Undecided]] = {}
        for each in self._undecided:
            waiting.setdefault(each.source, []).append(each)
        crowd = max(waiting.values(), key=len)
        problem = f"more than {MOST_UNDECIDED} connections had not said for whom they are"
        self._refuse(secrets.choice(crowd[:-1] or crowd), problem)

    def _refuse_without_descriptor(self) -> None:
        """No descriptors are left: accept with the spare one and close, or the listener would be ready for ever."""
        os.close(self._spare)
        try:
            assert self._listener is not None
            with suppress(OSError):
                self._listener.accept()[0].close()
        finally:
            self._spare = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        self._refusals.sent_away("this process can open no more files")

    def _read(self, each: Undecided) -> None:
        """Something has come on a connection; take no byte more than the preamble."""
        if each not in self._undecided:
            return  # it was closed in the same turn
        try:
            target = self._target(each)
        except BlockingIOError:
            return
        except EOFError:
            self._end(each)
        except OSError as error:
            self._refuse(each, error.strerror or str(error))
        except ValueError as error:
            self._refuse(each, str(error))
        else:
            self._pass_on(each, target)

    def _target(self, each: Undecided) -> str:
        """For whom it is; raise BlockingIOError if that is not known yet, EOFError if it has ended."""
        if not each.begun:
            first = each.sock.recv(len(MAGIC), socket.MSG_PEEK)
            if not first:
                raise EOFError
            if first != MAGIC:
                return self._coordinator()
            each.sock.recv(len(MAGIC))
            each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
            each.begun = True
        if each.length < 0:
            (each.length,) = _some(each.sock, 1)
            if each.length > LONGEST_NAME:
                raise ValueError("it did not say for whom it is")
        while len(each.name) < each.length:
            each.name += _some(each.sock, each.length - len(each.name))
        name = each.name.decode("ascii", "replace")
        if not is_target(name):
            raise ValueError("it is for a process that cannot exist")
        return name

    def _pass_on(self, each: Undecided, target: str) -> None:
        """Give the connection to the process whose Unix socket has this name."""
        if not target:
            self._refuse(each, "it is for the coordinator, which runs on another host")
            return
        each.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        try:
            with socket.socket(socket.AF_UNIX) as there:
                there.setblocking(False)
                there.connect(f"\0{target}")
                if addresses.peer_credentials(there).uid == os.geteuid():
                    socket.send_fds(there, [pack(Passed())], [each.sock.fileno()])
        except OSError as error:  # it has ended, or too many connections wait for it: the peer may try again
            self._refuse(each, f"the process that it is for does not accept it: {error.strerror}")
        else:
            self._end(each)

    def _refuse(self, each: Undecided, reason: str) -> None:
        self._end(each)
        self._refusals.sent_away(reason)

    def _end(self, each: Undecided) -> None:
        self._undecided.remove(each)
        self._forget(each.sock.fileno())
        each.sock.close()


def _some(sock: socket.socket, most: int) -> bytes:
    found = sock.recv(most)
    if not found:
        raise EOFError
    return found
