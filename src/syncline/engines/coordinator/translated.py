"""A NAT between a worker and the run: the worker can connect to others, and nobody can connect to the worker."""

from __future__ import annotations

from syncline.engines.net import addresses
from syncline.engines.net.control import NodeAddress
from syncline.errors import UsageError
from syncline.messages import NodeId

BETTER = (
    "run it on a host that the others can reach, or use strategy server or tree, whose workers only connect to others"
)


def behind_nat(worker: NodeId, place: NodeAddress, seen: str) -> str:
    """Why other workers cannot connect to this one, which listens at `place`; "": nothing speaks against it.

    `seen`: the address from which its connection comes; "": this host.

    A worker listens at the address from which it connects to the coordinator, so the two differ only behind a NAT.
    """
    if not place.tcp or not seen:
        return ""
    try:
        own = addresses.parse(place.tcp, "--listen").host
    except UsageError:
        return ""  # others find out that they cannot use it
    if own in addresses.SOMEWHERE or own == seen:
        return ""
    what = f"worker {worker.number} has the address {own}, and its connection comes from {seen}"
    return f"{what}: a NAT lies between, so other workers cannot connect to it, as this strategy needs; {BETTER}"
