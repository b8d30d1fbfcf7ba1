"""A chart of when each worker computed and waited, and how stale the updates were."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from syncline.errors import UsageError
from syncline.sim.outcome import Outcome

COLOURS = {"compute": "#3b6ea5", "wait": "#e8a33d"}
LABELS = {"compute": "computing", "wait": "waiting for other workers (delayed pull)"}
MOST_WORKERS = 48
_BELOW = 2.2
"""The height of the chart of staleness, in inches."""

MADE_BY = {"png": {"Software": "made by syncline"}, "svg": {"Creator": "made by syncline"}}
MADE_BY["pdf"] = MADE_BY["svg"]
"""Metadata of a picture, by format. By these words a later command knows that it may overwrite the picture."""

_FORMATS = (".png", ".svg", ".pdf")


def check_plot(path: Path) -> None:
    """Refuse a chart that could not be drawn, before the run."""
    if path.suffix.lower() not in _FORMATS:
        raise UsageError("--plot", f"cannot draw {path.name!r}; its name must end in one of: {', '.join(_FORMATS)}")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError("--plot", "needs matplotlib; install it with: pip install matplotlib") from None


def plot(outcome: Outcome, path: Path, form: str = "png") -> None:
    """Draw a run that recorded its spans: one row per worker, from the start to the last answer; below, staleness."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    spans, bins = outcome.spans, outcome.report["staleness_histogram"]
    assert spans is not None, "the world did not record spans"
    workers = sorted({span.worker for span in spans})
    shown = workers[:MOST_WORKERS]
    height = 1.6 + 0.28 * len(shown)
    curve = outcome.report.get("staleness_curve")
    below = [_draw_staleness] * bool(bins) + [_draw_curve] * bool(curve)
    figure = Figure(figsize=(11, height + _BELOW * len(below)), layout="constrained")
    FigureCanvasAgg(figure)
    ratios = (height, *[_BELOW] * len(below))
    parts: Any = figure.subplots(len(ratios), 1, height_ratios=ratios) if below else (figure.add_subplot(),)
    axes = parts[0]
    bars: dict[tuple[int, str], list[tuple[float, float]]] = defaultdict(list)
    for span in spans:
        bars[span.worker, span.what].append((span.start, span.stop - span.start))
    row = {worker: place for place, worker in enumerate(shown)}
    for (worker, what), pieces in bars.items():
        if worker in row:
            axes.broken_barh(
                pieces, (row[worker] - 0.4, 0.8), facecolors=COLOURS[what], edgecolor="white", linewidth=0.2
            )
    axes.set_yticks(range(len(shown)), [f"worker {worker}" for worker in shown])
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_xlim(0, outcome.virtual_seconds or 1)
    axes.set_xlabel("virtual seconds (white: messages in flight, or worker done)")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(_title(outcome, len(workers)), loc="left", fontsize=10)
    legend = [Patch(color=COLOURS[what], label=LABELS[what]) for what in COLOURS]
    figure.legend(handles=legend, loc="outside lower center", ncols=len(legend), frameon=False)
    for draw, part in zip(below, parts[1:], strict=True):
        draw(part, outcome.report)
    figure.savefig(path, dpi=120, format=form, metadata=MADE_BY[form])


def _draw_staleness(axes: Any, report: Mapping[str, Any]) -> None:
    """A bar for each staleness, or range of it: how many updates had it."""
    bins = report["staleness_histogram"]
    spots = [first for first, _, _ in bins]
    widths = [0.9 * (last - first + 1) for first, last, _ in bins]
    axes.bar(spots, [updates for _, _, updates in bins], widths, align="edge", color=COLOURS["compute"])
    axes.set_xlabel("staleness: versions between the parameters that an update was computed from and its application")
    axes.set_ylabel("updates of a bucket")
    axes.spines[["top", "right"]].set_visible(False)
    words = f"staleness: mean {report['staleness_mean']:.3g}, largest {report['staleness_max']:,}"
    axes.set_title(words, loc="left", fontsize=10)


def _draw_curve(axes: Any, report: Mapping[str, Any]) -> None:
    """Over time: how many updates a replica of a tree lacks, on average."""
    times, lacking = zip(*report["staleness_curve"], strict=True)
    axes.plot(times, lacking, color=COLOURS["compute"])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("virtual seconds, until all replicas agree")
    axes.set_ylabel("updates lacking")
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title("staleness of the nodes: updates that a replica lacks, on average", loc="left", fontsize=10)


def _title(outcome: Outcome, workers: int) -> str:
    strategy = outcome.scenario.strategy
    cut = f", the first {MOST_WORKERS} shown" if workers > MOST_WORKERS else ""
    return (
        f"{strategy.title}: {workers} workers{cut}, "
        f"{outcome.virtual_seconds:.3g} s, {outcome.delayed_pulls} delayed pulls, "
        f"{outcome.waiting_seconds:.3g} s waited"
    )
