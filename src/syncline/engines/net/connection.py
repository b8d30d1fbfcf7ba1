"""A non-blocking connection that carries frames.

1. `send` writes to the socket at once. Bytes that the socket does not accept are copied and wait in order. `gather`
   lets small frames wait for each other: one call of the system, which wakes the peer up, then sends several.
2. A header is read into a small buffer. A payload is read directly into the memory that the reader provides.
3. A frame that breaks the protocol raises `PeerError`; the connection cannot be used after that.
4. The buffer grows with the bytes that have arrived, not with the announced length, and shrinks afterwards.
5. One call of `receive` reads a limited amount, so that one fast sender does not block the other connections.
6. A connection keeps at most one received file descriptor, and only until the peer has identified itself.
"""

from __future__ import annotations

import os
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice

from syncline.engines.net.frames import FIRST_HEADER, HEADER, PREFIX, Frame, pack, unpack
from syncline.errors import PeerError
from syncline.messages import PAYLOAD

Sink = Callable[[Frame, int], memoryview]
"""Returns memory of the given size in bytes for the payload of a message; raises `PeerError` if none is allowed."""

_BUFFER_BYTES = 1 << 16
_HEADER_READ = 1 << 13
"""Bytes per read where a header is expected. The payload bytes among them have to be copied, so this is small."""

_SPARE = 32
"""How many buffers are kept for reuse."""

_GATHERED = 16
"""How many parts of frames are sent at once."""

