"""Measure the cases of one model one after another on the same network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.cluster import engine
from benchmarks.cluster.device import Device
from benchmarks.cluster.experiment import Experiment, System, case
from benchmarks.cluster.figures import Figures, figures_of, medians_of
from benchmarks.cluster.network import Host
from benchmarks.cluster.predict import Prediction, predict
from benchmarks.cluster.timeline import timeline
from benchmarks.cluster.timeline_plot import draw_timeline

from syncline.errors import RunError, UsageError

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Row:
    """One case: its results, or the reason why there are none."""

    case: str
    experiment: Experiment
    figures: Figures | None = None
    """The medians of the runs."""
    skipped: str = ""
    failed: str = ""
    predicted: Prediction | None = None
    runs: tuple[Figures, ...] = ()
    """The results of each run."""

    @property
    def reason(self) -> str:
        """Why there are no results; "" if there are, or if none were requested."""
        return f"skipped: {self.skipped}" if self.skipped else f"failed: {self.failed}" if self.failed else ""


@dataclass(frozen=True)
class Method:
    """How to measure each case."""

    seconds: float
    """About how long a run lasts."""
    repeat: int = 1
    """How many times all cases are run in turn."""
    picture: Callable[[Experiment, str], Path | None] = lambda _experiment, _case: None
    """The file for the timeline of a case; None: no timeline."""
    note: str = ""
    """What the title of a timeline says in addition."""


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


def run_case(name: str, base: Experiment, hosts: Sequence[Host], method: Method, single: float) -> Row:
    """Measure one case once; `single` is the rate of one worker without communication."""
    experiment = case(name, base)
    reason = why_not(experiment)
    if reason:
        return Row(name, experiment, skipped=reason)
    try:
        figures = _run(name, experiment, hosts, method, single)
    except RunError as error:
        return Row(name, experiment, failed=str(error))
    return Row(name, experiment, figures, runs=(figures,))


def _run(name: str, experiment: Experiment, hosts: Sequence[Host], method: Method, single: float) -> Figures:
    picture = method.picture(experiment, name)
    if picture is None:
        return figures_of(experiment, engine.run(experiment, hosts, method.seconds), single)
    with TemporaryDirectory(prefix="syncline-cluster-") as folder:
        windows = engine.run(experiment, hosts, method.seconds, Path(folder))
        draw_timeline(timeline(name, experiment, windows, Path(folder)), picture, method.note)
    return figures_of(experiment, windows, single)


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


def run_model(
    base: Experiment, cases: Sequence[str], hosts: Sequence[Host], method: Method, tell: Tell, done: Tell
) -> tuple[float, list[Row]]:
    """Measure all cases of a model; return the rate of one worker without communication, and a row for each case.

    `done` is called after each run, `tell` for other messages.
    """
    single = alone(base, min(method.seconds, 2.0))
    tell(f"{base.model}: one worker without communication makes {single:.2f} steps per second")
    expected = {name: predict_case(name, base).predicted for name in cases}  # not while a run is measured
    runs: dict[str, list[Row]] = {name: [] for name in cases}
    for number in range(method.repeat):
        turn = f" ({number + 1} of {method.repeat})" if method.repeat > 1 else ""
        for name in cases:
            row = replace(run_case(name, base, hosts, method, single), predicted=expected[name])
            done(f"{base.model}, {name}{turn}: {outcome(row)}")
            runs[name].append(row)
    return single, [summary(rows) for rows in runs.values()]


def summary(rows: Sequence[Row]) -> Row:
    """One row for several runs of a case: the medians, and the reason of the first run that failed."""
    found = tuple(row.figures for row in rows if row.figures is not None)
    failed = next((row.failed for row in rows if row.failed), "")
    figures = medians_of(rows[0].experiment, found) if found else None
    return replace(rows[0], figures=figures, failed=failed, runs=found)


def predict_model(base: Experiment, cases: Sequence[str], tell: Tell) -> tuple[float, list[Row]]:
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
