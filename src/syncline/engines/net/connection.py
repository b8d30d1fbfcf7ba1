"""One connection that carries frames: it never blocks, and it copies a payload only if the socket will not take it now.

1. What is sent is given to the socket at once; the rest waits in order, copied, until the socket takes more.
2. A header is read into a small buffer; a payload is read straight into the memory that its reader names.
3. A frame that breaks the rules raises `PeerError`; the connection is then of no further use.
4. The buffer grows with what has arrived, not with what is announced, and shrinks again.
5. Whoever sends without end is read for a share at a time, so that others have their turn.
6. At most one descriptor is kept, and only until the peer has said who it is.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress

from syncline.engines.net.frames import HEADER, PREFIX, STRANGER, Frame, pack, unpack
from syncline.errors import PeerError
from syncline.messages import PAYLOAD, Message

Sink = Callable[[Frame, int], memoryview]
"""Where the payload of this message goes: memory of exactly so many bytes, or `PeerError`."""

_ROOM = 1 << 16
_SIP = 1 << 13
"""Bytes that are read at a time where headers are expected: what is payload among them has to be copied."""

_SPARE = 32
"""How many used copies are kept to be used again."""

_SHARE_FRAMES, _SHARE_BYTES = 64, 16 << 20
_AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """A stream socket that speaks in frames."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.fds: list[int] = []
        """The file descriptor that came along with the first frame, if one did; gone once the peer is known."""
        self.backlog = 0
        """How many bytes wait until the socket takes more."""
        self.further: tuple[type[Message], ...] = ()
        """Messages of a strategy's own that are understood here, beside those that every process understands."""
        self._limit = STRANGER
        self._takes_fds = sock.family == socket.AF_UNIX
        self._queue: deque[memoryview] = deque()
        self._spare: list[bytearray] = []
        self._room = bytearray(_ROOM)
        self._start = 0
        self._stop = 0
        self._message: Frame | None = None
        self._payload = memoryview(b"")
        self._missing = 0

    @property
    def is_near(self) -> bool:
        """Does it lead to a process of this host? Whoever is accepted there belongs to this user (event_loop.py)."""
        return self.sock.family == socket.AF_UNIX

    def fileno(self) -> int:
        return self.sock.fileno()

    def trust(self, limit: int = HEADER) -> None:
        """The peer has said who it is: from now on headers up to `limit` are read, and no descriptors are taken."""
        self._limit = limit
        self._takes_fds = False
        self._close_fds()

    def close(self) -> None:
        self._close_fds()
        self._queue.clear()
        self.backlog = 0
        self.sock.close()

    def cut(self) -> None:
        """End the connection; whoever watches the wire finds it ended."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _close_fds(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    # Out.

    @property
    def waiting(self) -> bool:
        """Is there something left that the socket has not taken?"""
        return bool(self._queue)

    def send(self, message: Frame, payload: memoryview | None = None, *, lasting: bool = False) -> None:
        """Send a frame; `payload` may change as soon as this returns, unless it is `lasting`: that is not copied."""
        parts = [memoryview(pack(message, payload.nbytes if payload is not None else 0))]
        if payload is not None:
            parts.append(payload.cast("B"))
        if not self._queue:
            parts = self._give(parts)
        for part in parts:
            self._queue.append(part if lasting else self._copy(part))
            self.backlog += part.nbytes

    def send_with(self, message: Frame, fd: int) -> None:
        """Send the first frame of a connection on this host, and a descriptor along with it."""
        socket.send_fds(self.sock, [pack(message)], [fd])

    def flush(self) -> None:
        """Give the socket what it takes now."""
        while self._queue:
            before = self._queue[0].nbytes
            left = self._give([self._queue[0]])
            self.backlog -= before - (left[0].nbytes if left else 0)
            if left:
                self._queue[0] = left[0]
                return
            self._reuse(self._queue.popleft())

    def _copy(self, part: memoryview) -> memoryview:
        """A copy in memory that was used before, if there is some: fresh memory costs more than the copy."""
        size = part.nbytes
        fitting = self._spare and len(self._spare[-1]) >= size
        kept = memoryview(self._spare.pop() if fitting else bytearray(size))[:size]
        kept[:] = part
        return kept

    def _reuse(self, kept: memoryview) -> None:
        memory = kept.obj
        if isinstance(memory, bytearray) and len(self._spare) < _SPARE and len(memory) >= _ROOM:
            self._spare.append(memory)

    def _give(self, parts: list[memoryview]) -> list[memoryview]:
        """Give these to the socket; what is left of them."""
        while parts:
            try:
                if len(parts) > 1 and not isinstance(self.sock, ssl.SSLSocket):
                    sent = self.sock.sendmsg(parts)
                else:
                    sent = self.sock.send(parts[0])
            except _AGAIN:
                break
            while parts and sent >= parts[0].nbytes:
                sent -= parts[0].nbytes
                parts = parts[1:]
            if sent:
                parts = [parts[0][sent:], *parts[1:]]
        return parts

    # In.

    def receive(self, sink: Sink) -> Iterator[tuple[Frame, memoryview | None]]:
        """The frames that have arrived whole; ends when there is no more now, or when a share of it is read.

        `EOFError`: the peer is gone. What is left after a share is still in the socket, so a poll finds it.
        """
        frames = size = 0
        while True:
            while (frame := self._next(sink)) is not None:
                frames += 1
                yield frame
            if (frames >= _SHARE_FRAMES or size >= _SHARE_BYTES) and not self._holds_more():
                return
            got = self._fill()
            if not got:
                return
            size += got

    def _holds_more(self) -> bool:
        """Has TLS decrypted something that a poll of the socket would not find?"""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def _next(self, sink: Sink) -> tuple[Frame, memoryview | None] | None:
        if self._message is None and not self._begin(sink):
            return None
        if self._missing:
            have = min(self._missing, self._stop - self._start)
            if have:
                at = self._payload.nbytes - self._missing
                self._payload[at : at + have] = memoryview(self._room)[self._start : self._start + have]
                self._start += have
                self._missing -= have
            if self._missing:
                return None
        message, payload = self._message, self._payload
        assert message is not None
        self._message = None
        self._payload = memoryview(b"")
        return message, payload if payload.nbytes else None

    def _begin(self, sink: Sink) -> bool:
        """Take a header out of the buffer, if there is a whole one."""
        have = self._stop - self._start
        if have < PREFIX.size:
            return False
        header, payload = PREFIX.unpack_from(self._room, self._start)
        if header > self._limit or payload > PAYLOAD:
            raise PeerError(f"a frame with a header of {header:,} bytes and a payload of {payload:,}: too large")
        whole = PREFIX.size + header
        if have < whole:
            if whole > len(self._room) == have:
                self._resize(min(whole, 2 * have))
            return False
        begin = self._start + PREFIX.size
        message = unpack(memoryview(self._room)[begin : begin + header], self.further)
        self._start += whole
        if payload:
            self._payload = sink(message, payload)
            if self._payload.nbytes != payload:
                raise PeerError(f"{type(message).__name__} with a payload of {payload:,} bytes")
        self._message = message
        self._missing = payload
        return True

    def _resize(self, size: int) -> None:
        room = bytearray(size)
        have = self._stop - self._start
        room[:have] = self._room[self._start : self._stop]
        self._room, self._start, self._stop = room, 0, have

    def _fill(self) -> int:
        """Read what is there: a payload to its place, anything else into the buffer; how many bytes, 0: none now."""
        direct = self._missing and self._start == self._stop
        if direct:
            into = self._payload[self._payload.nbytes - self._missing :]
        else:
            left = self._stop - self._start
            if not left and len(self._room) > _ROOM:
                self._resize(_ROOM)
            if self._start:
                self._room[:left] = self._room[self._start : self._stop]
                self._start, self._stop = 0, left
            into = memoryview(self._room)[self._stop : self._stop + _SIP]
        got = self._read(into)
        if got is None:
            return 0
        if got == 0:
            raise EOFError
        if direct:
            self._missing -= got
        else:
            self._stop += got
        return got

    def _read(self, into: memoryview) -> int | None:
        try:
            if self._takes_fds:
                return self._read_with_fds(into)
            return self.sock.recv_into(into)
        except _AGAIN:
            return None
        except ConnectionError:
            return 0

    def _read_with_fds(self, into: memoryview) -> int:
        """Read, and keep the first descriptor that comes; the kernel closes what does not fit, and we the rest."""
        data, fds, _, _ = socket.recv_fds(self.sock, min(into.nbytes, STRANGER), 4)
        for fd in fds:
            if self.fds:
                os.close(fd)
            else:
                self.fds.append(fd)
        into[: len(data)] = data
        return len(data)
