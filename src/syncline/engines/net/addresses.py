"""Addresses at which nodes listen, and the sockets for them.

An address is numeric, since a host name can resolve differently on each host and over time. `resolve` looks up a name
that the user gives once, at the start; nodes exchange only numeric addresses. Nodes of one host connect through a Unix
socket in the abstract namespace, which leaves no file behind and ends with its process.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import socket
import struct
from ipaddress import IPv4Address, IPv6Address, ip_address
from time import monotonic, sleep
from typing import NamedTuple

import msgspec

from syncline.engines.net.port_preamble import is_target, preamble
from syncline.errors import UsageError

BACKLOG = 1024
"""How many connections may wait to be accepted."""

EXAMPLE = "give an address such as 192.0.2.7:7070"

KEEPALIVE_IDLE = 5
"""Seconds without traffic before the kernel sends a keepalive probe. The peer's kernel answers, also while the peer's
process computes."""

KEEPALIVE_INTERVAL = 2
"""Seconds between two probes; some may get lost on a poor network."""

KEEPALIVE_COUNT = 13
"""Probes without an answer before the connection is closed: 31 s after the last traffic, so that a short cut of the
network does not end idle connections.

TCP_USER_TIMEOUT, which limits how long sent data may stay unacknowledged, is not used: Linux also counts the time
during which the peer's receive buffer is full, so a peer that computes would count as dead. The connection to the
coordinator is mostly idle, so keepalive finds a dead host there.
"""

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.-]*", re.IGNORECASE)

SOMEWHERE = {"0.0.0.0": "192.0.2.1", "::": "2001:db8::1"}
"""For each wildcard address, a remote address to look up a route. These are reserved for documentation, and nothing is
sent there."""

SIOCGIFADDR = 0x8915
"""Linux ioctl: get the IPv4 address of an interface."""


class Address(msgspec.Struct, frozen=True):
    """A numeric host and a port (0: chosen by the system), or the name of an abstract Unix socket on this host."""

    host: str = ""
    port: int = 0
    name: str = ""
    behind: str = ""
    """Which process is meant, if those of a host share the port: the name of its Unix socket (port_preamble.py)."""

    def __str__(self) -> str:
        if self.name:
            return f"@{self.name}"
        place = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        return f"{place}/{self.behind}" if self.behind else place


class Credentials(NamedTuple):
    """The process and user at the other end of a Unix socket, when it connected or began to listen."""

    pid: int
    uid: int


def parse(text: str, option: str) -> Address:
    """Parse an address as `str` writes it: `192.0.2.7:7070`, `[::1]:7070` or `@name`."""
    if text.startswith("@") and len(text) > 1:
        return Address(name=text[1:])
    place, _, behind = text.partition("/")
    text = place if is_target(behind) else text
    host, colon, port = text.rpartition(":")
    if not colon:
        raise UsageError(option, f"{text!r} has no port; {EXAMPLE}, or port 0 to let the system choose")
    if not host:
        raise UsageError(option, f"{text!r} has no host; use 0.0.0.0{text} for all addresses of this host")
    return Address(_host(host, text, option), _port(port, text, option), behind=behind)


def resolve(text: str, option: str) -> list[Address]:
    """Look up the addresses of `host:7070` if the host is a name, in the system's order; else parse the address."""
    host, _, port = text.rpartition(":")
    if not _is_name(host):
        return [parse(text, option)]
    number = _port(port, text, option)
    try:
        found = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a host name"
        raise UsageError(option, f"cannot look up the host name {host!r}: {why}; {EXAMPLE}") from None
    return [Address(host, number) for host in dict.fromkeys(str(where[0]) for *_, where in found)]


def place_of(text: str, option: str) -> tuple[str | None, int]:
    """The host, or None if it is a name, and the port of `host:7070`. Nothing is looked up."""
    host, _, port = text.rpartition(":")
    if _is_name(host):
        return None, _port(port, text, option)
    address = parse(text, option)
    return address.host, address.port


def _is_name(host: str) -> bool:
    """Return True if this can be a host name, and False if it looks like an address.

    A mistyped address must not be looked up as a name.
    """
    last = host.rstrip(".").rpartition(".")[2]
    return _NAME.fullmatch(host) is not None and not last.isdigit() and not last.lower().startswith("0x")


def _host(host: str, text: str, option: str) -> str:
    bracketed = host.startswith("[") and host.endswith("]")
    try:
        found = ip_address(host[1:-1] if bracketed else host)
    except ValueError:
        raise UsageError(option, f"{host!r} is not an address; {EXAMPLE}") from None
    if bracketed != isinstance(found, IPv6Address):
        right = "write an IPv6 address in brackets, as in [::1]:7070, and an IPv4 address without"
        raise UsageError(option, f"{text!r}: {right}")
    return str(found)


def _port(port: str, text: str, option: str) -> int:
    if not (port.isascii() and port.isdigit() and len(port) <= 5 and int(port) <= 65535):
        raise UsageError(option, f"{text!r}: the port must be a number from 0 to 65535; 0 lets the system choose")
    return int(port)


def is_loopback(address: Address) -> bool:
    """Return True if traffic to this address stays on this host."""
    if address.name:
        return True
    host: IPv4Address | IPv6Address = ip_address(address.host)
    if isinstance(host, IPv6Address) and host.ipv4_mapped:
        host = host.ipv4_mapped
    return host.is_loopback


def listen(address: Address, option: str) -> socket.socket:
    """Listen on TCP; `address_of` returns the port that the system chose for port 0."""
    if address.name:
        raise UsageError(option, f"{address} is a Unix socket, which other hosts cannot reach; {EXAMPLE}")
    try:
        return socket.create_server(_target(address), family=_family(address))
    except OSError as error:
        raise UsageError(option, _why_not(error, address)) from error


