"""A link between a host and its switch, or between two switches: its two devices, its rate and its latency."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from syncline.engines.process import end_with_parent
from syncline.errors import RunError

INTERFACE = "eth0"
"""The name of a host's device."""

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

FRAMES = 100_000
"""How many frames may be under way on a link with latency: more than any link of the benchmark carries meanwhile."""


@dataclass(frozen=True)
class Link:
    """Where a link is: the namespaces of its ends, and the switch's device; the host's device is `eth0`.

    Between two switches, `host` is one of them.
    """

    host: str
    address: str
    switch: str
    port: str


def join(link: Link) -> None:
    """Make the devices of a link without latency."""
    ends = ("type", "veth", "peer", "name", INTERFACE, "netns", link.host)
    call("ip", "link", "add", link.port, "netns", link.switch, *ends)


def join_by_cable(link: Link, delay: float) -> subprocess.Popen[str]:
    """Start a process that makes the devices and carries each frame in `delay` seconds; it dies with this process."""
    parent = os.getpid()
    words = ["ip", "netns", "exec", link.host, sys.executable, "-P", "-m", "benchmarks.cluster.cable"]
    return subprocess.Popen(
        [*words, INTERFACE, link.port, repr(delay)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: end_with_parent(parent),
        start_new_session=True,
    )


def connect_cable(link: Link, cable: subprocess.Popen[str]) -> None:
    """Wait until the process has made its devices, and move one of them to the switch."""
    assert cable.stdout is not None
    if not cable.stdout.readline():
        _, problem = cable.communicate()
        raise RunError(f"cannot delay frames: {problem.strip().splitlines()[-1]}")
    for device in (INTERFACE, link.port):
        call("ip", "-n", link.host, "link", "set", device, "txqueuelen", str(FRAMES))
    call("ip", "-n", link.host, "link", "set", link.port, "netns", link.switch)


def end_cable(cable: subprocess.Popen[str]) -> None:
    """Kill the process of a cable; its devices disappear."""
    with cable:
        cable.kill()


def plug_in(link: Link, rate: float, latency: float = 0.0) -> None:
    """Connect the two devices to their host and switch; limit the rate, and let `netem` delay what the host gets."""
    call("ip", "-n", link.switch, "link", "set", link.port, "master", "bridge")
    call("ip", "-n", link.switch, "link", "set", link.port, "up")
    call("ip", "-n", link.host, "address", "add", f"{link.address}/24", "dev", INTERFACE)
    call("ip", "-n", link.host, "link", "set", "lo", "up")
    call("ip", "-n", link.host, "link", "set", INTERFACE, "up")
    at_host, at_port = ("tc", "-n", link.host), ("tc", "-n", link.switch)
    call(*at_host, "qdisc", "add", "dev", INTERFACE, "root", "tbf", *_limits(rate, HOST_QUEUE))
    parent = ["root"]
    if latency > 0:  # at the switch, since a host's TCP counts what waits in its own queue as not sent yet
        call(*at_port, "qdisc", "add", "dev", link.port, "root", "handle", "1:", "netem", *_delay(latency))
        parent = ["parent", "1:1"]
    call(*at_port, "qdisc", "add", "dev", link.port, *parent, "tbf", *_limits(rate, PORT_QUEUE))


def join_switches(link: Link, rate: float) -> None:
    """Connect the two devices to the two switches, `link.host` and `link.switch`, and limit the rate."""
    for switch, device in ((link.host, INTERFACE), (link.switch, link.port)):
        call("ip", "-n", switch, "link", "set", device, "master", "bridge")
        call("ip", "-n", switch, "link", "set", device, "up")
        call("tc", "-n", switch, "qdisc", "add", "dev", device, "root", "tbf", *_limits(rate, PORT_QUEUE))


def _limits(rate: float, queue: int) -> tuple[str, ...]:
    burst = max(LEAST_BURST, int(rate * BURST_SECONDS))
    return ("rate", f"{int(rate * 8)}bit", "burst", f"{burst}b", "limit", f"{queue}b")


def _delay(latency: float) -> tuple[str, ...]:
    return ("delay", f"{latency * 1e6:.0f}us", "limit", str(FRAMES))


def has_netem(namespace: str) -> bool:
    """Can the kernel delay frames by itself?"""
    command = ("tc", "-n", namespace, "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms")
    return run(command).returncode == 0


def run(command: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    # In its own process group, so that Ctrl-C reaches only this process and never interrupts `ip` half-way.
    return subprocess.run(command, capture_output=True, text=True, timeout=60, process_group=0, check=False)


def call(*command: str) -> str:
    """Run a command and return its output; RunError if it fails."""
    done = run(command)
    if done.returncode:
        raise RunError(f"`{' '.join(command)}` failed: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
