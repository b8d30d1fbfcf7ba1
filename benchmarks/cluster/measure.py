"""Measure the cases of one model one after another on the same network, and interpret the results."""

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
    cores: float
    """The cores that the processes of all hosts use."""
    machine_cores: float
    """The cores in use, including other programs and the kernel's network stack."""
    limit: str
    """What limits the speed: `link`, `processors`, both, `computing`, `turns` or `other programs`.

    `turns`: nothing is fully used; computing and communication wait for each other. `other programs`: unrelated
    programs use most of the processors; measure again without them.
    """


@dataclass(frozen=True)
class Row:
    """One case: its results, or the reason why there are none."""

    case: str
    experiment: Experiment
    figures: Figures | None = None
    skipped: str = ""
    failed: str = ""
    predicted: Prediction | None = None

    @property
    def reason(self) -> str:
        """Why there are no results; "" if there are, or if none were requested."""
        return f"skipped: {self.skipped}" if self.skipped else f"failed: {self.failed}" if self.failed else ""


def alone(experiment: Experiment, seconds: float) -> float:
    """The steps per second of one worker without communication."""
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
    """Simulate one case, without measuring it."""
    experiment = case(name, base)
    reason = refusal(experiment)
    return Row(name, experiment, skipped=reason, predicted=None if reason else predict(experiment))


def run_case(name: str, base: Experiment, hosts: Sequence[Host], seconds: float, single: float) -> Row:
    """Measure one case for about this many seconds; `single` is the rate of one worker without communication."""
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
    """Why this experiment cannot run on this machine; "" if it can."""
    if experiment.system is System.GLOO and find_spec("torch") is None:
        return "torch is not installed"
    return refusal(experiment)


def refusal(experiment: Experiment) -> str:
    """Why Syncline refuses this experiment; "" if it does not."""
    try:
        engine.check(experiment)
    except UsageError as error:
        return str(error)
    return ""


def figures_of(experiment: Experiment, windows: Sequence[Window], single: float) -> Figures:
    """The results of a case, from the measurements of its workers."""
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
    """What limits the speed of a run.

    `link` and `processors` are utilisations, `own` is the run's fraction of the busy processor time, and `linear` its
    fraction of a linear speed-up.
    """
    busy = "processors" if own >= OWN else "other programs"
    full = [name for name, share in (("link", link), (busy, processors)) if share >= FULL]
    return " and ".join(full) or ("computing" if linear >= LINEAR else "turns")


def run_model(
    base: Experiment, cases: Sequence[str], hosts: Sequence[Host], seconds: float, tell: Callable[[str], None]
) -> tuple[float, list[Row]]:
    """Measure all cases of a model; return the rate of one worker without communication, and a row for each case."""
    single = alone(base, min(seconds, 2.0))
    tell(f"{base.model}: one worker without communication makes {single:.2f} steps per second")
    rows = []
    for name in cases:
        expected = predict_case(name, base).predicted  # not during the measurement, since it uses a processor
        row = replace(run_case(name, base, hosts, seconds, single), predicted=expected)
        tell(f"{base.model}, {name}: {outcome(row)}")
        rows.append(row)
    return single, rows


def predict_model(base: Experiment, cases: Sequence[str], tell: Callable[[str], None]) -> tuple[float, list[Row]]:
    """Predict all cases of a model; nothing is measured."""
    rows = []
    for name in cases:
        row = predict_case(name, base)
        tell(f"{base.model}, {name}: {outcome(row)}")
        rows.append(row)
    return 1 / base.seconds, rows


def outcome(row: Row) -> str:
    """A short text that describes a row."""
    found = [row.reason] if row.reason else []
    if row.figures is not None:
        found.append(f"{row.figures.speedup:.2f} times one worker")
    if row.predicted is not None:
        found.append(f"predicted {row.predicted.speedup:.2f}")
    return ", ".join(found)
