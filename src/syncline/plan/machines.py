"""The machines of a plan, all alike, and what they are assumed to do."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.errors import UsageError
from syncline.sim.tcp_links import GOODPUT, HANDLING
from syncline.units import whole

MOST_MACHINES = 1024

APPLY = 2e9
"""The bytes of updates per second that a server adds up, if the user does not say."""


@dataclass(frozen=True)
class Machines:
    """How many machines, their links and their processors."""

    workers: int
    """The number of machines. Each trains, except where a candidate makes some of them servers."""
    bandwidth: float
    """The rate of each machine's link in each direction, in bytes per second."""
    latency: float = 0.0
    """Seconds from one machine to another."""
    apply: float = APPLY
    handling: float = HANDLING
    """Processor seconds per message."""
    memory: int | None = None
    """The bytes of memory of a machine; None: unknown."""

    @property
    def payload_rate(self) -> float:
        """The bytes of values per second that TCP carries over a link."""
        return self.bandwidth * GOODPUT

    def check(self) -> None:
        if self.workers == 1:
            raise UsageError("--workers", "is 1, and one machine has nobody to exchange updates with; give at least 2")
        whole(self.workers, "--workers", 2, MOST_MACHINES)
