"""Choose and open the lane from a worker to each server: shared memory or TCP.

1. A worker shares memory with each server on the same host and of the same user, unless the user asks for TCP.
2. It connects to any other server by TCP. That fails if the user asks for shared memory, or if the server has no TCP
   address.
3. At the start a worker sends nothing until it has connected to every server, so that a failed attempt leaves no
   trace on the servers that it did reach.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from syncline.engines.net import addresses
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import NodeAddress
from syncline.engines.net.wiring import CONNECT_SECONDS, Wiring, connect_to, context_for
from syncline.engines.process_state import host
from syncline.errors import RunError, UsageError


class Lane(NamedTuple):
    """A connection to a server, and whether the server shares the worker's memory."""

    wire: Connection
    shared: bool


class _CannotShare(Exception):
    """Why memory cannot be shared."""


def open_lanes(places: Mapping[int, NodeAddress], wiring: Wiring) -> dict[int, Lane]:
    """Connect to all servers; if one fails, close the others."""
    lanes: dict[int, Lane] = {}
    try:
        for number, place in places.items():
            lanes[number] = open_lane(number, place, wiring)
    except BaseException:
        for lane in lanes.values():
            lane.wire.close()
        raise
    return lanes


def open_lane(number: int, place: NodeAddress, wiring: Wiring, share: bool = True) -> Lane:
    """Connect to a server; `share`: this worker's memory can be shared."""
    try:
        if not share:
            raise _CannotShare("this worker has no shared memory")
        return Lane(_connect_shared(number, place, wiring), True)
    except _CannotShare as error:
        why = str(error)
    if wiring.lane == "shm":
        raise UsageError("--lane", f"shm is not possible: {why}; leave --lane out, or use tcp")
    return Lane(_connect_tcp(number, place, wiring, why), False)


def call_node(
    name: str, place: NodeAddress, wiring: Wiring, *, tcp: bool = False
) -> tuple[Connection, ssl.SSLSocket | None]:
    """Connect to a server from a server, or to a worker from a worker, by a Unix socket on this host or by TCP.

    The TLS handshake is still to come. The caller must not block on it, since the peer may be connecting to us at the
    same time. `tcp`: use TCP also on this host.
    """
    same = place.host == host() and place.unix.startswith("@") and not tcp
    if not same and not place.tcp:
        raise RunError(f"{name} is on another host, and has no TCP address; start the run with --listen")
    where = place.unix if same else _reachable(place.tcp, wiring)
    try:
        address = addresses.parse(where, "--listen")
        context = None if address.name else context_for(address.host, wiring, server=False)
        sock = addresses.connect(address, CONNECT_SECONDS)
        if context is None:
            return Connection(sock), None
        sock.setblocking(False)
        tls = context.wrap_socket(sock, do_handshake_on_connect=False)
        return Connection(tls), tls
    except OSError as error:
        raise RunError(f"cannot reach {name} at {where}: {error}") from None


def _connect_shared(number: int, place: NodeAddress, wiring: Wiring) -> Connection:
    if wiring.lane == "tcp":
        raise _CannotShare("--lane is tcp")
    if place.host != host() or not place.unix.startswith("@"):
        raise _CannotShare(f"server {number} is on another host")
    try:
        wire = connect_to(place.unix, wiring)
    except OSError as error:
        raise _CannotShare(f"server {number} cannot be reached at {place.unix} ({error})") from None
    if addresses.peer_credentials(wire.sock).uid != os.geteuid():
        wire.close()
        raise _CannotShare(f"server {number} belongs to another user of this host")
    return wire


def _connect_tcp(number: int, place: NodeAddress, wiring: Wiring, why: str) -> Connection:
    if not place.tcp:
        problem = f"{why}, and server {number} has no TCP address; start the run with --listen, or with --lane tcp"
        raise RunError(problem)
    where = _reachable(place.tcp, wiring)
    try:
        return connect_to(where, wiring)
    except OSError as error:
        raise RunError(f"cannot reach server {number} at {where}: {error}") from None


def _reachable(tcp: str, wiring: Wiring) -> str:
    """Replace a wildcard address by the host at which this worker reached the coordinator."""
    address = addresses.parse(tcp, "--listen")
    if address.host not in addresses.SOMEWHERE:
        return tcp
    seen = addresses.parse(wiring.coordinator, "--join")
    ours = "::1" if ":" in address.host else "127.0.0.1"
    return str(replace(address, host=seen.host or ours))