def _why_not(error: OSError, address: Address) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return f"port {address.port} of {address.host} is in use; use port 0 to let the system choose a free one"
        case errno.EADDRNOTAVAIL:
            return f"{address.host} is not an address of this host; use one that is, or 0.0.0.0 for all of them"
        case errno.EACCES:
            return f"no permission to listen on {address}; use a port from 1024 up, or port 0 to let the system choose"
    return f"cannot listen on {address}: {error.strerror or error}"


def listen_unix(kind: str = "syncline", name: str = "") -> tuple[socket.socket, str]:
    """Listen on a Unix socket with this name, or with a random one that begins with `kind`.

    The name is not secret (`/proc/net/unix` lists it), so check `peer_credentials`.
    """
    name = name or f"{kind}-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.bind(f"\0{name}")
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener, name


def address_of(listener: socket.socket) -> Address:
    """The address at which a socket listens, with the port that the system chose."""
    bound = listener.getsockname()
    if listener.family == socket.AF_UNIX:
        return Address(name=bound[1:].decode())
    return Address(bound[0], bound[1])


def connect(address: Address, timeout: float) -> socket.socket:
    """Connect and set socket options; OSError if that fails.

    The socket keeps `timeout` (seconds), so that a following TLS handshake is bounded as well.
    """
    connection = socket.socket(_family(address))
    try:
        connection.settimeout(timeout)
        _connect(connection, address, timeout)
        _check_not_ourselves(connection)
        tune(connection)
        if address.behind:
            connection.sendall(preamble(address.behind))
    except BaseException:
        connection.close()
        raise
    return connection


def _connect(connection: socket.socket, address: Address, timeout: float) -> None:
    """Connect. If the queue of a Unix socket is full, connect() fails at once instead of waiting, so retry here."""
    until = monotonic() + timeout
    while True:
        try:
            connection.connect(_target(address))
            return
        except BlockingIOError:
            if monotonic() > until:
                raise TimeoutError(errno.ETIMEDOUT, "too many processes are waiting to connect") from None
            sleep(0.02)


def _check_not_ourselves(connection: socket.socket) -> None:
    """Refuse a TCP connection to itself.

    The kernel makes one if no process listens there and it picks the target port as our own port.
    """
    if connection.family != socket.AF_UNIX and connection.getsockname() == connection.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no process listens there")


def peer_credentials(connection: socket.socket) -> Credentials:
    """The process and user at the other end of a Unix socket, as the kernel reports them."""
    assert connection.family == socket.AF_UNIX
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("iII"))
    pid, uid, _ = struct.unpack("iII", raw)
    return Credentials(pid, uid)


def was_closed(connection: socket.socket, seconds: float) -> bool:
    """Wait until the peer sends something, and return False; True if it closes the connection instead."""
    with socket.socket(fileno=os.dup(connection.fileno())) as raw:  # beneath TLS, which cannot look ahead
        raw.settimeout(seconds)
        try:
            return not raw.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return False
        except OSError:
            return True
        finally:
            raw.setblocking(False)


LOOPBACK_BUFFER = 1 << 19
"""The send buffer in bytes on loopback (the kernel doubles it). The kernel's own choice, up to 4 MiB, does not fit in
every machine's cache. Where it does not, the receiver reads from memory what the sender has just written, and a round
takes a fifth longer. With a quarter of this size, a round is 7 to 18 % slower where the cache is large.
"""


UNSENT = 1 << 17
"""The bytes that the kernel takes of a connection beyond those in flight, if the sender wants to know what is sent."""

_UNSENT_LIMIT = 25
"""TCP_NOTSENT_LOWAT, which Python names from 3.12 on."""


def keep_unsent(connection: socket.socket) -> None:
    """Let the kernel take little more than it can send at once, so that the rest still waits in this process."""
    if connection.family != socket.AF_UNIX:
        connection.setsockopt(socket.IPPROTO_TCP, _UNSENT_LIMIT, UNSENT)


def tune(connection: socket.socket) -> None:
    """Disable Nagle's algorithm, enable keepalive, and keep the send buffer small on loopback.

    Keepalive is answered by the peer's kernel, so a slow process does not count as dead.
    """
    if connection.family == socket.AF_UNIX:
        return
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if is_loopback(Address(str(connection.getpeername()[0]), 0)):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOOPBACK_BUFFER)
    for option, value in (
        (socket.TCP_NODELAY, 1),
        (socket.TCP_KEEPIDLE, KEEPALIVE_IDLE),
        (socket.TCP_KEEPINTVL, KEEPALIVE_INTERVAL),
        (socket.TCP_KEEPCNT, KEEPALIVE_COUNT),
    ):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def route_to(peer_host: str) -> str:
    """Our address on the kernel's route to that peer; OSError if there is no route. Nothing is sent."""
    peer = Address(peer_host, 9)
    with socket.socket(_family(peer), socket.SOCK_DGRAM) as probe:
        probe.connect(_target(peer))
        return str(probe.getsockname()[0])


def own_address_for(listening_host: str) -> str:
    """The address at which other hosts can reach this listener.

    For a wildcard address: the address on the default route, else that of any interface, else loopback.
    """
    if listening_host not in SOMEWHERE:
        return listening_host
    try:
        return route_to(SOMEWHERE[listening_host])
    except OSError:
        return "::1" if ":" in listening_host else _interface_address()


def _interface_address() -> str:
    """The first IPv4 address of an interface that is not loopback; for networks without a default route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                raw = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()))
            except OSError:  # the interface has no IPv4 address
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
