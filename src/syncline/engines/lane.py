"""Which lane leads from a worker to its servers: memory that they share, or TCP.

1. Memory is shared with servers of the same host and user, all of them, unless TCP is asked for.
2. Else all are reached by TCP, unless shared memory is asked for, or a server listens on no address.
3. Nothing is said before every server is reached: no server knows of an attempt that failed at another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from syncline.engines import addresses
from syncline.engines.control import Place
from syncline.engines.watch import host
from syncline.engines.wire import Wire
from syncline.engines.wiring import Wiring, connect_to
from syncline.errors import RunError, UsageError


class Lane(NamedTuple):
    """A wire to every server, and whether they share the worker's memory."""

    wires: list[Wire]
    shared: bool


class _Apart(Exception):
    """Why memory cannot be shared."""


def open_lane(places: Sequence[Place], wiring: Wiring) -> Lane:
    """Connect to all servers."""
    try:
        return Lane(_all(places, lambda number, place: _share(number, place, wiring)), True)
    except _Apart as apart:
        why = str(apart)
    if wiring.lane == "shm":
        raise UsageError("--lane", f"shm: {why}; leave it out, or take tcp")
    return Lane(_all(places, lambda number, place: _call(number, place, wiring, why)), False)


def _all(places: Sequence[Place], connect: Callable[[int, Place], Wire]) -> list[Wire]:
    """All of them, or none."""
    wires: list[Wire] = []
    try:
        for number, place in enumerate(places):
            wires.append(connect(number, place))
    except BaseException:
        for wire in wires:
            wire.close()
        raise
    return wires


def _share(number: int, place: Place, wiring: Wiring) -> Wire:
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


def _call(number: int, place: Place, wiring: Wiring, why: str) -> Wire:
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
