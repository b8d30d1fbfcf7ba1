"""Checks of this host's place in the network: its name, the address that would be taken, and listening there."""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, Queue
from threading import Thread

from syncline.engines.doctor.finding import Finding, note, ok, wrong
from syncline.engines.doctor.interfaces import Interface, interfaces
from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.engines.net.wiring import CONNECT_SECONDS
from syncline.errors import UsageError

NAME_SECONDS = 5.0
"""Seconds after which a name counts as one that cannot be looked up."""

EVERYWHERE = "0.0.0.0"


def host_name(name: str, look_up: Callable[[str], Sequence[str]] | None = None) -> Finding:
    """Whether the name of this host leads to an address that others can reach."""
    give = "give addresses instead of names to Syncline, torchrun and SLURM, or"
    try:
        found = (look_up or _looked_up)(name)
    except OSError as error:
        text = f"{name!r} cannot be looked up: {error.strerror or error}"
        return wrong("host name", text, f"{give} add a line to /etc/hosts: ADDRESS {name}")
    loopback = [each for each in found if addresses.is_loopback(Address(each, 0))]
    if loopback:
        text = f"{name!r} leads to {loopback[0]}, where only this host itself can connect"
        right = f"{give} write this host's address in place of {loopback[0]} in its line of /etc/hosts"
        return wrong("host name", text, right)
    return ok("host name", f"{name!r} leads to {', '.join(found)}")


def _looked_up(name: str) -> list[str]:
    """The addresses of a name. A broken name service can take minutes, so it is asked aside."""
    answer: Queue[list[str] | OSError] = Queue()

    def ask() -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            answer.put(list(dict.fromkeys(str(where[0]).partition("%")[0] for *_, where in found)))
        except (OSError, UnicodeError) as error:
            answer.put(error if isinstance(error, OSError) else OSError(0, "it is not a host name"))

    Thread(target=ask, name="syncline-look-up", daemon=True).start()
    try:
        found = answer.get(timeout=NAME_SECONDS)
    except Empty:
        raise TimeoutError(0, f"no answer within {NAME_SECONDS:g} s") from None
    if isinstance(found, OSError):
        raise found
    return found


def own_address(given: str = "", towards: str = "", there: Sequence[Interface] | None = None) -> tuple[str, Finding]:
    """The address at which other hosts would reach this one, and why it is this one.

    `given`: where the user wants to listen; `towards`: a host that this one connects to; `there`: the interfaces.
    """
    all_there = interfaces() if there is None else there
    listed = ", ".join(map(str, all_there)) or "none but loopback"
    if given and given not in addresses.SOMEWHERE:
        return given, _judged(given, "you have named it", all_there, listed)
    if towards:
        try:
            address = addresses.route_to(towards)
        except OSError as error:
            remedy = f"this host's addresses are {listed}; use an address of the other host in one of these networks"
            return "", wrong("address", f"there is no route to {towards}: {error.strerror}", remedy)
        return address, _judged(address, f"the way to {towards} leads there", all_there, listed)
    address = addresses.own_address_for(given or EVERYWHERE)
    try:
        addresses.route_to(addresses.SOMEWHERE[given or EVERYWHERE])
        why = "it is on the default route"
    except OSError:
        why = "there is no default route, and it comes first"
    return address, _judged(address, why, all_there, listed)


def _judged(address: str, why: str, there: Sequence[Interface], listed: str) -> Finding:
    """Whether others can reach this address, as far as this host can tell."""
    if addresses.is_loopback(Address(address, 0)):
        if there:
            return note(
                "address", f"{address} is loopback ({why}): other hosts cannot join", f"they could at: {listed}"
            )
        return note("address", "this host has only loopback addresses", "connect it to a network for a second host")
    found = next((each for each in there if each.address == address), None)
    if found is None:
        remedy = f"use one of these: {listed}; if {address} is mapped to one, listen at {EVERYWHERE}"
        return wrong("address", f"{address} is not an address of this host ({why})", remedy)
    others = [each for each in there if each.address != address and not each.is_inside]
    beside = f"; others: {', '.join(map(str, others))}" if others else ""
    figures = {"address": address, "interface": found.name}
    if found.is_inside:
        right = (
            f"use --listen or --at with another one: {', '.join(map(str, others))}" if others else "connect the host"
        )
        text = f"{found} ({why}), a network inside of this host, which other hosts cannot reach"
        return wrong("address", text, right, **figures)
    if not found.runs:
        remedy = f"switch it on (ip link set {found.name} up), or check the cable{beside}"
        return wrong("address", f"{found} ({why}), but the interface is down", remedy, **figures)
    return ok("address", f"{found} ({why}){beside}", **figures)


def listening(host: str, port: int, option: str = "--port") -> Finding:
    """Whether a process can listen at this address, and another process of this host can connect."""
    chosen = str(port) if port else "that the system chooses"
    try:
        listener = addresses.listen(Address(host, port), option)
    except UsageError as error:
        return wrong("listening", f"at {host}, port {chosen}: {error.problem}", "see the address above")
    with listener:
        bound = addresses.address_of(listener)
        try:
            addresses.connect(bound, CONNECT_SECONDS).close()
        except OSError as error:
            text = f"{bound} listens, but not even this host can connect there: {error.strerror or error}"
            return wrong("listening", text, "let this host's firewall pass connections of the host to itself")
    return ok("listening", f"possible at {host}, port {chosen}")


def about_the_network(given: str = "", towards: str = "", port: int = 0) -> list[Finding]:
    """All checks of this file."""
    name = host_name(socket.gethostname())
    address, why = own_address(given, towards)
    findings = [name, why]
    if address:
        with suppress(UsageError):
            findings.append(listening(address, port))
    return findings
