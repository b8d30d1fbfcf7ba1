"""Which lane leads from a worker to its servers: memory that they share, or TCP.

1. Memory is shared with each server of the same host and user, unless TCP is asked for.
2. Any other is reached by TCP, unless shared memory is asked for, or the server listens on no address.
3. At the start nothing is said before every server is reached: no server knows of an attempt that failed at another.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from typing import NamedTuple

from syncline.engines.net import addresses
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import NodeAddress
from syncline.engines.net.wiring import CONNECT_SECONDS, Wiring, connect_to, context_for
from syncline.engines.process_state import host
from syncline.errors import RunError, UsageError


class Lane(NamedTuple):
    """A wire to a server, and whether it shares the worker's memory."""

    wire: Connection
    shared: bool


class _Apart(Exception):
    """Why memory cannot be shared."""


def open_lanes(places: Mapping[int, NodeAddress], wiring: Wiring) -> dict[int, Lane]:
    """Connect to all servers, or to none."""
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
    """Connect to a server; `share`: this worker has memory that it can share."""
    try:
        if not share:
            raise _Apart("this worker shares no memory")
        return Lane(_share(number, place, wiring), True)
    except _Apart as apart:
        why = str(apart)
    if wiring.lane == "shm":
        raise UsageError("--lane", f"shm: {why}; leave it out, or take tcp")
    return Lane(_call(number, place, wiring, why), False)


def call_node(
    name: str, place: NodeAddress, wiring: Wiring, *, tcp: bool = False
) -> tuple[Connection, ssl.SSLSocket | None]:
    """Between servers, or between workers: by a name on this host, or by TCP; the handshake of TLS is yet to come.

    It must not be waited for: the other one may be calling as well. `tcp`: by TCP also on this host.
    """
    same = place.host == host() and place.unix.startswith("@") and not tcp
    if not same and not place.tcp:
        raise RunError(f"{name} is on another host, and listens on no address; start the run with --listen")
    where = place.unix if same else _reachable(place.tcp, wiring)
    try:
        address = addresses.parse(where, "--listen")
        context = None if address.name else context_for(address.host, wiring, server=False)
        sock = addresses.connect(address, CONNECT_SECONDS)
        if context is None:
            return Connection(sock), None
        sock.setblocking(False)
        shaken = context.wrap_socket(sock, do_handshake_on_connect=False)
        return Connection(shaken), shaken
    except OSError as error:
        raise RunError(f"cannot reach {name} at {where}: {error}") from None


def _share(number: int, place: NodeAddress, wiring: Wiring) -> Connection:
    if wiring.lane == "tcp":
        raise _Apart("TCP is asked for")
    if place.host != host() or not place.unix.startswith("@"):
        raise _Apart("the servers are on another host")
    try:
        wire = connect_to(place.unix, wiring)
    except OSError as error:
        raise _Apart(f"server {number} cannot be reached at {place.unix} ({error})") from None
    if addresses.peer_credentials(wire.sock).uid != os.geteuid():
        wire.close()
        raise _Apart("the servers belong to another user of this host")
    return wire


def _call(number: int, place: NodeAddress, wiring: Wiring, why: str) -> Connection:
    if not place.tcp:
        problem = f"{why}, and server {number} listens on no address; start the run with --listen, or with --lane tcp"
        raise RunError(problem)
    where = _reachable(place.tcp, wiring)
    try:
        return connect_to(where, wiring)
    except OSError as error:
        raise RunError(f"cannot reach server {number} at {where}: {error}") from None


def _reachable(tcp: str, wiring: Wiring) -> str:
    """Where this worker reaches a server that listens on every address of its host: as the coordinator was."""
    address = addresses.parse(tcp, "--listen")
    if address.host not in addresses.SOMEWHERE:
        return tcp
    seen = addresses.parse(wiring.coordinator, "--join")
    ours = "::1" if ":" in address.host else "127.0.0.1"
    return str(addresses.Address(seen.host or ours, address.port))
