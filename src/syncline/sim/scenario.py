"""What is to be simulated, as one value: the file's sections, settled and checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.errors import UsageError
from syncline.sim.compute import Compute, Lognormal
from syncline.sim.dispatch import Dispatch
from syncline.sim.faults import Crash, Fault, Freeze, Join, Slow, Switch
from syncline.sim.network import Links
from syncline.strategy import ServerStrategy, check, check_model

MOST_WORKERS = 1_000_000
MOST_SERVERS = 10_000


@dataclass(frozen=True)
class Cluster:
    """The machines: how many workers, how fast they compute, the links, and how fast a node works through updates."""

    workers: int
    compute: Compute = field(default_factory=Lognormal)
    links: Links | None = None
    apply: float | None = None
    """Bytes per second; None: free."""


@dataclass(frozen=True)
class Scenario:
    """A run: `iterations` of each worker (with `dispatch`, on average)."""

    cluster: Cluster
    strategy: ServerStrategy = ServerStrategy()
    iterations: int = 100
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    dispatch: Dispatch | None = None

    @property
    def worker_numbers(self) -> int:
        """One more than the highest worker number that ever takes part."""
        joining = [fault.worker + 1 for fault in self.faults if isinstance(fault, Join)]
        return max([self.cluster.workers, *joining])

    def check(self) -> None:
        """Refuse what makes no sense."""
        if not 1 <= self.cluster.workers <= MOST_WORKERS:
            raise UsageError(
                "cluster.workers", f"must be at least 1 and at most {MOST_WORKERS:,}, not {self.cluster.workers}"
            )
        if self.iterations < 1:
            raise UsageError("iterations", f"must be at least 1, not {self.iterations}")
        check(self.strategy, self.worker_numbers)
        for number, fault in enumerate(self.faults):
            self._check_fault(f"faults[{number}]", fault, self.faults[:number])

    def _check_fault(self, option: str, fault: Fault, earlier: tuple[Fault, ...]) -> None:
        if not fault.at >= 0:
            raise UsageError(f"{option}.at", f"must be at least 0 seconds, not {fault.at}")
        match fault:
            case Switch(sync=model, server=server):
                if server is not None and not 0 <= server < self.strategy.servers:
                    raise UsageError(
                        f"{option}.server", f"there is no server {server}; {_range(self.strategy.servers)}"
                    )
                check_model(model, self.strategy.mode, self.worker_numbers, f"{option}.sync")
                return
            case Join(worker=worker):
                if worker < self.cluster.workers:
                    raise UsageError(f"{option}.worker", f"worker {worker} is there from the start; use restart")
                if any(isinstance(other, Join) and other.worker == worker for other in earlier):
                    raise UsageError(f"{option}.worker", f"worker {worker} joins twice; use restart the second time")
            case Freeze(duration=duration) if not duration > 0:
                raise UsageError(f"{option}.duration", f"must be above 0 seconds, not {duration}")
            case Slow(factor=factor) if not factor > 0:
                raise UsageError(f"{option}.factor", f"must be above 0, not {factor}")
            case Slow(duration=duration) if duration is not None and not duration > 0:
                raise UsageError(f"{option}.duration", f"must be above 0 seconds, not {duration}")
        if not 0 <= fault.worker < self.worker_numbers:
            raise UsageError(f"{option}.worker", f"there is no worker {fault.worker}; {_range(self.worker_numbers)}")
        if isinstance(fault, (Crash, Freeze)) and fault.detect is not None and not fault.detect >= 0:
            raise UsageError(f"{option}.detect", f"must be at least 0 seconds, not {fault.detect}")


def _range(count: int) -> str:
    return "there is only 0" if count == 1 else f"0 to {count - 1}"
