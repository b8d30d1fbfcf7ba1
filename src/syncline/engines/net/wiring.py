"""How a process finds the other processes of its run: the launcher passes the wiring in environment variables.

SYNCLINE_RUN           the identity of the run
SYNCLINE_COORDINATOR   the address of the coordinator: @NAME on this host, or ADDRESS:PORT
SYNCLINE_WORKER        this worker's number
SYNCLINE_LANE          shm or tcp; empty: shm if the peer is on the same host and belongs to the same user, else tcp
SYNCLINE_LISTEN        the address at which servers listen for workers of other hosts; empty: loopback
SYNCLINE_SHARED_PORT   the port at which the launcher of this host listens for all its processes; empty: each process
                       listens at a port of its own (launch/shared_port.py)
SYNCLINE_KEY_FILE      the key file; connections between hosts need it, or SYNCLINE_KEY
SYNCLINE_KEY           the key itself, as PEM (keys.py)
SYNCLINE_TRACE         the directory for traces; empty: no traces
SYNCLINE_FOLDER        for workers: the working directory of the command, in which modules are searched as well
SYNCLINE_INSECURE      not empty: connections between hosts need no key file
SYNCLINE_FAILURES      for workers: the pipe for the report of a failure (failure_report.py)
SYNCLINE_TOKEN         a secret that proves which process this is (tokens.py); for the coordinator, the run's secret
SYNCLINE_ALLOW_PARTS   the modules from which texts that come from elsewhere may name parts, with commas between them;
                       *: all, for processes that the run's own launcher has started
SYNCLINE_CHECKPOINTS   for servers: the folder for their checkpoints; the first that writes one makes it
SYNCLINE_SAVE_TO       for workers and the coordinator: the folder for checkpoints of the run; empty: none are written
SYNCLINE_SAVE_EVERY    how often: a number of iterations, or a time
SYNCLINE_RESUME        the checkpoint that the run goes on from
SYNCLINE_PROGRAM       the program, as checkpoints name it
SYNCLINE_LASTING       not empty: the coordinator is started again if it dies, so it keeps a journal in the folder
                       SYNCLINE_CHECKPOINTS, and its peers come back (lasting.py)
SYNCLINE_PORT          for the coordinator only: the port at SYNCLINE_LISTEN; 0: chosen by the system
SYNCLINE_RESTARTS      for the coordinator only: how many times the launcher starts workers again
SYNCLINE_LATER         for the coordinator only: how many workers and servers the launcher starts while the run trains
SYNCLINE_SHARE         for the coordinator only: the launcher's share of a run that begins on several hosts, as JSON

The launcher sets these for its children, and does not pass on those in its own environment. The user may set:

SYNCLINE_PATIENCE      seconds for which a process may be stopped before it counts as dead (process_state.py)
SYNCLINE_KEY_FILE      instead of --key-file
SYNCLINE_KEY           instead of a key file: its content, or a secret (keys.py)
SYNCLINE_PORT          under torchrun: the port that the processes of this host share, as --port
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import monotonic, sleep

import msgspec

from syncline.engines.net import addresses, keys, tokens
from syncline.engines.net.addresses import Address
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.lasting import PAUSE_SECONDS, RESUME_SECONDS, LastingConnection
from syncline.errors import RunError, UsageError
from syncline.strategies.allowed_parts import EVERY_PART

RUN = "syncline-run"
"""The prefix of the name of a coordinator's Unix socket, by which runs on a host can be found."""

JOIN_PAUSES = (0.0, 0.05, 0.1, 0.2, 0.4, 0.4)
"""Seconds before each attempt of a process to join a run."""

CONNECT_SECONDS = 5.0
"""The timeout for connecting to a peer, in seconds."""


class NotListening(RunError):
    """No process accepts connections at this address; perhaps it has not started yet."""


@dataclass(frozen=True)
class Wiring:
    """The variables above; every field is a string."""

    run: str = ""
    coordinator: str = ""
    worker: str = ""
    lane: str = ""
    listen: str = ""
    key_file: str = ""
    key: str = ""
    trace: str = ""
    insecure: str = ""
    folder: str = ""
    token: str = ""
    allow_parts: str = ""
    checkpoints: str = ""
    save_to: str = ""
    save_every: str = ""
    resume: str = ""
    program: str = ""
    shared_port: str = ""
    lasting: str = ""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Wiring:
        return cls(**{each.name: environment.get(_variable(each.name), "") for each in fields(cls)})

    def environment(self) -> dict[str, str]:
        """The fields as environment variables, for a child process."""
        return {_variable(each.name): getattr(self, each.name) for each in fields(self) if getattr(self, each.name)}

    def of(self, role: str, number: int) -> Wiring:
        """The wiring of a process that the launcher of a run starts; `token` is the run's secret here."""
        token = tokens.derived(self.token, role, number)
        return replace(self, token=token, allow_parts=EVERY_PART, worker=str(number) if role == "worker" else "")


