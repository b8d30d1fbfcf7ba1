"""How a process finds the others: the launcher's wiring, carried in the environment.

SYNCLINE_RUN           the identity of the run
SYNCLINE_COORDINATOR   where the coordinator listens: @NAME on this host, or ADDRESS:PORT
SYNCLINE_WORKER        this worker's number
SYNCLINE_LANE          shm, tcp, or empty: whichever fits the peer
SYNCLINE_LISTEN        the address at which servers listen for workers of other hosts; empty: loopback
SYNCLINE_KEY_FILE      the key; needed off loopback
SYNCLINE_TRACE         a directory for traces, if they are wanted
SYNCLINE_FOLDER        for workers: where the command was given; modules with parts of one's own may lie there
SYNCLINE_INSECURE      not empty: no key is needed off loopback either
SYNCLINE_PORT          for the coordinator only: the port at SYNCLINE_LISTEN; 0: any
SYNCLINE_RESTARTS      for the coordinator only: how many times the launcher starts workers again that die

The launcher sets these for its children, and passes none on that it finds in its own environment. One is the user's:

SYNCLINE_PATIENCE      seconds for which a process may be stopped before it counts as dead (process_state.py)
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from syncline.engines.net import addresses, keys
from syncline.engines.net.addresses import Address
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello
from syncline.engines.net.event_loop import EventLoop
from syncline.errors import RunError, UsageError

RUN = "syncline-run"
"""With this begins the name under which a coordinator listens on its host, so that runs can be found."""

CONNECT_SECONDS = 5.0
"""Whoever cannot be reached by then is named."""


@dataclass(frozen=True)
class Wiring:
    """What the environment says; every field is a text."""

    run: str = ""
    coordinator: str = ""
    worker: str = ""
    lane: str = ""
    listen: str = ""
    key_file: str = ""
    trace: str = ""
    insecure: str = ""
    folder: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Wiring:
        return cls(**{each.name: environment.get(_variable(each.name), "") for each in fields(cls)})

    def environment(self) -> dict[str, str]:
        """The same as variables, for a child."""
        return {_variable(each.name): getattr(self, each.name) for each in fields(self) if getattr(self, each.name)}


def _variable(name: str) -> str:
    return f"SYNCLINE_{name.upper()}"


def listen(loop: EventLoop, wiring: Wiring, port: int = 0, kind: str = "syncline") -> tuple[str, str]:
    """Listen on this host, and on TCP if others may come or all talk TCP; the name, and the address or nothing.

    `kind`: with this begins the name.
    """
    unix, name = addresses.listen_unix(kind)
    loop.listen(unix)
    if not wiring.listen and wiring.lane != "tcp":
        return f"@{name}", ""
    host = wiring.listen or "127.0.0.1"
    tcp = addresses.listen(Address(host, port), "--listen")
    loop.listen(tcp, context_for(host, wiring, server=True))
    return f"@{name}", str(addresses.address_of(tcp))


def context_for(host: str, wiring: Wiring, *, server: bool) -> ssl.SSLContext | None:
    """The key for connections with this host; None on loopback, which needs none, unless there is one."""
    if not wiring.key_file:
        if addresses.is_loopback(Address(host, 0)) or wiring.insecure:
            return None
        raise UsageError("--key-file", f"{host} is not loopback; off loopback nothing talks without a key")
    path = Path(wiring.key_file)
    return keys.server_context(path) if server else keys.client_context(path)


def connect_to(where: str, wiring: Wiring) -> Connection:
    """Connect to `ADDRESS:PORT`, or to `@NAME` on this host."""
    address = addresses.parse(where, "--join")
    context = None if address.name else context_for(address.host, wiring, server=False)
    sock = addresses.connect(address, CONNECT_SECONDS)
    return Connection(sock if context is None else context.wrap_socket(sock))


def connect_coordinator(wiring: Wiring, hello: Hello) -> Connection:
    """Connect to the coordinator and say who this is."""
    try:
        wire = connect_to(wiring.coordinator, wiring)
        wire.send(hello)
    except OSError as error:
        raise RunError(f"cannot reach the coordinator at {wiring.coordinator}: {keys.explain(error)}") from None
    return wire
