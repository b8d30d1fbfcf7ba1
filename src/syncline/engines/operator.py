"""Find a run from outside, and ask its coordinator for a change.

The user names a run by the address that `--listen` printed. On the run's own host the same user may also give the name
of the run: the first letters of the random part of the coordinator's socket name.
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
"""The number of letters in the name of a run."""

REPLY_SECONDS = 60.0
"""Seconds in which the servers must confirm a change."""

OPTION = "RUN"

Kind = TypeVar("Kind", Welcome, ChangeReply)


def name_of(coordinator: str) -> str:
    """The name of the run whose coordinator listens at this socket of this host."""
    return coordinator.removeprefix(f"@{RUN}-")[:NAME]


def find(run: str | None) -> tuple[str, ...]:
    """The possible addresses of this run's coordinator; None: the only run of this user on this host."""
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
        raise RunError(f"you have no run{which} on this host (your runs: {there}); {remedy}")
    if len(matching) > 1:
        raise UsageError(OPTION, f"you have several runs on this host; name one of {there}")
    return matching[0]


def _listening() -> list[str]:
    """The socket names of all coordinators on this host, of any user."""
    lines = Path("/proc/net/unix").read_text().splitlines()[1:]
    return sorted({line.split()[-1] for line in lines if line.split()[-1].startswith(f"@{RUN}-")})


def _is_ours(name: str) -> bool:
    """Does the process that listens at this socket belong to this user?"""
    with suppress(OSError), addresses.connect(addresses.parse(name, OPTION), CONNECT_SECONDS) as connection:
        return addresses.peer_credentials(connection).uid == os.geteuid()
    return False


def change(places: tuple[str, ...], wiring: Wiring, request: ChangeRequest) -> None:
    """Ask for a change, and wait until all servers have changed; raise an error if they have not."""
    for place in places:
        _check(place, wiring)
    link = reach(places, wiring, Hello("", "operator", pid=os.getpid(), host=host()))
    try:
        _hear(link, Welcome, CONNECT_SECONDS, "did not answer as a coordinator would")
        link.tell(request)
        reply = _hear(link, ChangeReply, REPLY_SECONDS, "has not confirmed the change; it may still happen")
    finally:
        link.close()
    if reply.option:
        raise UsageError(f"--{reply.option}", reply.problem)
    if reply.problem:
        raise RunError(reply.problem)


def identify(place: str, wiring: Wiring) -> str:
    """The identifier of the run at this address; `RunError` if there is none, or if it is over."""
    link = reach((place,), wiring, Hello("", "operator", pid=os.getpid(), host=host()))
    try:
        return _hear(link, Welcome, CONNECT_SECONDS, "did not answer as a coordinator would").run
    finally:
        link.close()


def _check(place: str, wiring: Wiring) -> None:
    """Raise `UsageError` for an address that needs a key file, and for the run of another user."""
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
            raise PeerError(f"the coordinator at {where} sent an unexpected {type(message).__name__}")
        if link.gone:
            raise RunError(f"{where} has closed the connection; {keys.CLOSED}")
    raise RunError(f"{where} {problem}")
