"""Has the host at the other end of a TCP connection fallen silent? Asked of the kernel, which hears acknowledgements.

Keepalive finds a dead host only while nothing is under way; once something is, the kernel goes on sending it for a
quarter of an hour. A live host acknowledges within a moment, also when its program computes and reads nothing: so
something unacknowledged, and not one acknowledgement in all the time that we have looked, means that it is gone.
"""

from __future__ import annotations

import socket
import struct

from syncline.engines.net.connection import Connection

LIMIT = 15.0
"""Seconds after which a host that acknowledges nothing is gone."""

_INFO = struct.Struct("8B13I")
_PROBES, _UNACKED, _LAST_ACK = 3, 8 + 4, 8 + 12
"""Where `tcp_info` says: probes of a full receiver, segments under way, milliseconds since the last acknowledgement."""


class TcpLiveness:
    """Looks at connections now and then."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._since: dict[Connection, float] = {}

    def gone(self, wire: Connection, now: float) -> bool:
        """Has this peer acknowledged nothing for too long, of what waits to be?"""
        if wire.sock.family == socket.AF_UNIX or wire.fileno() < 0:
            return False
        info = _INFO.unpack(wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
        heard = now - info[_LAST_ACK] / 1000
        since = self._since.get(wire)
        if not info[_UNACKED] and not info[_PROBES]:
            self._since.pop(wire, None)
        elif since is None or heard > since:
            self._since[wire] = now
        else:
            return now - since > self._limit
        return False

    def forget(self, wire: Connection) -> None:
        self._since.pop(wire, None)
