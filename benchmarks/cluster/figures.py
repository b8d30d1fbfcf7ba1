"""The results of a case, worked out from the measurements of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median

from benchmarks.cluster.experiment import Experiment
from benchmarks.cluster.predict import cores
from benchmarks.cluster.window import Window

FULL = 0.85
"""A link, or the processors, count as the limit from this utilisation on."""

OWN = 0.5
"""If the benchmark uses less than this fraction of the busy processor time, other programs count as the limit."""

LINEAR = 0.9
"""From this fraction of a linear speed-up on, computing counts as the limit."""


@dataclass(frozen=True)
class Figures:
    """The measured results of one case."""

    steps: int
    """The steps of each worker."""
    iterations_per_second: float
    """The sum over all workers; for each worker, the median over the chunks of its steps."""
    speedup: float
    """The same, relative to one worker without communication."""
    bytes_per_iteration: float
    """The bytes that a host's link sends, averaged over the hosts."""
    most_bytes_per_iteration: float
    """The bytes that the busiest host sends or receives, whichever is more."""
    utilisation: float
    """The utilisation of the busiest link in its busier direction, as a fraction of the rate."""
    exchanging: float | None
    """The same, but only from a worker's first update to the end of its exchange; None: see `exchanging_of`."""
    cores: float
    """The cores that the processes of all hosts use."""
    machine_cores: float
    """The cores in use, including other programs and the kernel's network stack."""
    limit: str
    """What limits the speed: `link`, `processors`, both, `computing`, `turns` or `other programs`.

    `turns`: nothing is fully used; computing and communication wait for each other. `other programs`: unrelated
    programs use most of the processors; measure again without them.
    """
    partitions: int = 0
    """The number of ranges into which workers cut the model; 0: the strategy has none."""


def figures_of(experiment: Experiment, windows: Sequence[Window], single: float) -> Figures:
    """The results of a case, from the measurements of its workers."""
    rate = sum(window.rate for window in windows)
    utilisation = max(max(w.sent, w.received) / w.seconds for w in windows) / experiment.rate
    exchanging = exchanging_of(experiment, windows)
    machine = max(w.machine_seconds / w.seconds for w in windows)
    busy = sum(w.processor_seconds / w.seconds for w in windows)
    return Figures(
        steps=windows[0].steps,
        iterations_per_second=rate,
        speedup=rate / single,
        bytes_per_iteration=mean(w.sent / w.steps for w in windows),
        most_bytes_per_iteration=max(max(w.sent, w.received) / w.steps for w in windows),
        utilisation=utilisation,
        exchanging=exchanging,
        cores=busy,
        machine_cores=machine,
        limit=limit_of(
            max(utilisation, exchanging or 0.0), machine / cores(), busy / machine, rate / single / experiment.hosts
        ),
        partitions=windows[0].partitions,
    )


def exchanging_of(experiment: Experiment, windows: Sequence[Window]) -> float | None:
    """The utilisation of the busiest link from a worker's first update to the end of its exchange, in all steps.

    None if a step may begin before the exchange of the step before it has ended.
    """
    if not experiment.lockstep:
        return None
    return max(_while_exchanging(window) for window in windows) / experiment.rate


def _while_exchanging(window: Window) -> float:
    """Bytes per second on the link, in its busier direction, while the worker exchanges."""
    sent = sum(step.carried.sent for step in window.parts)
    received = sum(step.carried.received for step in window.parts)
    seconds = sum(step.exchanged - step.first for step in window.parts)
    return max(sent, received) / seconds


def medians_of(experiment: Experiment, runs: Sequence[Figures]) -> Figures:
    """The median of each figure; what limits the speed follows from the medians."""

    def middle(name: str) -> float:
        return float(median(getattr(run, name) for run in runs))

    names = ("iterations_per_second", "speedup", "bytes_per_iteration", "most_bytes_per_iteration")
    others = ("utilisation", "cores", "machine_cores")
    found = replace(runs[0], **{name: middle(name) for name in (*names, *others)})  # type: ignore[arg-type]
    if found.exchanging is not None:
        found = replace(found, exchanging=middle("exchanging"))
    shares = found.machine_cores / cores(), found.cores / found.machine_cores
    link = max(found.utilisation, found.exchanging or 0.0)
    return replace(found, limit=limit_of(link, *shares, found.speedup / experiment.hosts))


def limit_of(link: float, processors: float, own: float, linear: float) -> str:
    """What limits the speed of a run.

    `link` and `processors` are utilisations (of the link: of the whole step or while it exchanges, if that is known and
    larger), `own` is the run's fraction of the busy processor time, and `linear` its
    fraction of a linear speed-up.
    """
    busy = "processors" if own >= OWN else "other programs"
    full = [name for name, share in (("link", link), (busy, processors)) if share >= FULL]
    return " and ".join(full) or ("computing" if linear >= LINEAR else "turns")
