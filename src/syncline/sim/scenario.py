"""What to simulate, as one value: the sections of an experiment file, resolved and checked."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.errors import UsageError
from syncline.sim.compute import FACTORS, Compute, Lognormal, Trace
from syncline.sim.dispatch import Dispatch
from syncline.sim.faults import (
    AddServer,
    Crash,
    CrashServer,
    Fault,
    Freeze,
    Join,
    RemoveServer,
    Restart,
    Slow,
    Switch,
)
from syncline.sim.network import Links
from syncline.sim.node_faults import NODE_FAULTS
from syncline.sim.overlap import Overlap
from syncline.sim.server_crashes import check_crash
from syncline.sim.server_moves import numbers_to, placements
from syncline.sim.stop import StopAt
from syncline.strategies.protocol import Strategy
from syncline.strategies.table import DEFAULT, strategy_class
from syncline.sync import SyncModel, asks_again
from syncline.units import MOST, MOST_SECONDS, MOST_SEED, real, seconds, whole

MOST_WORKERS = 100_000
"""A simulated worker takes about 25 kB, so these take about 2.5 GB."""


@dataclass(frozen=True)
class Cluster:
    """The machines: how many workers, how fast they compute, the links, and how fast servers apply updates."""

    workers: int
    compute: Compute = field(default_factory=Lognormal)
    links: Links | None = None
    apply: float | None = None
    """The bytes of updates that a server applies per second; None: applying takes no time."""
    colocated: bool = False
    """If true, worker k and server k are on one host and share its link and its processor."""
    handling: float = 0.0
    """Seconds that a node's processor takes for each incoming message."""
    delay_cost: float = 0.0
    """Seconds that answering a delayed pull takes the server, for each bucket."""


