"""Hosts on one machine: network namespaces joined by a switch, each cable held to a rate, removed whatever happens.

A host has a loopback, ports and routes of its own, and one interface, `eth0`; files and processes are shared. The
switch is a bridge in a namespace of its own, so the machine's own network is not touched. `tc tbf` holds both ends of
every cable: the host's end what the host sends, the switch's end what it receives. There is no added latency.

It takes root, `ip` and `tc` (iproute2).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from syncline.engines.launch.interrupts import delay_interrupts
from syncline.errors import RunError, UsageError

PREFIX = "cluster"
"""How the names of the namespaces begin; the process and a running number follow, so that runs do not collide."""

INTERFACE = "eth0"

MOST_HOSTS = 64

BURST_SECONDS = 0.001
"""How long a link that was idle may send without being held: longer than the kernel's timer takes to come back."""

LEAST_BURST = 131_072
"""Bytes: two of the largest segments that the kernel hands on whole.

If one did not fit, `tbf` would cut it into frames, which costs the processors many times as much as the rest.
"""

HOST_QUEUE = 1 << 26
"""Bytes that may wait to leave a host: a host lets its programs wait, and drops nothing of its own."""

PORT_QUEUE = 1 << 20
"""Bytes that may wait in the switch to leave by one port, as in a plain 1 Gbit switch; what comes on top is dropped."""

_NUMBERS = count()


@dataclass(frozen=True)
class Host:
    """A namespace with an address."""

    name: str
    address: str

    def inside(self, *command: str) -> list[str]:
        """The command, as it has to be written to run on this host."""
        return ["ip", "netns", "exec", self.name, *command]


@dataclass(frozen=True)
class Count:
    """Bytes that a host's link has carried, frames with all their headers."""

    sent: int
    received: int

    def __sub__(self, before: Count) -> Count:
        return Count(self.sent - before.sent, self.received - before.received)


@contextmanager
def network(hosts: int, rate: float) -> Iterator[tuple[Host, ...]]:
    """So many hosts, each with a link of `rate` bytes per second in each direction."""
    check_possible(hosts)
    run = f"{PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    switch = f"{run}-switch"
    made = tuple(Host(f"{run}-h{number}", f"10.78.{os.getpid() % 256}.{number + 1}") for number in range(hosts))
    with ExitStack() as stack:
        for name in (switch, *(host.name for host in made)):
            stack.callback(_remove, name)  # first: an interrupt may come while it is made
            _call("ip", "netns", "add", name)
        _call("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _call("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, host in enumerate(made):
            _plug_in(host, switch, f"port{number}", rate)
        yield made


def check_hosts(hosts: int) -> None:
    """Refuse none, and more than there can be."""
    if not 1 <= hosts <= MOST_HOSTS:
        raise UsageError("--hosts", f"from 1 to {MOST_HOSTS}, not {hosts}")


def check_possible(hosts: int) -> None:
    """Refuse what cannot be made here."""
    check_hosts(hosts)
    if os.geteuid() != 0:
        raise UsageError("cluster", "network namespaces take root; run it as root, or with --predict-only")
    for command in ("ip", "tc"):
        if shutil.which(command) is None:
            raise UsageError("cluster", f"takes the command `{command}`; install iproute2")


def count_bytes() -> Count:
    """What the link of the host that this process runs on has carried so far."""
    folder = Path("/sys/class/net") / INTERFACE / "statistics"
    return Count(*(int((folder / f"{way}_bytes").read_text()) for way in ("tx", "rx")))


def _plug_in(host: Host, switch: str, port: str, rate: float) -> None:
    cable = ("link", "add", port, "netns", switch, "type", "veth", "peer", "name", INTERFACE, "netns", host.name)
    _call("ip", *cable)
    _call("ip", "-n", switch, "link", "set", port, "master", "bridge")
    _call("ip", "-n", switch, "link", "set", port, "up")
    _call("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", INTERFACE)
    _call("ip", "-n", host.name, "link", "set", "lo", "up")
    _call("ip", "-n", host.name, "link", "set", INTERFACE, "up")
    burst = max(LEAST_BURST, int(rate * BURST_SECONDS))
    for name, end, queue in ((host.name, INTERFACE, HOST_QUEUE), (switch, port, PORT_QUEUE)):
        held = ("rate", f"{int(rate * 8)}bit", "burst", f"{burst}b", "limit", f"{queue}b")
        _call("tc", "-n", name, "qdisc", "add", "dev", end, "root", "tbf", *held)


def _remove(name: str) -> None:
    """Kill what still runs inside, and take the namespace away; its ends of cables go with it, and so the others."""
    with delay_interrupts():
        if name not in names():
            return
        try:
            for pid in _call("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        finally:
            _call("ip", "netns", "delete", name)


def names() -> set[str]:
    """All network namespaces of this machine that have a name."""
    return {line.split()[0] for line in _call("ip", "netns", "list").splitlines() if line.strip()}


def _call(*command: str) -> str:
    # In a group of its own: Ctrl-C is ours to heed, and half of what `ip` does is hard to take back.
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, process_group=0, check=False)
    if done.returncode:
        raise RunError(f"`{' '.join(command)}` failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
