"""Links that carry TCP over Ethernet, and the processors at their ends, as docs/cluster.md has measured them."""

from __future__ import annotations

from syncline.sim.network import Links

GOODPUT = 1448 / 1514
"""The share of a link's rate that TCP leaves for values, with frames of 1,500 bytes and time stamps."""

TURN = 1 << 18
"""The bytes that a connection usually has in flight before other connections use the link."""

HANDLING = 100e-6
"""The processor seconds of a message, at both ends together, regardless of its size. This is about what the cluster
benchmark measures if messages are many and small: busy cores * seconds of a step / messages of a step.
"""


def tcp_links(rate: float, latency: float = 0.0) -> Links:
    """Links of this rate in bytes per second, in each direction; connections take turns on them."""
    return Links(rate * GOODPUT, latency, turn=TURN)
