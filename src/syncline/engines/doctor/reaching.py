"""Connect to another host, and say why that is not possible."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Sequence

from syncline.engines.doctor.finding import Finding, ok, wrong
from syncline.engines.doctor.interfaces import Interface, interfaces
from syncline.engines.net import addresses, keys
from syncline.engines.net.addresses import Address
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello
from syncline.engines.net.wiring import CONNECT_SECONDS, Wiring, context_for
from syncline.errors import SynclineError

PROBE_SECONDS = 1.0
"""Seconds that another port of a host has to answer, to tell a blocked port from a host that is off."""

USUAL_PORTS = (22, 80, 443, 1)
"""Ports of which a host usually accepts or refuses at least one, unless a firewall drops everything."""


def reach(address: Address) -> tuple[socket.socket | None, Finding]:
    """Open a TCP connection; None if that is not possible."""
    try:
        sock = addresses.connect(address, CONNECT_SECONDS)
    except OSError as error:
        return None, unreachable(address, error, interfaces())
    return sock, ok("connection", f"{address} accepts connections")


def unreachable(address: Address, error: OSError, here: Sequence[Interface]) -> Finding:
    """Why a TCP connection could not be opened, and what to do about it."""
    own = ", ".join(map(str, here)) or "none but loopback"
    other_network = f"this host's addresses are {own}; listen at an address in a network that both hosts have"
    match error:
        case ConnectionRefusedError():
            remedy = "start the other side first, and compare the ports; a firewall that rejects looks the same"
            return wrong("connection", f"{address}: the host answers, but no process listens at this port", remedy)
        case TimeoutError():
            return _silent(address, other_network)
        case OSError(errno=errno.EHOSTUNREACH):
            text = f"{address}: no host answers at this address, or a router or firewall refuses the way"
            return wrong("connection", text, f"check the address; {other_network}")
        case OSError(errno=errno.ENETUNREACH):
            return wrong("connection", f"{address}: this host has no route to that network", other_network)
        case OSError(errno=errno.EACCES | errno.EPERM):
            text = f"{address}: the routes or the firewall of this host forbid the connection"
            return wrong("connection", text, f"look at: ip route get {address.host}; nft list ruleset")
    return wrong("connection", f"{address}: {error.strerror or error}", "check the address")


def _silent(address: Address, other_network: str) -> Finding:
    """Nothing came back. If another port answers, the host is there, and the port is blocked."""
    answering = next((port for port in USUAL_PORTS if port != address.port and _answers(address.host, port)), None)
    if answering is not None:
        text = f"{address}: port {address.port} is blocked; the host answers at port {answering}"
        remedy = f"let the firewalls on the way pass TCP connections to port {address.port} of {address.host}"
        return wrong("connection", text, remedy)
    text = f"{address}: nothing answers: a firewall drops what is sent, or the host is off or has another address"
    remedy = f"let the firewalls on both hosts pass TCP port {address.port}; {other_network}"
    return wrong("connection", text, remedy)


def _answers(host: str, port: int) -> bool:
    """Whether this port of the host accepts or refuses a connection."""
    try:
        addresses.connect(Address(host, port), PROBE_SECONDS).close()
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return True


def secure(sock: socket.socket, host: str, wiring: Wiring) -> tuple[Connection | None, Finding]:
    """Do the TLS handshake, if this connection has one; None if it fails."""
    context = context_for(host, wiring, server=False)
    if context is None:
        return Connection(sock), ok("key", "none is used on this connection")
    try:
        return Connection(context.wrap_socket(sock)), ok("key", "both sides have the same one")
    except (ssl.SSLError, OSError) as error:
        sock.close()
        return None, refused_key(error)


def refused_key(error: OSError) -> Finding:
    problem, _, remedy = keys.explain(error).partition(": ")
    return wrong("key", problem, remedy or "give both sides the same key file")


def call_back(place: str, peer: str, wiring: Wiring, hello: Hello) -> str:
    """Connect to a joiner and say hello; return the problem, or "". Only the host that has asked is called."""
    try:
        address = addresses.parse(place, "--join")
        if address.host != peer:
            return f"the joiner's address is {address.host}, but it comes from {peer}: a NAT lies between"
        sock, finding = reach(address)
        if sock is None:
            return f"{finding.text}; {finding.remedy}"
        wire, finding = secure(sock, address.host, wiring)
    except (SynclineError, OSError) as error:
        return str(error)
    if wire is None:
        return f"{finding.text}; {finding.remedy}"
    try:
        wire.send(hello)
        closed = addresses.was_closed(wire.sock, CONNECT_SECONDS)
    except OSError as error:
        return keys.explain(error)
    finally:
        wire.close()
    return "the joiner closed the connection without an answer" if closed else ""