@dataclass(frozen=True)
class Scenario:
    """A run in which each worker does `iterations` iterations (with `dispatch`, on average).

    If `stop` has `updates` or `seconds`, `iterations` has no effect.
    """

    cluster: Cluster
    strategy: Strategy = field(default_factory=strategy_class(DEFAULT))
    iterations: int = 100
    seed: int = 0
    faults: tuple[Fault, ...] = ()
    dispatch: Dispatch | None = None
    overlap: Overlap = Overlap.NONE
    central: bool = False
    """For comparison with systems before FluentPS: a central scheduler decides when the servers answer."""
    stop: StopAt = StopAt()
    """When the run ends earlier, or instead; see `StopAt`."""

    @property
    def worker_numbers(self) -> int:
        """One more than the highest worker number of the run, joiners included."""
        joining = [fault.worker + 1 for fault in self.faults if isinstance(fault, Join)]
        return max([self.cluster.workers, *joining])

    def check(self) -> None:
        """Raise `UsageError` for an invalid setting or combination."""
        whole(self.cluster.workers, "cluster.workers", 1, MOST_WORKERS)
        whole(self.worker_numbers, "faults", 1, MOST_WORKERS, name="with the workers that join, the number of workers")
        each = f"of each of {self.worker_numbers} workers"
        whole(self.iterations, "iterations", 1, MOST // self.worker_numbers, name=each * (self.worker_numbers > 1))
        whole(self.seed, "seed", 0, MOST_SEED)
        self._check_stop()
        self.strategy.check(self.worker_numbers)
        self._check_machines()
        for number, fault in enumerate(self.faults):
            self._check_fault(f"faults[{number}]", fault, self.faults[:number])
        for _ in placements(self):
            pass

    def _check_stop(self) -> None:
        self.stop.check()
        compute = self.cluster.compute
        if self.dispatch is not None or not self.stop.replaces_iterations:
            return
        if isinstance(compute, Trace):
            raise UsageError(
                "stop", "a trace of compute times has one column per iteration; remove stop.updates and stop.seconds"
            )
        if self.stop.seconds is not None and isinstance(compute, Lognormal):
            self._check_seconds(self.stop.seconds, compute.expected)

    def _check_seconds(self, end: float, compute: float) -> None:
        """Refuse an end that the run would reach only after more iterations than are allowed."""
        step = compute + (0.0 if self.cluster.links is None else 2 * self.cluster.links.latency)
        if not step:
            raise UsageError("stop.seconds", "would never be reached: cluster.compute.mean is 0; use stop.updates")
        if end * self.cluster.workers > MOST * step and self.stop.updates is None:
            problem = f"{end:g} virtual seconds, at {step:g} s per iteration, are more than {MOST:,} iterations"
            raise UsageError("stop.seconds", f"{problem} of all workers together; use fewer, or stop.updates")

    def _check_machines(self) -> None:
        """Check the settings of the machines, also against each other."""
        links = self.cluster.links
        if links is not None:
            real(links.latency, "network.latency")
            if not links.bandwidth > 0:
                raise UsageError("network.bandwidth", f"must be above 0 bytes per second, not {links.bandwidth!r}")
        if self.cluster.colocated and self.cluster.links is None:
            raise UsageError(
                "cluster.colocated",
                "makes a worker and a server share a link, but this run has no links; set network.bandwidth as well",
            )
        if self.strategy.free_running:
            self._check_free_running()
        if self.dispatch is not None and self.strategy.timed:
            about = f"with strategy {self.strategy.name()!r} {self.strategy.timed}"
            raise UsageError("dispatch", f"has no clock, and {about}; remove one")
        if self.strategy.has_backups:
            self._check_backups()
        if self.central:
            self._check_central()
        if self.dispatch is not None and any(
            isinstance(asks_again(model), float) for model in getattr(self.strategy, "sync", ())
        ):
            raise UsageError(
                "strategy.sync", "has a model that asks again after a time, but [dispatch] has no clock; remove one"
            )
        if self.dispatch is not None and self.overlap is not Overlap.NONE:
            raise UsageError(
                "strategy.overlap", "cannot be used with [dispatch], which has no clock; remove one of them"
            )

    def _check_backups(self) -> None:
        """Refuse what says when answers leave, because with backups something else does."""
        for key, given in (
            ("strategy.central", self.central),
            ("network.delay_cost", self.cluster.delay_cost),
            ("dispatch", self.dispatch is not None),
        ):
            if given:
                raise UsageError("strategy.backups", f"cannot be used with {key}; leave one of them out")

    def _check_free_running(self) -> None:
        """Refuse what is about servers, or about waiting for their answers."""
        about = f"strategy {self.strategy.name()!r}"
        if self.overlap is not Overlap.NONE:
            problem = f"{about} sends and receives while workers compute, whatever this says; leave it out"
            raise UsageError("strategy.overlap", problem)
        for key, given in (
            ("strategy.central", self.central),
            ("cluster.colocated", self.cluster.colocated),
            ("network.apply", self.cluster.apply is not None),
            ("network.delay_cost", self.cluster.delay_cost),
        ):
            if given:
                raise UsageError(key, f"is about servers, and {about} has none; leave it out")

    def _check_central(self) -> None:
        if not self.strategy.synchronous:
            raise UsageError(
                "strategy.central", 'works only with sync = "bsp"; use that sync model, or remove strategy.central'
            )
        if self.dispatch is not None or not all(isinstance(fault, Slow) for fault in self.faults):
            raise UsageError("strategy.central", "cannot be used with [dispatch], nor with faults other than 'slow'")

    def _check_switch(self, option: str, model: SyncModel) -> None:
        try:
            self.strategy.changed({"sync": model}, self.worker_numbers)
        except UsageError as error:
            raise UsageError(f"{option}.sync", error.problem) from None

    def _check_fault(self, option: str, fault: Fault, earlier: tuple[Fault, ...]) -> None:
        seconds(fault.at, f"{option}.at")
        if isinstance(fault, Slow):
            real(fault.factor, f"{option}.factor", *FACTORS)
        match fault:
            case Switch(sync=model):
                self._check_switch(option, model)
                return
            case AddServer() | RemoveServer():
                return
            case CrashServer():
                check_crash(self, option, fault)
                return
            case _ if isinstance(fault, NODE_FAULTS):
                return  # the world checks them, when it knows the tree
            case Join(worker=worker):
                if worker < self.cluster.workers:
                    raise UsageError(f"{option}.worker", f"worker {worker} takes part from the start; use restart")
                if any(isinstance(other, Join) and other.worker == worker for other in earlier):
                    raise UsageError(f"{option}.worker", f"worker {worker} joins twice; use restart the second time")
            case Freeze(duration=(int() | float()) as seen) | Slow(duration=(int() | float()) as seen) if (
                not 0 < seen <= MOST_SECONDS
            ):
                limit = f"above 0 seconds and at most {MOST_SECONDS:,.0f}"
                raise UsageError(f"{option}.duration", f"must be {limit}, not {seen}")
        if isinstance(fault, Join | Restart) and not self.strategy.takes_joiners:
            problem = f"with strategy {self.strategy.name()!r}, workers cannot join a run that has started"
            raise UsageError(option, problem)
        worker = getattr(fault, "worker", 0)
        if not 0 <= worker < self.worker_numbers:
            raise UsageError(f"{option}.worker", f"there is no worker {worker}; {numbers_to(self.worker_numbers)}")
        if isinstance(fault, Crash | Freeze) and fault.detect is not None:
            seconds(fault.detect, f"{option}.detect")
