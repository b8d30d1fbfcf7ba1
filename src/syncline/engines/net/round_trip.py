"""How long a message to another host and its answer take, as the kernel has measured it."""

from __future__ import annotations

import socket
import struct

from syncline.engines.net.connection import Connection

_SHORTEST = struct.Struct("148xI")
"""The field of `tcp_info` with the shortest round trip so far, in microseconds."""


def round_trip(wire: Connection) -> float:
    """Seconds; 0 on this host, and if the kernel does not say."""
    if wire.is_near or wire.fileno() < 0:
        return 0.0
    info = wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SHORTEST.size)
    if len(info) < _SHORTEST.size:
        return 0.0
    (microseconds,) = _SHORTEST.unpack(info)
    return 0.0 if microseconds == _UNKNOWN else microseconds / 1e6


_UNKNOWN = (1 << 32) - 1
