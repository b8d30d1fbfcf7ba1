"""Emulate hosts on one machine: network namespaces, connected by a switch, with links of a limited rate.

1. A host has its own loopback, ports and routes, and one interface, `eth0`. Hosts share files and processes.
2. The switch is a bridge in its own namespace, so the machine's own network is not changed.
3. `tc tbf` limits both ends of every link: the host's end limits what the host sends, the switch's end what it
   receives. There is no added latency.
4. Everything is removed at the end, also after an error or an interrupt.

This needs root, and `ip` and `tc` (iproute2).
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
"""The prefix of the names of the namespaces; the process id and a counter follow, so that names are unique."""

INTERFACE = "eth0"

MOST_HOSTS = 64

BURST_SECONDS = 0.001
"""How long an idle link may send without limit; longer than the interval of the kernel's timer."""

LEAST_BURST = 131_072
"""The least burst in bytes: two of the largest segments that the kernel passes on whole.

If a segment did not fit, `tbf` would split it into frames, which costs far more processor time than all the rest.
"""

HOST_QUEUE = 1 << 26
"""The bytes that may wait to leave a host; large, since a host blocks its programs instead of dropping packets."""

PORT_QUEUE = 1 << 20
"""The bytes that may wait at one port of the switch, as in a plain 1 Gbit switch; it drops further packets."""

_NUMBERS = count()


@dataclass(frozen=True)
class Host:
    """A network namespace with an address."""

    name: str
    address: str

    def inside(self, *command: str) -> list[str]:
        """The command that runs `command` on this host."""
        return ["ip", "netns", "exec", self.name, *command]


@dataclass(frozen=True)
class Count:
    """The bytes that a host's link has carried, including all headers."""

    sent: int
    received: int

    def __sub__(self, before: Count) -> Count:
        return Count(self.sent - before.sent, self.received - before.received)


@contextmanager
def network(hosts: int, rate: float) -> Iterator[tuple[Host, ...]]:
    """Make this many hosts, each with a link of `rate` bytes per second in each direction."""
    check_possible(hosts)
    run = f"{PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    switch = f"{run}-switch"
    made = tuple(Host(f"{run}-h{number}", f"10.78.{os.getpid() % 256}.{number + 1}") for number in range(hosts))
    with ExitStack() as stack:
        for name in (switch, *(host.name for host in made)):
            stack.callback(_remove, name)  # register this first, since an interrupt may come while it is made
            _call("ip", "netns", "add", name)
        _call("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
        _call("ip", "-n", switch, "link", "set", "bridge", "up")
        for number, host in enumerate(made):
            _plug_in(host, switch, f"port{number}", rate)
        yield made


def check_hosts(hosts: int) -> None:
    """Raise UsageError unless the number of hosts is in 1..MOST_HOSTS."""
    if not 1 <= hosts <= MOST_HOSTS:
        raise UsageError("--hosts", f"must be from 1 to {MOST_HOSTS}, not {hosts}")


def check_possible(hosts: int) -> None:
    """Raise UsageError if this machine cannot make the network."""
    check_hosts(hosts)
    if os.geteuid() != 0:
        raise UsageError("cluster", "network namespaces need root; run it as root, or with --predict-only")
    for command in ("ip", "tc"):
        if shutil.which(command) is None:
            raise UsageError("cluster", f"needs the command `{command}`; install iproute2")


def count_bytes() -> Count:
    """The bytes that the link of this process's host has carried so far."""
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
    """Kill the processes in the namespace and delete it; the kernel removes its links with it."""
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
    """The names of all named network namespaces of this machine."""
    return {line.split()[0] for line in _call("ip", "netns", "list").splitlines() if line.strip()}


def _call(*command: str) -> str:
    # In its own process group, so that Ctrl-C reaches only this process and never interrupts `ip` half-way.
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, process_group=0, check=False)
    if done.returncode:
        raise RunError(f"`{' '.join(command)}` failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
