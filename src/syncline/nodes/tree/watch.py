"""What is measured of a simulated tree: staleness over time, bytes per link, and when all replicas agree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from syncline.messages import NodeId, TreeMap
from syncline.nodes.protocol import Keeper
from syncline.nodes.topologies import ordered, path
from syncline.nodes.tree.coordinator import TreeCoordinator
from syncline.nodes.tree.node import TreeNode
from syncline.nodes.tree.round_bucket import RoundBucket

MOST_SAMPLES = 1000
"""With more samples, every other one is dropped."""


class TreeWatch:
    """Watches the nodes of a tree; between two events nothing changes, so it looks only when something happens."""

    def __init__(self, coordinator: TreeCoordinator, keepers: Callable[[], Sequence[Keeper]], period: float) -> None:
        """`keepers`: the nodes of all live servers; `period`: seconds between two samples."""
        self._coordinator = coordinator
        self._keepers = keepers
        self._every = period
        self._next = 0.0
        self.staleness: list[tuple[float, float]] = []
        """(seconds, mean over the nodes of the number of updates that a replica lacks)."""
        self.bytes: Counter[tuple[int, int]] = Counter()
        """The payload bytes that each link has carried, in both directions."""
        self.agreed: float | None = None
        """When, after the end, all replicas contained all updates."""

    def sent(self, source: NodeId, to: NodeId, size: int) -> None:
        self.bytes[ordered(source.number, to.number)] += size

    def before(self, now: float) -> None:
        """Something is about to happen: record how it was until now."""
        if now >= self._next and self.agreed is None:
            value = self._lacking()
            while self._next <= now:
                self._add(self._next, value)
                self._next += self._every

    def after(self, now: float) -> None:
        """Something has happened after the end of the run."""
        if self.agreed is None and self._agree():
            self.agreed = now

    def _add(self, time: float, value: float) -> None:
        self.staleness.append((time, value))
        if len(self.staleness) > MOST_SAMPLES:
            del self.staleness[1::2]
            self._every *= 2

    def _nodes(self) -> list[TreeNode]:
        named = self._coordinator.servers
        return [each for each in self._keepers() if isinstance(each, TreeNode) and each.number in named]

    def _lacking(self) -> float:
        """The mean number of updates that a replica lacks, over nodes and buckets."""
        found: list[int] = []
        nodes = self._nodes()
        for name in nodes[0].buckets if nodes else ():
            held = [node.buckets[name] for node in nodes]
            rounds = [each.closed for each in held if isinstance(each, RoundBucket)]
            if rounds:
                found += [max(rounds) - each for each in rounds]
                continue
            total = sum(each.count for bucket in held for each in bucket.held.by_origin.values())
            found += [max(0, total - sum(bucket.contained().values())) for bucket in held]
        return sum(found) / max(1, len(found))

    def _agree(self) -> bool:
        return not self._coordinator.moving and self._lacking() == 0

    def figures(self, ended: float) -> dict[str, Any]:
        """For the report of a run whose last iteration was done at `ended`."""
        tree = self._coordinator.view.topology
        assert isinstance(tree, TreeMap)
        edges = [(each.one, each.other) for each in tree.links]
        numbers = [each.number for each in tree.nodes]
        ways = [len(path(edges, one, other)) - 1 for one in numbers for other in numbers if one < other]
        return {
            "hops_mean": sum(ways) / max(1, len(ways)),
            "hops_max": max(ways, default=0),
            "bytes_per_link": {f"{one}-{other}": size for (one, other), size in sorted(self.bytes.items())},
            "seconds_to_agree": None if self.agreed is None else max(0.0, self.agreed - ended),
            "replica_gap_after_rest": self.gap(),
            "staleness_curve": [[round(time, 6), round(value, 6)] for time, value in self.staleness],
            "lost_origins": sorted(self._coordinator.lost_origins),
        }

    def gap(self) -> float:
        """The largest difference between two replicas."""
        found = 0.0
        nodes = self._nodes()
        for name in nodes[0].buckets if nodes else ():
            replicas = [node.buckets[name].shown() for node in nodes]
            found = max(found, *(_difference(replicas[0], each) for each in replicas))
        return found


def _difference(one: Any, other: Any) -> float:
    return float(abs(one - other).max(initial=0))
