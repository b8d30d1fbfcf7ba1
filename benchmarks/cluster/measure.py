"""The cases of one model, one after another on the same network, and what their figures mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from statistics import mean
from time import monotonic

from benchmarks.cluster import engine
from benchmarks.cluster.device import Device
from benchmarks.cluster.experiment import Experiment, System, case
from benchmarks.cluster.network import Host
from benchmarks.cluster.predict import Prediction, cores, predict
from benchmarks.cluster.window import Window

from syncline.errors import RunError, UsageError

FULL = 0.85
"""From this share on a link, or the processors, count as what limits."""

OWN = 0.5
"""Below this share of the busy processors it is other programs that keep them busy."""

LINEAR = 0.9
"""From this share of the hosts on, a speed-up counts as limited by nothing but computing."""


@dataclass(frozen=True)
class Figures:
    """What was measured in one case."""

    steps: int
    """Of each worker."""
    iterations_per_second: float
    """Of all workers together; of each, the median over the chunks of its steps."""
    speedup: float
    """The same as a multiple of one worker that computes alone."""
    bytes_per_iteration: float
    """Sent by a host's link, on average over the hosts."""
    most_bytes_per_iteration: float
    """Sent or received, whichever is more, by the host with the most."""
    utilisation: float
    """Of the busiest link, in its busier direction, as a share of the rate."""
    cores: float
    """Busy with the processes of all hosts."""
    machine_cores: float
    """Busy with anything, other programs and the kernel's network included."""
    limit: str
    """`link`, `processors`, both, `computing`, or `turns`: nothing is full, and one waits for the other.

    `other programs`: the processors are full, mostly with what is not part of this; measure again without them.
    """


@dataclass(frozen=True)
class Row:
    """One case: its figures, or why there are none."""

    case: str
    experiment: Experiment
    figures: Figures | None = None
    skipped: str = ""
    failed: str = ""
    predicted: Prediction | None = None

    @property
    def reason(self) -> str:
        """Why there are no figures; nothing, if there are, or if none were asked for."""
        return f"skipped: {self.skipped}" if self.skipped else f"failed: {self.failed}" if self.failed else ""


def alone(experiment: Experiment, seconds: float) -> float:
    """Steps per second of one worker that computes and talks to nobody."""
    device = Device()
    begun = monotonic()
    steps = 0
    while steps < 3 or monotonic() < begun + seconds:
        device.begin()
        for _, _, backward in reversed(experiment.pauses):
            device.follow(backward)
        for _, forward, _ in experiment.pauses:
            device.follow(forward)
        device.wait()
        steps += 1
    return steps / (monotonic() - begun)


def predict_case(name: str, base: Experiment) -> Row:
    """What the simulator says of one case; nothing is run."""
    experiment = case(name, base)
    reason = refusal(experiment)
    return Row(name, experiment, skipped=reason, predicted=None if reason else predict(experiment))


def run_case(name: str, base: Experiment, hosts: Sequence[Host], seconds: float, single: float) -> Row:
    """Measure one case for about so long; `single`: the rate of one worker alone."""
    experiment = case(name, base)
    reason = why_not(experiment)
    if reason:
        return Row(name, experiment, skipped=reason)
    try:
        windows = engine.run(experiment, hosts, seconds)
    except RunError as error:
        return Row(name, experiment, failed=str(error))
    return Row(name, experiment, figures_of(experiment, windows, single))


def why_not(experiment: Experiment) -> str:
    """Why this cannot be run here; nothing, if it can."""
    if experiment.system is System.GLOO and find_spec("torch") is None:
        return "torch is not installed"
    return refusal(experiment)


def refusal(experiment: Experiment) -> str:
    """Why Syncline refuses this; nothing, if it does not."""
    try:
        engine.check(experiment)
    except UsageError as error:
        return str(error)
    return ""


def figures_of(experiment: Experiment, windows: Sequence[Window], single: float) -> Figures:
    """What the workers' notes amount to."""
    rate = sum(window.rate for window in windows)
    utilisation = max(max(w.sent, w.received) / w.seconds for w in windows) / experiment.rate
    machine = max(w.machine_seconds / w.seconds for w in windows)
    busy = sum(w.processor_seconds / w.seconds for w in windows)
    return Figures(
        steps=windows[0].steps,
        iterations_per_second=rate,
        speedup=rate / single,
        bytes_per_iteration=mean(w.sent / w.steps for w in windows),
        most_bytes_per_iteration=max(max(w.sent, w.received) / w.steps for w in windows),
        utilisation=utilisation,
        cores=busy,
        machine_cores=machine,
        limit=limit_of(utilisation, machine / cores(), busy / machine, rate / single / experiment.hosts),
    )


def limit_of(link: float, processors: float, own: float, linear: float) -> str:
    """What holds a run back, by the shares of the link and the processors that are in use.

    `own`: its share of the busy processors; `linear`: its share of a linear speed-up.
    """
    busy = "processors" if own >= OWN else "other programs"
    full = [name for name, share in (("link", link), (busy, processors)) if share >= FULL]
    return " and ".join(full) or ("computing" if linear >= LINEAR else "turns")


def run_model(
    base: Experiment, cases: Sequence[str], hosts: Sequence[Host], seconds: float, tell: Callable[[str], None]
) -> tuple[float, list[Row]]:
    """All cases of a model in turn; the rate of one worker alone, and a row for each."""
    single = alone(base, min(seconds, 2.0))
    tell(f"{base.model}: one worker alone makes {single:.2f} steps a second")
    rows = []
    for name in cases:
        expected = predict_case(name, base).predicted  # before it is measured, since that takes a processor
        row = replace(run_case(name, base, hosts, seconds, single), predicted=expected)
        tell(f"{base.model}, {name}: {outcome(row)}")
        rows.append(row)
    return single, rows


def predict_model(base: Experiment, cases: Sequence[str], tell: Callable[[str], None]) -> tuple[float, list[Row]]:
    """The same without a network, and with nothing but predictions."""
    rows = []
    for name in cases:
        row = predict_case(name, base)
        tell(f"{base.model}, {name}: {outcome(row)}")
        rows.append(row)
    return 1 / base.seconds, rows


def outcome(row: Row) -> str:
    """A row in a few words."""
    found = [row.reason] if row.reason else []
    if row.figures is not None:
        found.append(f"{row.figures.speedup:.2f} times one worker")
    if row.predicted is not None:
        found.append(f"predicted {row.predicted.speedup:.2f}")
    return ", ".join(found)
