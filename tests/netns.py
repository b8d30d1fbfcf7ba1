"""Two hosts on one machine: network namespaces that are joined by a cable (a veth pair), and always removed at the end.

Each has its own loopback, ports, routes and abstract Unix names; files and processes are shared. It takes root and `ip`
(iproute2); without them a test that asks for two hosts is skipped.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import pytest

LINK = "veth0"
"""The name of the cable's end in each of the two namespaces."""

NUMBERS = count()


@dataclass(frozen=True)
class Host:
    """One end of the cable; what `start` has started is killed when the pair is removed."""

    name: str
    address: str
    stack: ExitStack = field(repr=False)

    def inside(self, *command: str) -> list[str]:
        """The command, as it has to be written to run on this host."""
        return ["ip", "netns", "exec", self.name, *command]

    def run(self, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and keep what it prints; a failure raises CalledProcessError."""
        options = {"check": True, "capture_output": True, "text": True, "timeout": 60} | options
        return subprocess.run(self.inside(*command), **options)

    def start(self, *command: str, **options: Any) -> subprocess.Popen[Any]:
        """Start a command and leave it running."""
        process = self.stack.enter_context(subprocess.Popen(self.inside(*command), **options))
        self.stack.callback(process.kill)
        return process

    def link(self, state: str) -> None:
        """Pull this end of the cable out ("down") or put it back ("up")."""
        ip("-n", self.name, "link", "set", LINK, state)


@contextmanager
def two_hosts() -> Iterator[tuple[Host, Host]]:
    """Two hosts that reach each other and nobody else; names carry the process, so that runs do not collide."""
    skip_without_namespaces()
    here, number = os.getpid(), next(NUMBERS)
    with ExitStack() as stack:
        names = [f"syncline-{here}-{number}-{side}" for side in "ab"]
        for name in names:
            make_namespace(name, stack)
        ip("link", "add", LINK, "netns", names[0], "type", "veth", "peer", "name", LINK, "netns", names[1])
        hosts = [Host(name, f"10.77.{here % 256}.{end}", stack) for end, name in enumerate(names, start=1)]
        for host in hosts:
            plug_in(host)
        yield hosts[0], hosts[1]


def make_namespace(name: str, stack: ExitStack) -> None:
    try:
        ip("netns", "add", name)
    except subprocess.CalledProcessError as error:
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
    stack.callback(remove, name)


def plug_in(host: Host) -> None:
    ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", LINK)
    ip("-n", host.name, "link", "set", "lo", "up")
    host.link("up")


def remove(name: str) -> None:
    """Kill what still runs inside, and take the namespace away; its end of the cable goes with it, and so the other."""
    try:
        for pid in ip("netns", "pids", name).split():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    finally:
        ip("netns", "delete", name)


def skip_without_namespaces() -> None:
    if os.geteuid() != 0:
        pytest.skip("network namespaces take root")
    if shutil.which("ip") is None:
        pytest.skip("network namespaces take the command `ip` (iproute2)")


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True, timeout=60).stdout
