"""The Ray cluster: connect to it, check what it has, and choose on which of its nodes workers and servers run.

1. The workers are placed by a placement group with one bundle for each, on as few nodes as possible.
2. Workers are numbered by node, and the servers are spread evenly over the nodes that have workers.
3. The coordinator runs on the node of the program that started the run, which needs no free CPU for it.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from syncline.engines.launch.plan import Plan
from syncline.errors import RunError, UsageError
from syncline.units import whole

ADDRESS = "--address"

CONNECT_SECONDS = 5.0
"""How long a connection to the cluster may take."""

FIRST_SECONDS = 10.0
"""Seconds after which the user is told what the run waits for; each further pause is twice as long."""

LOOK_SECONDS = 0.5

INSTALL = "Ray is not installed; install it with: pip install 'syncline[ray]'"


@dataclass(frozen=True)
class NodeShare:
    """What one node gets."""

    node: str
    """Ray's identifier."""
    workers: tuple[int, int]
    servers: tuple[int, int]
    bundles: tuple[int, ...]
    """The bundles that the placement group has there, one for each worker."""

    @property
    def bundle(self) -> int:
        return self.bundles[0]


def imported_ray(option: str) -> Any:
    """Ray itself, or a `UsageError`."""
    try:
        import ray
    except ImportError:
        raise UsageError(option, INSTALL) from None
    return ray


def connect(address: str | None, option: str = ADDRESS) -> bool:
    """Connect to the cluster at this address; return False if this program is connected already.

    Without an address: the cluster of RAY_ADDRESS, or the one that runs on this machine.
    """
    ray = imported_ray(option)
    if ray.is_initialized():
        return False
    where = address or os.environ.get("RAY_ADDRESS", "")
    if where.startswith("ray://"):
        raise UsageError(option, f"{where!r} is a Ray client address; run the command on a node of the cluster instead")
    if where and where != "auto":
        _check_reachable(where, option)
    try:
        ray.init(address=where or "auto", log_to_driver=False, configure_logging=False)
    except (ConnectionError, RuntimeError, ValueError) as error:
        start = "start one with: ray start --head" if not where else f"{type(error).__name__}"
        named = f"there is no Ray cluster at {where}" if where else "no Ray cluster runs on this machine"
        raise UsageError(option, f"{named}; {start}, or name the cluster's address") from None
    return True


def _check_reachable(where: str, option: str) -> None:
    """Raise `UsageError` if nothing listens there; Ray itself would try for a long time."""
    host, _, port = where.rpartition(":")
    if not (host and port.isdigit() and 0 < int(port) < 1 << 16):
        raise UsageError(option, f"{where!r} is not an address; write ADDRESS:PORT, such as 192.0.2.7:6379")
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except OSError as error:
        problem = error.strerror or "it does not answer"
        raise UsageError(option, f"there is no Ray cluster at {where}: {problem}") from None


def live_nodes() -> list[Mapping[str, Any]]:
    """The nodes of the cluster that are alive."""
    import ray

    return [node for node in ray.nodes() if node["Alive"]]


def draining_nodes() -> frozenset[str]:
    """The nodes that Ray is about to take away."""
    import ray

    return frozenset(ray._private.state.state.get_draining_nodes())


def check_size(workers: int, cpus: float, option: str = "--workers") -> None:
    """Raise `UsageError` if so many workers would never fit."""
    sizes = [float(node["Resources"].get("CPU", 0)) for node in live_nodes()]
    fitting = sum(int(size / cpus + 1e-9) for size in sizes)
    if workers > fitting:
        has = f"the cluster has {sum(sizes):g} CPUs on {len(sizes)} {'node' if len(sizes) == 1 else 'nodes'}"
        each = "1 CPU" if cpus == 1 else f"{cpus:g} CPUs"
        raise UsageError(option, f"{workers} do not fit: {has}, and each worker takes {each}; start at most {fitting}")


class NodePlacement:
    """The CPUs that Ray keeps for workers."""

    def __init__(self, workers: int, cpus: float, strategy: str = "PACK") -> None:
        from ray.util.placement_group import placement_group

        self._workers = workers
        self._group = placement_group([{"CPU": cpus} for _ in range(workers)], strategy=strategy)

    def wait(self, note: Callable[[str], None]) -> None:
        """Wait until Ray has placed the group, and say now and then for what."""
        began, pause = monotonic(), FIRST_SECONDS
        while not self._group.wait(LOOK_SECONDS):
            waited = monotonic() - began
            if waited > pause:
                note(f"waiting for free CPUs for {self._workers} workers for {waited:.0f} s; `ray status` shows more")
                pause *= 2

    def node_of(self, bundle: int) -> str | None:
        """The node where this bundle is now; None: Ray has not placed all bundles."""
        table = self._table()
        return table["bundles_to_node_id"].get(bundle) if table["state"] == "CREATED" else None

    @property
    def nodes(self) -> int:
        """On how many nodes the bundles are."""
        return len(set(self._table()["bundles_to_node_id"].values()))

    def shares(self, servers: int) -> list[NodeShare]:
        """What each node gets."""
        table = self._table()["bundles_to_node_id"]
        bundles: dict[str, list[int]] = {}
        for bundle in sorted(table):
            bundles.setdefault(table[bundle], []).append(bundle)
        if not bundles:
            raise RunError("Ray has placed no worker")
        return spread({node: tuple(found) for node, found in bundles.items()}, servers)

    def _table(self) -> Mapping[str, Any]:
        from ray.util.placement_group import placement_group_table

        found: Mapping[str, Any] = placement_group_table(self._group)
        return found

    def options(self, bundle: int) -> dict[str, Any]:
        """How an actor runs beside this bundle's worker, in what is kept for it."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        strategy = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=bundle)
        return {"num_cpus": 0, "scheduling_strategy": strategy}

    def free(self) -> None:
        from ray.util.placement_group import remove_placement_group

        remove_placement_group(self._group)


def spread(nodes: Mapping[str, tuple[int, ...]], servers: int) -> list[NodeShare]:
    """Number the workers by node, and spread the servers evenly; `nodes`: the bundles of each."""
    first, shares = 0, []
    begin = [number * servers // len(nodes) for number in range(len(nodes) + 1)]
    for place, (node, bundles) in enumerate(nodes.items()):
        last = first + len(bundles)
        shares.append(NodeShare(node, (first, last), (begin[place], begin[place + 1]), bundles))
        first = last
    return shares


def servers_of(plan: Plan, nodes: int) -> int:
    """How many servers the run has: as many as asked for, or those of the strategy, and then as many on each node."""
    count = plan.server_count
    return count if plan.servers is not None else -(-count // nodes) * nodes


def on_own_node() -> dict[str, Any]:
    """How an actor runs on the node of this program, without a CPU of its own."""
    import ray

    return on_node(ray.get_runtime_context().get_node_id())


def on_node(node: str) -> dict[str, Any]:
    """How an actor runs on this node, without a CPU of its own."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    return {"num_cpus": 0, "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False)}


def checked_workers(workers: int | Sequence[int], most: int) -> tuple[int, int]:
    """The least and the most workers, of a number or a pair."""
    least, greatest = (workers, workers) if isinstance(workers, int) else tuple(workers)
    whole(least, "workers", 1, most)
    whole(greatest, "workers", least, most)
    return least, greatest
