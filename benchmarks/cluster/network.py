"""Emulate hosts on one machine: network namespaces, connected by a switch, with links of a limited rate.

1. A host has its own loopback, ports and routes, and one interface, `eth0`. Hosts share files and processes.
2. The switch is a bridge in its own namespace, so the machine's own network is not changed.
3. `tc tbf` limits both ends of every link: the host's end limits what the host sends, the switch's end what it
   receives.
4. Without latency a link is a `veth` pair. With latency, `tc netem` delays frames at the switch, if the kernel has it.
   Otherwise the link is a process (cable.py) between two TAP devices, which delays frames by half of the latency.
5. With two regions, each half of the hosts has a switch of its own, and one link joins the switches.
6. Everything is removed at the end, also after an error or an interrupt.

This needs root, and `ip` and `tc` (iproute2).
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from benchmarks.cluster import links
from benchmarks.cluster.cable import DEVICE
from benchmarks.cluster.links import INTERFACE, Link, call

from syncline.engines.launch.interrupts import delay_interrupts
from syncline.errors import RunError, UsageError

PREFIX = "cluster"
"""The prefix of the names of the namespaces; the process id and a counter follow, so that names are unique."""

MOST_HOSTS = 64

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


@dataclass(frozen=True)
class LinkBetween:
    """The link between two regions, each with half of the hosts."""

    rate: float
    """Bytes per second in each direction."""
    latency: float = 0.0
    """Seconds that a frame takes over it."""


@contextmanager
def network(
    hosts: int, rate: float, latency: float = 0.0, between: LinkBetween | None = None
) -> Iterator[tuple[Host, ...]]:
    """Make this many hosts, each with a link of `rate` bytes per second in each direction.

    A frame takes `latency` seconds from one host to another, in addition to the time on the links. `between`: the first
    half of the hosts is in one region, the rest in another.
    """
    check_possible(hosts)
    run = f"{PREFIX}{os.getpid()}-{next(_NUMBERS)}"
    switches = [f"{run}-switch{number}" for number in range(1 if between is None else 2)]
    made = tuple(Host(f"{run}-h{number}", f"10.78.{os.getpid() % 256}.{number + 1}") for number in range(hosts))
    with ExitStack() as stack:
        for name in (*switches, *(host.name for host in made)):
            stack.callback(_remove, name)  # register this first, since an interrupt may come while it is made
            call("ip", "netns", "add", name)
        for switch in switches:
            call("ip", "-n", switch, "link", "add", "bridge", "type", "bridge")
            call("ip", "-n", switch, "link", "set", "bridge", "up")
        homes = [switches[region_of(number, hosts) if between else 0] for number in range(hosts)]
        for number, (host, switch) in enumerate(zip(made, homes, strict=True)):
            _connect(stack, Link(host.name, host.address, switch, f"port{number}"), rate, latency)
        if between is not None:
            _connect_switches(stack, Link(switches[0], "", switches[1], "between"), between)
        yield made


def region_of(host: int, hosts: int) -> int:
    """The region of a host, if there are two."""
    return int(host >= (hosts + 1) // 2)


def _connect(stack: ExitStack, link: Link, rate: float, latency: float) -> None:
    """Make the link of a host; the process of a long cable ends with `stack`."""
    netem = latency > 0 and links.has_netem(link.switch)
    if latency > 0 and not netem:
        _lay_cable(stack, link, latency / 2)
    else:
        links.join(link)
    links.plug_in(link, rate, latency if netem else 0.0)


def _connect_switches(stack: ExitStack, link: Link, between: LinkBetween) -> None:
    """Make the link between two switches."""
    if between.latency:
        _lay_cable(stack, link, between.latency)
    else:
        links.join(link)
    links.join_switches(link, between.rate)


def _lay_cable(stack: ExitStack, link: Link, seconds: float) -> None:
    """Make a link whose frames take this long; its process ends with `stack`."""
    if not Path(DEVICE).exists():
        raise RunError(f"--latency needs a kernel with the qdisc `netem`, or {DEVICE}")
    with delay_interrupts():
        cable = links.join_by_cable(link, seconds)
        stack.callback(links.end_cable, cable)
    links.connect_cable(link, cable)


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


def _remove(name: str) -> None:
    """Kill the processes in the namespace and delete it; the kernel removes its links with it."""
    with delay_interrupts():
        if name not in names():
            return
        try:
            for pid in call("ip", "netns", "pids", name).split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        finally:
            call("ip", "netns", "delete", name)


def names() -> set[str]:
    """The names of all named network namespaces of this machine."""
    return {line.split()[0] for line in call("ip", "netns", "list").splitlines() if line.strip()}
