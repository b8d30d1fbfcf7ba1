"""Makes a plan: predicts every candidate, and searches for the best split into workers and servers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from syncline.codecs import Codec
from syncline.errors import UsageError
from syncline.layout import VALUE_BYTES
from syncline.plan.candidates import (
    HALF,
    SSP,
    Candidate,
    Form,
    exchange,
    overlap_of,
    partitions,
    servers_worth_trying,
    split,
    tree,
)
from syncline.plan.codec_work import FREE, CodecWork, measured_work
from syncline.plan.forecast import Forecast, forecast
from syncline.plan.machines import Machines
from syncline.plan.memory import memory_of
from syncline.plan.model import OPTION, PlannedModel
from syncline.plan.scale_model import SPLIT_MACHINES
from syncline.sim.overlap import Overlap
from syncline.spec import parse

Progress = Callable[[str], None]
"""Called with the name of what is predicted next."""

SHARES = (0.1, 0.25, 0.4, 0.55, 0.75)
"""The first splits: these shares of the machines are servers."""

CLOSE = 0.05
"""Rows that differ by at most this much count as equally fast: predictions are not more exact."""


@dataclass(frozen=True)
class ClusterPlan:
    """The predictions, fastest first."""

    model: PlannedModel
    machines: Machines
    rows: tuple[Forecast, ...]
    splits: Mapping[int, float]
    """For each number of servers that was simulated: the steps per second of all workers."""
    load: float
    """The bytes that a worker would send per second without ranges, as a multiple of what its link carries."""

    @property
    def best(self) -> Forecast:
        """The recommended row.

        It is a run that can be started, sends everything, and fits into memory. Of those that are about as fast as the
        fastest, it is the one with the least staleness.
        """
        fitting = [row for row in self.rows if self.usable(row)]
        sound = [row for row in fitting if row.candidate.lossless] or fitting
        fastest = max(row.rate for row in sound)
        close = [row for row in sound if row.rate >= fastest * (1 - CLOSE)]
        return min(close, key=lambda row: (row.candidate.staleness, -row.rate))

    def usable(self, row: Forecast) -> bool:
        """Whether a row fits into memory, and Syncline can start it on these machines (commands.py)."""
        alone = self.model.recipe is not None and row.candidate.form is not Form.RING
        return row.fits and (row.candidate.joinable or alone)


def make_plan(
    model: PlannedModel,
    machines: Machines,
    overlap: Overlap | None = None,
    progress: Progress = lambda _: None,
    work: Callable[[str], CodecWork] = measured_work,
) -> ClusterPlan:
    """Predict all candidates; `work` gives the processor time of a codec."""
    assert model.step is not None, "the step time must be known"
    if model.layout.size < machines.workers:
        problem = f"has {model.layout.size:,} values, fewer than there are machines ({machines.workers:,})"
        raise UsageError(OPTION, f"{problem}; give a larger model, or fewer machines")
    check_memory(model, machines)
    found, parts = partitions(machines, model.size, model.step, model.layout.size)
    dedicated = best_split(model, machines, overlap, progress)
    rows = [dedicated.best]
    costs: dict[str, CodecWork] = {"dense": FREE}
    for candidate in _candidates(model, machines, overlap, parts, dedicated.best.candidate.servers):
        progress(candidate.label)
        if candidate.codec not in costs:
            costs[candidate.codec] = work(candidate.codec)
        rows.append(forecast(model, machines, candidate, costs[candidate.codec]))
    rows.sort(key=lambda row: (not row.fits, -row.rate))
    plan = ClusterPlan(model, machines, tuple(rows), dedicated.rates, found)
    assert any(map(plan.usable, rows)), "check_memory refuses a model that does not fit"
    return plan


def _candidates(
    model: PlannedModel, machines: Machines, overlap: Overlap | None, parts: int, servers: int
) -> Sequence[Candidate]:
    assert model.step is not None
    small = _encoded_bytes(parse("codec", HALF), model)
    _, fewer = partitions(machines, small, model.step, model.layout.size)
    ring = overlap_of(model, {}, overlap) if model.recipe is None else (overlap or Overlap.BACKWARD)
    return [
        exchange(parts) if parts > 1 else exchange(1, tau="1"),
        exchange(1),
        exchange(fewer, codec=HALF),
        split(servers, model, overlap, SSP),
        *servers_worth_trying(model, overlap),
        tree("chain", machines, model),
        tree("tree:2", machines, model),
        Candidate(Form.RING, overlap=ring),
    ]


def _encoded_bytes(codec: Codec, model: PlannedModel) -> int:
    return codec.size(model.layout.size)


def check_memory(model: PlannedModel, machines: Machines) -> None:
    """Refuse a model that does not fit into a machine, whatever the candidate."""
    if machines.memory is None:
        return
    least = min(
        memory_of(each, model.size, machines.workers)
        for each in (exchange(1), *servers_worth_trying(model, None), Candidate(Form.SPLIT, {}, machines.workers - 1))
    )
    if least > machines.memory:
        needs = f"needs at least {_megabytes(least)} of memory on each machine"
        problem = f"{model.name} has {model.size / VALUE_BYTES:,.0f} values and {needs}, but there are"
        raise UsageError(
            "--memory", f"{problem} {_megabytes(machines.memory)}; use machines with more, or a smaller model"
        )


@dataclass(frozen=True)
class Splits:
    """The splits into workers and servers that were simulated."""

    rows: tuple[Forecast, ...]

    @property
    def best(self) -> Forecast:
        """The split with the most steps per second; of equal ones, that with the fewest servers."""
        return max(self.rows, key=lambda row: (row.fits, row.rate, -row.candidate.servers))

    @property
    def rates(self) -> dict[int, float]:
        return {row.candidate.servers: row.rate for row in sorted(self.rows, key=lambda row: row.candidate.servers)}


def best_split(model: PlannedModel, machines: Machines, overlap: Overlap | None, progress: Progress) -> Splits:
    """Simulate numbers of servers over the whole range, and then the neighbours of the best one."""
    most = machines.workers - 1
    stride = max(1, machines.workers // SPLIT_MACHINES)
    wanted = {1, most, *(max(1, round(most * share)) for share in SHARES)}
    rows: tuple[Forecast, ...] = ()
    while wanted:
        for servers in sorted(wanted):
            progress(f"{servers} of {machines.workers} machines as servers")
            rows = (*rows, forecast(model, machines, split(servers, model, overlap)))
        best = Splits(rows).best.candidate.servers
        wanted = {each for each in (best - stride, best + stride) if 1 <= each <= most} - Splits(rows).rates.keys()
    return Splits(rows)


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.0f} MB" if size >= 1e7 else f"{size / 1e6:,.3g} MB"