def _variable(name: str) -> str:
    return f"SYNCLINE_{name.upper()}"


def listen(
    loop: EventLoop, wiring: Wiring, port: int = 0, kind: str = "syncline", before: tuple[str, str] | None = None
) -> tuple[str, str]:
    """Listen on a Unix socket, and also on TCP if other hosts may join or the lane is tcp.

    If the processes of this host share a port, the launcher listens on TCP, and passes on what is for this process.

    Returns (@NAME of the Unix socket, TCP address or ""). The name begins with `kind`. `before`: what this has returned
    to the process before this one, whose peers look for it there.
    """
    former = "" if before is None else before[0].removeprefix("@")
    unix, name = addresses.listen_unix(kind, former)
    loop.listen(unix)
    if not wiring.listen and wiring.lane != "tcp":
        return f"@{name}", ""
    host = wiring.listen or "127.0.0.1"
    if wiring.shared_port:
        loop.accept_passed(context_for(host, wiring, server=True))
        return f"@{name}", str(Address(host, int(wiring.shared_port), behind=name))
    port = addresses.parse(before[1], "--listen").port if before is not None and before[1] else port
    tcp = addresses.listen(Address(host, port), "--listen")
    loop.listen(tcp, context_for(host, wiring, server=True))
    return f"@{name}", str(addresses.address_of(tcp))


def key_of_user(key_file: Path | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """The user's key, as the path of its file or as PEM; the other is empty. The option overrides the environment."""
    if key_file is not None:
        return str(key_file.resolve()), ""
    if environment.get(keys.FILE_VARIABLE):
        return str(Path(environment[keys.FILE_VARIABLE]).resolve()), ""
    text = environment.get(keys.VARIABLE, "")
    return "", keys.key_from_variable(text) if text else ""


def context_for(host: str, wiring: Wiring, *, server: bool) -> ssl.SSLContext | None:
    """The TLS context for connections with this host; None without a key, which only loopback allows."""
    key = Path(wiring.key_file) if wiring.key_file else wiring.key
    if not key:
        if addresses.is_loopback(Address(host, 0)) or wiring.insecure:
            return None
        problem = f"{host} is not a loopback address; connections between hosts need a key file"
        raise UsageError("--key-file", problem)
    return keys.server_context(key) if server else keys.client_context(key)


def connect_to(where: str, wiring: Wiring) -> Connection:
    """Connect to `ADDRESS:PORT`, or to `@NAME` on this host."""
    address = addresses.parse(where, "--join")
    context = None if address.name else context_for(address.host, wiring, server=False)
    sock = addresses.connect(address, CONNECT_SECONDS)
    return Connection(sock if context is None else context.wrap_socket(sock))


def connect_coordinator(wiring: Wiring, hello: Hello) -> Connection:
    """Connect to the coordinator and send `hello`; if the coordinator may just be starting again, wait for it.

    A process that joins tries again if the connection is closed without an answer: strangers can displace it.
    """
    until = monotonic() + (RESUME_SECONDS if wiring.lasting and hello.run else 0.0)
    while True:
        try:
            return _connect_coordinator(wiring, hello)
        except NotListening:
            if monotonic() >= until:
                raise
        sleep(PAUSE_SECONDS)


def _connect_coordinator(wiring: Wiring, hello: Hello) -> Connection:
    joins = not hello.run
    problem: OSError = ConnectionResetError()
    for pause in JOIN_PAUSES if joins else (0.0,):
        sleep(pause)
        try:
            wire = _greet_coordinator(wiring, hello)
            if not joins or not addresses.was_closed(wire.sock, CONNECT_SECONDS):
                return wire
            wire.close()
        except OSError as error:
            problem = error
            if not isinstance(error, ssl.SSLEOFError | ConnectionResetError | BrokenPipeError):
                break  # it would not be different the next time
    kind = RunError if isinstance(problem, ssl.SSLError) else NotListening
    raise kind(f"cannot reach the coordinator at {wiring.coordinator}: {keys.explain(problem)}") from None


def _greet_coordinator(wiring: Wiring, hello: Hello) -> Connection:
    wire = _reach_coordinator(wiring)
    if wiring.lasting:
        hello = msgspec.structs.replace(hello, line=tokens.new_token())
        wire = LastingConnection(wire.sock, hello.line, lambda: _reach_coordinator(wiring))
    try:
        wire.send(hello)
    except BaseException:
        wire.close()
        raise
    return wire


def _reach_coordinator(wiring: Wiring) -> Connection:
    wire = connect_to(wiring.coordinator, wiring)
    try:
        if wire.is_near and addresses.peer_credentials(wire.sock).uid != os.geteuid():
            raise RunError(
                f"{wiring.coordinator} belongs to another user of this host; it is not this run's coordinator"
            )
    except BaseException:
        wire.close()
        raise
    return wire