_SHARE_FRAMES, _SHARE_BYTES = 64, 16 << 20
_AGAIN = (BlockingIOError, InterruptedError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Connection:
    """A stream socket that sends and receives frames."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self.sock = sock
        self.fds: list[int] = []
        """The file descriptor that the peer sent with its first frame, if any; closed once the peer is known."""
        self.open = True
        self.away = False
        """The coordinator has died, and this connection goes on when it has started again (lasting.py)."""
        self.returns = 0
        """How many times it has gone on with a coordinator that was started again."""
        self.backlog = 0
        """How many bytes wait to be sent."""
        self.received = 0
        """How many bytes have been read."""
        self.further: tuple[type[Frame], ...] = ()
        """Message types that are accepted here, in addition to those that every process accepts."""
        self._limit = FIRST_HEADER
        self._tls = isinstance(sock, ssl.SSLSocket)
        self._takes_fds = sock.family == socket.AF_UNIX
        self._queue: deque[memoryview] = deque()
        self._spare: list[bytearray] = []
        self._buffer = bytearray(_BUFFER_BYTES)
        self._start = 0
        self._stop = 0
        self._message: Frame | None = None
        self._payload = memoryview(b"")
        self._missing = 0

    @property
    def ended(self) -> bool:
        """Is this connection over, so that nothing can be sent?"""
        return not self.open

    @property
    def is_near(self) -> bool:
        """Is the peer on this host? Accepted peers on this host belong to the same user (event_loop.py)."""
        return self.sock.family == socket.AF_UNIX

    @property
    def peer(self) -> str:
        """The address of the peer's host; empty on this host."""
        return "" if self.is_near else str(self.sock.getpeername()[0])

    def fileno(self) -> int:
        return self.sock.fileno()

    def trust(self, limit: int = HEADER) -> None:
        """The peer has identified itself: accept headers of up to `limit` bytes now, and no file descriptors."""
        self._limit = limit
        self._takes_fds = False
        self._close_fds()

    def close(self) -> None:
        self.open = False
        self._close_fds()
        self._queue.clear()
        self.backlog = 0
        self.sock.close()

    def adopt(self, other: Connection) -> None:
        """Go on with the socket of another connection, and with what it has read; `other` is not used any more."""
        self.sock, self._tls, self._takes_fds = other.sock, other._tls, False
        self._queue, self.backlog = other._queue, other.backlog
        self._buffer, self._start, self._stop = other._buffer, other._start, other._stop
        self._message, self._payload, self._missing = other._message, other._payload, other._missing
        self.open, other.open = True, False

    def cut(self) -> None:
        """Shut the connection down; the event loop then reads its end."""
        with suppress(OSError):
            self.sock.shutdown(socket.SHUT_RDWR)

    def _close_fds(self) -> None:
        while self.fds:
            os.close(self.fds.pop())

    # Sending.

    @property
    def waiting(self) -> bool:
        """Do bytes wait to be sent?"""
        return bool(self._queue)

    def send(self, message: Frame, payload: memoryview | None = None, *, lasting: bool = False) -> None:
        """Send a frame.

        `payload` may change as soon as this returns. A `lasting` payload is not copied, so it must not change until it
        has been sent.
        """
        parts = [memoryview(pack(message, payload.nbytes if payload is not None else 0))]
        if payload is not None:
            parts.append(payload.cast("B"))
        if not self._queue:
            parts = self._write(parts)
        for part in parts:
            self._queue.append(part if lasting else self._copy(part))
            self.backlog += part.nbytes

    def gather(self, message: Frame) -> None:
        """Send a frame without payload together with those that follow soon: its owner has the event loop flush."""
        part = memoryview(pack(message))
        self._queue.append(part)
        self.backlog += part.nbytes
        if len(self._queue) >= _GATHERED:
            self.flush()

    def send_with(self, message: Frame, fd: int) -> None:
        """Send the first frame of a connection on this host together with a file descriptor."""
        socket.send_fds(self.sock, [pack(message)], [fd])

    def flush(self) -> None:
        """Send as many of the waiting bytes as the socket accepts now."""
        while self._queue:
            parts = list(islice(self._queue, _GATHERED))
            left = self._write(parts)
            for part in parts[: len(parts) - len(left)]:
                self.backlog -= part.nbytes
                self._reuse(self._queue.popleft())
            if left:
                self.backlog -= self._queue[0].nbytes - left[0].nbytes
                self._queue[0] = left[0]
                return

    def _copy(self, part: memoryview) -> memoryview:
        """Copy into a reused buffer if one fits: new memory costs more than the copy itself."""
        size = part.nbytes
        fitting = self._spare and len(self._spare[-1]) >= size
        kept = memoryview(self._spare.pop() if fitting else bytearray(size))[:size]
        kept[:] = part
        return kept

    def _reuse(self, kept: memoryview) -> None:
        memory = kept.obj
        if isinstance(memory, bytearray) and len(self._spare) < _SPARE and len(memory) >= _BUFFER_BYTES:
            self._spare.append(memory)

    def _write(self, parts: list[memoryview]) -> list[memoryview]:
        """Send these, and return what the socket did not accept."""
        while parts:
            try:
                sent = self.sock.sendmsg(parts) if len(parts) > 1 and not self._tls else self.sock.send(parts[0])
            except _AGAIN:
                break
            while parts and sent >= parts[0].nbytes:
                sent -= parts[0].nbytes
                parts = parts[1:]
            if sent:
                parts = [parts[0][sent:], *parts[1:]]
        return parts

    # Receiving.

    def receive(self, sink: Sink) -> Iterator[tuple[Frame, memoryview | None]]:
        """Yield the frames that have arrived completely, up to the limit of one call.

        Raises `EOFError` if the peer has closed. Bytes beyond the limit stay in the socket; the next poll reports them.
        """
        frames = size = 0
        while True:
            if self._message is not None or self._start < self._stop:
                while (frame := self._next(sink)) is not None:
                    frames += 1
                    yield frame
            if (frames >= _SHARE_FRAMES or size >= _SHARE_BYTES) and not self._holds_more():
                return
            got, full = self._fill()
            if not got:
                return
            size += got
            if not full:  # the socket is empty: the next poll reports what comes later
                while (frame := self._next(sink)) is not None:
                    yield frame
                return

    def _holds_more(self) -> bool:
        """Has TLS already decrypted bytes that a poll of the socket would not report?"""
        return isinstance(self.sock, ssl.SSLSocket) and self.sock.pending() > 0

    def _next(self, sink: Sink) -> tuple[Frame, memoryview | None] | None:
        if self._message is None and not self._begin(sink):
            return None
        if self._missing:
            have = min(self._missing, self._stop - self._start)
            if have:
                at = self._payload.nbytes - self._missing
                self._payload[at : at + have] = memoryview(self._buffer)[self._start : self._start + have]
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
        """Decode a header from the buffer, if it is complete."""
        have = self._stop - self._start
        if have < PREFIX.size:
            return False
        header, payload = PREFIX.unpack_from(self._buffer, self._start)
        if header > self._limit or payload > PAYLOAD:
            raise PeerError(f"it sent a frame that is too large: header {header:,} bytes, payload {payload:,} bytes")
        whole = PREFIX.size + header
        if have < whole:
            if whole > len(self._buffer) == have:
                self._resize(min(whole, 2 * have))
            return False
        begin = self._start + PREFIX.size
        message = unpack(memoryview(self._buffer)[begin : begin + header], self.further)
        self._start += whole
        if payload:
            self._payload = sink(message, payload)
            if self._payload.nbytes != payload:
                raise PeerError(f"it sent {type(message).__name__} with a payload of the wrong size, {payload:,} bytes")
        self._message = message
        self._missing = payload
        return True

    def _resize(self, size: int) -> None:
        buffer = bytearray(size)
        have = self._stop - self._start
        buffer[:have] = self._buffer[self._start : self._stop]
        self._buffer, self._start, self._stop = buffer, 0, have

    def _fill(self) -> tuple[int, bool]:
        """Read a payload to its place, or anything else into the buffer.

        Return the number of bytes, 0 for none, and whether more may wait to be read.
        """
        direct = self._missing and self._start == self._stop
        if direct:
            into = self._payload[self._payload.nbytes - self._missing :]
        else:
            left = self._stop - self._start
            if not left and len(self._buffer) > _BUFFER_BYTES:
                self._resize(_BUFFER_BYTES)
            if self._start:
                self._buffer[:left] = self._buffer[self._start : self._stop]
                self._start, self._stop = 0, left
            into = memoryview(self._buffer)[self._stop : self._stop + _HEADER_READ]
        got = self._read(into)
        if got is None:
            return 0, False
        if got == 0:
            raise EOFError
        self.received += got
        if direct:
            self._missing -= got
        else:
            self._stop += got
        return got, got == into.nbytes or self._tls or self._takes_fds

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
        """Read, and keep only the first descriptor; the kernel closes those that do not fit, and we close the rest."""
        data, fds, _, _ = socket.recv_fds(self.sock, min(into.nbytes, FIRST_HEADER), 4)
        for fd in fds:
            if self.fds:
                os.close(fd)
            else:
                self.fds.append(fd)
        into[: len(data)] = data
        return len(data)
