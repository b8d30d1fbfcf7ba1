"""Speaks to a run from outside: finds it, and asks its coordinator for a change.

A run is found by the address that `--listen` printed, or, on its own host and by its own user, by a name: a few letters
of the name under which the coordinator listens there.
"""

from __future__ import annotations

import os
import select
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TypeVar

from syncline.engines.launch.coordinator_link import CoordinatorLink, reach
from syncline.engines.net import addresses, keys
from syncline.engines.net.control import Abort, ChangeReply, ChangeRequest, Hello, Refused, Welcome
from syncline.engines.net.wiring import CONNECT_SECONDS, RUN, Wiring, context_for
from syncline.engines.process_state import host
from syncline.errors import PeerError, RunError, UsageError

NAME = 8
"""So many letters tell the runs of a host apart."""

REPLY_SECONDS = 60.0
"""How long the servers have to confirm a change."""

OPTION = "RUN"

Kind = TypeVar("Kind", Welcome, ChangeReply)


def name_of(coordinator: str) -> str:
    """How a user calls the run whose coordinator listens at this address of this host."""
    return coordinator.removeprefix(f"@{RUN}-")[:NAME]


def find(run: str | None) -> tuple[str, ...]:
    """The addresses at which the coordinator of this run may be; None: of the only run of this user on this host."""
    if run is not None and run.startswith("@"):
        return (run,)
    if run is not None and ":" in run:
        found = addresses.resolve(run, OPTION)
        for address in found:
            if not address.port or address.host in addresses.SOMEWHERE:
                raise UsageError(OPTION, f"{run!r} is not a usable address; copy the one that --listen printed")
        return tuple(map(str, found))
    return (_named(run),)


def _named(run: str | None) -> str:
    known = {name_of(each): each for each in _listening() if _is_ours(each)}
    there = ", ".join(sorted(known)) or "none"
    matching = [each for name, each in known.items() if run is None or (run and name.startswith(run[:NAME]))]
    if not matching:
        which = "" if run is None else f" {run!r}"
        remedy = "for one on another host, give the address that its --listen printed"
        raise RunError(f"there is no run{which} of yours under way on this host (there are: {there}); {remedy}")
    if len(matching) > 1:
        raise UsageError(OPTION, f"there are several such runs of yours on this host; name one of {there}")
    return matching[0]


def _listening() -> list[str]:
    """The names under which coordinators listen on this host, of any user."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return sorted({line.split()[-1] for line in lines if line.split()[-1].startswith(f"@{RUN}-")})


def _is_ours(name: str) -> bool:
    """Does a process of this user listen under this name?"""
    with suppress(OSError), addresses.connect(addresses.parse(name, OPTION), CONNECT_SECONDS) as connection:
        return addresses.peer_credentials(connection).uid == os.geteuid()
    return False


def change(places: tuple[str, ...], wiring: Wiring, request: ChangeRequest) -> None:
    """Ask for a change, and wait until all servers have changed, or say why they have not."""
    for place in places:
        _check(place, wiring)
    link = reach(places, wiring, Hello("", "operator", pid=os.getpid(), host=host()))
    try:
        _hear(link, Welcome, CONNECT_SECONDS, "does not answer as a coordinator would")
        link.tell(request)
        reply = _hear(link, ChangeReply, REPLY_SECONDS, "has not confirmed the change; it may still happen")
    finally:
        link.close()
    if reply.option:
        raise UsageError(f"--{reply.option}", reply.problem)
    if reply.problem:
        raise RunError(reply.problem)


def _check(place: str, wiring: Wiring) -> None:
    """Refuse an address that needs a key, and a name of another user's."""
    address = addresses.parse(place, OPTION)
    if not address.name:
        context_for(address.host, wiring, server=False)
    elif place in _listening() and not _is_ours(place):
        raise UsageError(OPTION, f"{place} is a run of another user of this host")


def _hear(link: CoordinatorLink, kind: type[Kind], seconds: float, problem: str) -> Kind:
    """Wait for a message of this kind."""
    where, until = link.wiring.coordinator, monotonic() + seconds
    while monotonic() < until:
        select.select([link.fileno()], [], [], max(until - monotonic(), 0.0))
        for message in link.receive():
            if isinstance(message, kind):
                return message
            if isinstance(message, Refused | Abort):
                raise RunError(message.reason)
            raise PeerError(f"{type(message).__name__} from the coordinator at {where}")
        if link.gone:
            raise RunError(f"{where} has closed the connection; {keys.CLOSED}")
    raise RunError(f"{where} {problem}")
