"""The option `--port`: the one port at which other hosts reach all processes of this one."""

from __future__ import annotations

import errno
import socket
from collections.abc import Mapping

from syncline.engines.launch.hosts import Hosts
from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.errors import UsageError
from syncline.units import whole

OPTION = "--port"

VARIABLE = "SYNCLINE_PORT"
"""The same for torchrun, which has no options for us."""

MOST_PORT = 65535


def check_port(port: int, hosts: Hosts | None, listen: str | None, join: str | None) -> None:
    """Raise UsageError if this is no port, or does not go with the other options."""
    whole(port, OPTION, 1, MOST_PORT)
    if hosts is None and listen is None and join is None:
        raise UsageError(OPTION, "says where other hosts reach this one; add --listen, --hosts or --join")
    named = {"--listen": listen, "--at": hosts.address if hosts is not None and hosts.leads else None}
    for option, place in named.items():
        other = addresses.place_of(place, option)[1] if place is not None else 0
        if other not in (0, port):
            problem = f"is {port}, but {option} names port {other}; one port serves for all, so give the same"
            raise UsageError(OPTION, problem)


def port_from_variable(environment: Mapping[str, str]) -> str:
    """The port that SYNCLINE_PORT names, checked; "": none."""
    text = environment.get(VARIABLE, "")
    if text and not (text.isascii() and text.isdigit()):
        raise UsageError(VARIABLE, f"{text!r} is not a port; set it to a number from 1 to {MOST_PORT}")
    return str(whole(int(text), VARIABLE, 1, MOST_PORT)) if text else ""


def check_place(text: str, host: str = "", *, towards: str = "") -> None:
    """Raise UsageError if this host cannot listen at that port; `towards`: a host to which it connects."""
    if not text:
        return
    if not host:
        try:
            host = addresses.route_to(towards or addresses.SOMEWHERE["0.0.0.0"])
        except OSError:
            host = "0.0.0.0"
    listen_at(host, int(text)).close()


def listen_at(host: str, port: int) -> socket.socket:
    """Listen at the port that the processes of this host share."""
    try:
        return addresses.listen(Address(host, port), OPTION)
    except UsageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.EADDRINUSE:
            problem = f"{port} is in use at {host}; choose another port, or end the process that listens there"
            raise UsageError(OPTION, problem) from cause
        if isinstance(cause, OSError) and cause.errno == errno.EACCES:
            problem = f"{port} needs a privilege that you do not have; choose a port from 1024 up"
            raise UsageError(OPTION, problem) from cause
        raise
