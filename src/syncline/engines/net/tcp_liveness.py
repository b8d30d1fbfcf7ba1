"""Detect a dead host at the other end of a TCP connection, from the acknowledgements that the kernel has seen.

Keepalive detects a dead host only while no data is in flight; data in flight is retransmitted for 15 minutes. A live
host acknowledges data at once, even if its program computes and reads nothing. So if data is unacknowledged and no
acknowledgement arrives within `LIMIT`, the host is gone. A cut of the network of up to 12 s is always survived: TCP
repeats what was lost after 12.8 s and 25.6 s at the latest.
"""

from __future__ import annotations

import socket
import struct

from syncline.engines.net.connection import Connection

LIMIT = 30.0
"""Seconds without an acknowledgement after which a host counts as gone."""

_INFO = struct.Struct("8B13I")
_PROBES, _UNACKED, _LAST_ACK = 3, 8 + 4, 8 + 12
"""Fields of `tcp_info`: zero-window probes, segments in flight, milliseconds since the last acknowledgement."""


def unacknowledged(wire: Connection) -> bool:
    """Is data in flight that the peer's host has not acknowledged? On this host there is none."""
    if wire.sock.family == socket.AF_UNIX or wire.fileno() < 0:
        return False
    info = _info(wire)
    return bool(info[_UNACKED] or info[_PROBES])


def _info(wire: Connection) -> tuple[int, ...]:
    return _INFO.unpack(wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))


class TcpLiveness:
    """Checks connections; call `gone` at intervals."""

    def __init__(self, limit: float = LIMIT) -> None:
        self._limit = limit
        self._since: dict[Connection, float] = {}

    def gone(self, wire: Connection, now: float) -> bool:
        """Return True if data has been in flight to this peer for too long without an acknowledgement."""
        if wire.sock.family == socket.AF_UNIX or wire.fileno() < 0:
            return False
        info = _info(wire)
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
