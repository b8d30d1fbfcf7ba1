"""Which CPUs Ray keeps for the workers of a run, and where workers can join it.

1. The first workers have one placement. If a node of it dies, Ray moves the bundles of that node to others.
2. A run that may grow asks for one more bundle at a time, and starts a worker there when Ray has placed it.
3. A worker that is lost is replaced if the number of workers is a range, or if restarts are left.
"""

from __future__ import annotations

from collections.abc import Collection
from math import inf

from syncline.ray.cluster import NodePlacement
from syncline.ray.remote_host import RemoteHost

Bundle = tuple[NodePlacement, int]


class RayGrowth:
    """The placements of one run."""

    def __init__(self, least: int, most: int, restarts: int, cpus: float) -> None:
        """`most`: how many workers the run may have at once, if above `least`."""
        self._target, self._cpus = max(least, most), cpus
        self._left = inf if most > least else restarts
        """How many workers may still join."""
        self._placements: list[NodePlacement] = []
        self._vacant: list[Bundle] = []
        """Bundles that have no worker, or had one that is lost."""
        self._stopped = False

    def first(self, workers: int) -> NodePlacement:
        """Ask for the CPUs of the first workers."""
        return self._ask(workers)

    def _ask(self, workers: int) -> NodePlacement:
        made = NodePlacement(workers, self._cpus)
        self._placements.append(made)
        return made

    @property
    def wants(self) -> bool:
        """Whether workers may still join."""
        return not self._stopped and self._left > 0

    def stop(self) -> None:
        """Let no more workers join."""
        self._stopped = True

    def lost(self, host: RemoteHost) -> None:
        """The workers of this host are gone, or are about to go."""
        self._vacant += host.bundles
        host.bundles = ()

    def room(self, working: int, nodes: Collection[str]) -> list[tuple[Bundle, str]]:
        """The bundles, each with its node, where a worker can start now; `nodes`: those that stay."""
        found: list[tuple[Bundle, str]] = []
        missing = min(self._target - working, self._left)
        for bundle in list(self._vacant):
            node = bundle[0].node_of(bundle[1]) if len(found) < missing else None
            if node is not None and node in nodes:
                found.append((bundle, node))
                self._vacant.remove(bundle)
        if not found and missing > len(self._vacant):
            self._vacant.append((self._ask(1), 0))
        self._left -= len(found)
        return found

    def free(self) -> None:
        """Give all CPUs back."""
        for placement in self._placements:
            placement.free()
