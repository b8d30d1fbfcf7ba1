"""How much TCP connections have carried and for how long they were in use, as the kernel has counted it."""

from __future__ import annotations

import socket
import struct
from typing import NamedTuple

from syncline.engines.net.connection import Connection

_COUNTS = struct.Struct("24xI92xQ16xI20xQ")
"""Fields of `tcp_info`: segments in flight, acknowledged bytes, bytes not sent yet, and the microseconds in which any
byte was not acknowledged.
"""


class ConnectionUse(NamedTuple):
    """One connection, since it was opened."""

    arrived: int
    """Bytes that have arrived at the peer's host."""
    seconds: float
    """How long anything was under way."""
    busy: bool
    """Whether anything is under way now."""


def connection_use(wire: Connection) -> ConnectionUse | None:
    """None on this host, and if the kernel does not say."""
    if wire.is_near or wire.fileno() < 0:
        return None
    info = wire.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _COUNTS.size)
    if len(info) < _COUNTS.size:
        return None
    flying, acknowledged, unsent, microseconds = _COUNTS.unpack(info)
    return ConnectionUse(acknowledged, microseconds / 1e6, bool(flying or unsent))
