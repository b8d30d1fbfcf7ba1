"""Where a node listens, and sockets that lead there.

An address is numeric: what a host name means differs from host to host and from day to day, so a name that a user gives
is looked up once, at the start (`resolve`), and what nodes tell each other is what it stood for. Nodes of one host meet
at a Unix socket in the abstract namespace, which leaves no file behind and ends with its process.
"""

from __future__ import annotations

import errno
import fcntl
import re
import secrets
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from time import monotonic, sleep
from typing import NamedTuple

import msgspec

from syncline.errors import UsageError

BACKLOG = 1024
"""How many may wait to be accepted."""

EXAMPLE = "give an address such as 192.0.2.7:7070"

KEEPALIVE_IDLE = 5
"""Seconds of silence before the kernel asks the peer's kernel, which answers also while the peer's process computes."""

KEEPALIVE_INTERVAL = 2
"""Seconds between two such questions: some may get lost on a poor network."""

KEEPALIVE_COUNT = 5
"""Questions without an answer before a host is gone.

There is no limit on how long sent data may wait (TCP_USER_TIMEOUT): Linux would count a full buffer at the other end as
well, and so take a peer that computes for one that is dead. The connection to the coordinator is mostly silent, so that
one finds out.
"""

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*", re.IGNORECASE)

SOMEWHERE = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}
"""For each address that means "all of ours", one far away (reserved for documentation: nothing is ever sent there)."""

SIOCGIFADDR = 0x8915
"""Linux: ask for the IPv4 address of an interface."""


class Address(msgspec.Struct, frozen=True):
    """A numeric host and a port (0: any), or the name of a Unix socket in the abstract namespace of this host."""

    host: str = ""
    port: int = 0
    name: str = ""

    def __str__(self) -> str:
        if self.name:
            return f"@{self.name}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Credentials(NamedTuple):
    """The process at the other end of a Unix socket when it connected or began to listen, and its user."""

    pid: int
    uid: int


def parse(text: str, option: str) -> Address:
    """The address that `str` writes: `192.0.2.7:7070`, `[::1]:7070`, `@name`."""
    if text.startswith("@") and len(text) > 1:
        return Address(name=text[1:])
    host, colon, port = text.rpartition(":")
    if not colon:
        raise UsageError(option, f"{text!r} has no port; {EXAMPLE}, or port 0 to let the system choose")
    if not host:
        raise UsageError(option, f"{text!r} has no host; 0.0.0.0{text} stands for all addresses of this host")
    return Address(_host(host, text, option), _port(port, text, option))


def resolve(text: str, option: str) -> list[Address]:
    """The addresses that a user means by `host:7070`: those of the name, in the system's order, or the one it is."""
    host, _, port = text.rpartition(":")
    if not _is_name(host):
        return [parse(text, option)]
    number = _port(port, text, option)
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "that is no host name"
        raise UsageError(option, f"there is no address for the name {host!r}: {why}; {EXAMPLE}") from None
    return [Address(host, number) for host in dict.fromkeys(str(where[0]) for *_, where in found)]


def _is_name(host: str) -> bool:
    """Could this be a host name? Nothing that is, or is nearly, an address: a slip must not become another host."""
    last = host.rstrip(".").rpartition(".")[2]
    return _NAME.fullmatch(host) is not None and not last.isdigit() and not last.lower().startswith("0x")


def _host(host: str, text: str, option: str) -> str:
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        found = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise UsageError(option, f"{host!r} is not an address; {EXAMPLE}") from None
    if bracketed != isinstance(found, IPv6Address):
        right = "an IPv6 address goes in brackets, as in [::1]:7070; an IPv4 address does not"
        raise UsageError(option, f"{text!r}: {right}")
    return str(found)


def _port(port: str, text: str, option: str) -> int:
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise UsageError(option, f"{text!r}: the port must be a number from 0 to 65535; 0 lets the system choose")
    return int(port)


def is_loopback(address: Address) -> bool:
    """Whether what is sent there stays on this host."""
    if address.name:
        return True
    host: IPv4Address | IPv6Address = ip_address(address.host)
    if isinstance(host, IPv6Address) and host.ipv4_mapped:
        host = host.ipv4_mapped
    return host.is_loopback


