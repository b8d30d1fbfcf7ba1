"""What is to be simulated, as one value: the file's sections, settled and checked."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from syncline.errors import UsageError
from syncline.sim.compute import Compute, Lognormal
from syncline.sim.dispatch import Dispatch
from syncline.sim.faults import AddServer, Crash, Fault, Freeze, Join, RemoveServer, Slow, Switch
from syncline.sim.network import Links
from syncline.sim.overlap import Overlap
from syncline.spec import write
from syncline.strategies.server.strategy import ServerStrategy, check, check_model, is_bsp
from syncline.sync import Release, SyncModel

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
    colocated: bool = False
    """Worker k and server k are on one host, and share its link and its processor."""
    handling: float = 0.0
    """Seconds that a node's processor takes for each message that comes in."""
    delay_cost: float = 0.0
    """Seconds of its server's work that answering a delayed pull costs, bucket by bucket."""


@dataclass(frozen=True)
class Scenario:
    """A run: `iterations` of each worker (with `dispatch`, on average)."""

    cluster: Cluster
    strategy: ServerStrategy = ServerStrategy()
    iterations: int = 100
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    dispatch: Dispatch | None = None
    overlap: Overlap = Overlap.NONE
    central: bool = False
    """A central scheduler says when all may be answered, as in systems older than FluentPS: for comparison."""

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
        self._check_machines()
        for number, fault in enumerate(self.faults):
            self._check_fault(f"faults[{number}]", fault, self.faults[:number])
        for _ in self.placements():
            pass

    def _check_machines(self) -> None:
        """What the machines do must mean something."""
        if self.cluster.colocated and self.cluster.links is None:
            raise UsageError(
                "cluster.colocated",
                "says that a worker and a server share a link, but there is none; give network.bandwidth as well",
            )
        if self.central:
            self._check_central()
        if self.dispatch is not None and self.overlap is not Overlap.NONE:
            raise UsageError(
                "strategy.overlap", "makes no sense with [dispatch], which has no clock; leave one of them out"
            )

    def _check_central(self) -> None:
        if not all(is_bsp(model) for model in self.strategy.sync):
            raise UsageError(
                "strategy.central", "a central scheduler is simulated under bsp only; leave one of them out"
            )
        if self.dispatch is not None or not all(isinstance(fault, Slow) for fault in self.faults):
            raise UsageError("strategy.central", "makes no sense with [dispatch], nor with faults other than 'slow'")

    def placements(self) -> Iterator[tuple[str, frozenset[int]]]:
        """Which servers there are after each fault that changes it, in order of time; senseless ones are refused."""
        models = {server: (model, self.strategy.release) for server, model in enumerate(self.strategy.sync)}
        following = len(models)
        in_time = sorted(enumerate(self.faults), key=lambda each: each[1].at)
        for option, fault in ((f"faults[{number}]", fault) for number, fault in in_time):
            match fault:
                case Switch(sync=model, server=server, release=release):
                    if server is not None and server not in models:
                        raise UsageError(f"{option}.server", f"there is no server {server}; {_listed(models)}")
                    for each in models if server is None else (server,):
                        models[each] = (model, release or models[each][1])
                case AddServer():
                    self._check_moves(option, models)
                    models[following] = next(iter(models.values()))
                    following += 1
                    yield option, frozenset(models)
                case RemoveServer(server=server):
                    self._check_moves(option, {})
                    if server not in models:
                        raise UsageError(f"{option}.server", f"there is no server {server}; {_listed(models)}")
                    if len(models) == 1:
                        raise UsageError(
                            f"{option}.server", f"{server} is the last server; somebody must hold the model"
                        )
                    del models[server]
                    yield option, frozenset(models)

    def _check_moves(self, option: str, models: Mapping[int, tuple[SyncModel, Release]]) -> None:
        if any(each != next(iter(models.values())) for each in models.values()):
            those = ", ".join(f"{server}: {write(model)} {release}" for server, (model, release) in models.items())
            problem = f"a new server takes the sync model of the others, but they have several ({those})"
            raise UsageError(option, f"{problem}; give one to all of them")

    def _check_fault(self, option: str, fault: Fault, earlier: tuple[Fault, ...]) -> None:
        if not fault.at >= 0:
            raise UsageError(f"{option}.at", f"must be at least 0 seconds, not {fault.at}")
        match fault:
            case Switch(sync=model):
                check_model(model, self.strategy.mode, self.worker_numbers, f"{option}.sync")
                return
            case AddServer() | RemoveServer():
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


def _listed(servers: Collection[int]) -> str:
    if set(servers) == set(range(len(servers))):
        return _range(len(servers))
    numbers = ", ".join(map(str, sorted(servers)))
    return f"there is only {numbers}" if len(servers) == 1 else f"there are {numbers}"


def _range(count: int) -> str:
    return "there is only 0" if count == 1 else f"0 to {count - 1}"
