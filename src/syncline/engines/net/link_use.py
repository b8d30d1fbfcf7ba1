"""How much a TCP connection has carried and for how long it was in use, as the kernel has counted it."""

from __future__ import annotations

import socket
import struct

from syncline.effects import LinkUse
from syncline.engines.net.connection import Connection

_COUNTS = struct.Struct("120xQ40xQ")
"""The fields of `tcp_info` with the acknowledged bytes, and the microseconds in which any byte was unacknowledged."""


def link_use(wire: Connection) -> LinkUse | None:
    """None on this host, and if the kernel does not say."""
    if wire.is_near or wire.fileno() < 0:
        return None
    info = wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size)
    if len(info) < _COUNTS.size:
        return None
    acknowledged, busy = _COUNTS.unpack(info)
    return LinkUse(acknowledged, busy / 1e6) if busy else None