def listen(address: Address, option: str) -> socket.socket:
    """Listen on TCP; `address_of` tells the port that the system chose for port 0."""
    if address.name:
        raise UsageError(option, f"{address} is the name of a socket on this host only; {EXAMPLE}")
    try:
        return socket.create_server(_target(address), family=_family(address))
    except OSError as error:
        raise UsageError(option, _why_not(error, address)) from error


def _why_not(error: OSError, address: Address) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {address.port} of {address.host} is taken; port 0 lets the system choose a free one"
        case errno.EADDRNOTAVAIL:
            return f"{address.host} is not an address of this host; give one that is, or 0.0.0.0 for all of them"
        case errno.EACCES:
            return f"no permission to listen on {address}; take a port from 1024 up, or port 0 to let the system choose"
    return f"cannot listen on {address}: {error.strerror or error}"


def listen_unix(kind: str = "syncline") -> tuple[socket.socket, str]:
    """Listen on this host under a random name; it is no secret (`/proc/net/unix`), so ask for `peer_credentials`."""
    name = f"{kind}-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"\0{name}")
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener, name


def address_of(listener: socket.socket) -> Address:
    """Where a socket listens, with the port that the system chose."""
    bound = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return Address(name=bound[1:].decode())
    return Address(bound[0], bound[1])


def connect(address: Address, timeout: float) -> socket.socket:
    """A tuned connection, or OSError; it keeps `timeout` (seconds), so that a handshake after it is bounded as well."""
    connection = socket.socket(_family(address))
    try:
        connection.settimeout(timeout)
        _connect(connection, address, timeout)
        _check_not_ourselves(connection)
        tune(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(connection: socket.socket, address: Address, timeout: float) -> None:
    """Connect; a Unix socket whose queue is full says so at once instead of waiting, so wait for it here."""
    until = monotonic() + timeout
    while True:
        try:
            connection.connect(_target(address))
            return
        except BlockingIOError:
            if monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "too many are waiting to connect") from None
            sleep(0.02)


def _check_not_ourselves(connection: socket.socket) -> None:
    """Refuse a TCP connection to itself: what the kernel makes if nobody listens and it draws the port we want."""
    if connection.family != socket.AF_UNIX and connection.getsockname() == connection.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "nobody listens there")


def peer_credentials(connection: socket.socket) -> Credentials:
    """Which process of which user is at the other end of a Unix socket, by the word of the kernel."""
    assert connection.family == socket.AF_UNIX
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    pid, uid, _ = struct.unpack("iII", raw)
    return Credentials(pid, uid)


def tune(connection: socket.socket) -> None:
    """Send at once, and let the kernels find out whether a host is gone: a slow process is not a dead one."""
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE),
        (socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL),
        (socket.TCP_KEEPCNT, KEEPALIVE_COUNT),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def route_to(peer_host: str) -> str:
    """Which of our addresses reaches that peer, by the kernel's routes; OSError if none does. Nothing is sent."""
    peer = Address(peer_host, 9)
    with socket.socket(_family(peer), socket.SOCK_DGRAM) as probe:
        probe.connect(_target(peer))
        return str(probe.getsockname()[0])


def own_address_for(listening_host: str) -> str:
    """The address to tell others: of "all of ours" the one towards the world, else any, else loopback."""
    if listening_host not in SOMEWHERE:
        return listening_host
    try:
        return route_to(SOMEWHERE[listening_host])
    except OSError:
        return "::1" if ":" in listening_host else _interface_address()


def _interface_address() -> str:
    """The IPv4 address of the first interface that has one other than loopback: for networks without a way out."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                raw = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # it has none
                continue
            found = IPv4Address(raw[20:24])
            if not found.is_loopback:
                return str(found)
    return "127.0.0.1"


def _family(address: Address) -> socket.AddressFamily:
    if address.name:
        return socket.AF_UNIX
    return socket.AF_INET6 if ":" in address.host else socket.AF_INET


def _target(address: Address) -> str | tuple[str, int]:
    return f"\0{address.name}" if address.name else (address.host, address.port)
