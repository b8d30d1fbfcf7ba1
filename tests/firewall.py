"""Firewalls and a router with NAT, in the network namespaces of a test. They take `nft` (nftables): `make tools`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from netns import LINK, NUMBERS, Host, ip, make_namespace, plug_in, skip_without_namespaces

INSIDE = "veth1"
"""The router's end of the cable to the host behind it."""

NEW = "tcp flags & (syn | ack) == syn"
"""The first packet of a TCP connection."""


def skip_without_nft() -> None:
    """Skip the test if there is no `nft`; where all tests must run (CI), fail instead."""
    skip_without_namespaces()
    if shutil.which("nft") is None:
        if os.environ.get("TESTS_NEED_TOOLS"):
            pytest.fail("firewalls take the command `nft`; run: make tools")
        pytest.skip("firewalls take the command `nft` (make tools)")


def rules(host: Host, text: str) -> None:
    """Load these rules of nftables on a host; they end with its namespace."""
    host.run("nft", "-f", "-", input=text)


def drop(host: Host, *packets: str) -> None:
    """Let a host drop what comes from the cable and matches one of these."""
    lines = "\n".join(f"iifname {LINK} {each} drop" for each in packets)
    rules(host, f"table inet filter {{\nchain input {{\ntype filter hook input priority 0;\n{lines}\n}}\n}}\n")


@contextmanager
def behind_a_router() -> Iterator[tuple[Host, Host]]:
    """A host, and another one behind a router that hides its address (masquerading)."""
    skip_without_nft()
    here, number = os.getpid(), next(NUMBERS)
    with ExitStack() as stack:
        outside, router, inside = (f"syncline-{here}-{number}-{side}" for side in ("out", "nat", "in"))
        for name in (outside, router, inside):
            make_namespace(name, stack)
        ip("link", "add", LINK, "netns", outside, "type", "veth", "peer", "name", LINK, "netns", router)
        ip("link", "add", INSIDE, "netns", router, "type", "veth", "peer", "name", LINK, "netns", inside)
        first, hidden = Host(outside, f"10.77.{here % 256}.1", stack), Host(inside, f"10.66.{here % 256}.2", stack)
        for host in (first, hidden, Host(router, f"10.77.{here % 256}.2", stack)):
            plug_in(host)
        gateway = f"10.66.{here % 256}.1"
        ip("-n", router, "address", "add", f"{gateway}/24", "dev", INSIDE)
        ip("-n", router, "link", "set", INSIDE, "up")
        ip("-n", inside, "route", "add", "default", "via", gateway)
        ip("netns", "exec", router, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        masquerade = f"chain out {{\ntype nat hook postrouting priority 100;\noifname {LINK} masquerade\n}}"
        rules(Host(router, "", stack), f"table ip hide {{\n{masquerade}\n}}\n")
        yield first, hidden


def names(host: Host, lines: str) -> None:
    """Give a host an /etc/hosts of its own; it is removed with the host."""
    folder = Path("/etc/netns") / host.name
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "hosts"
    for each in reversed(made):
        host.stack.callback(_remove_if_empty, each)
    file.write_text(lines)
    host.stack.callback(file.unlink)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # the hosts of another test have files there
        folder.rmdir()
