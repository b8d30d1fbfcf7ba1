"""A plot of the speed-ups: a panel for each model, a bar for each case, a diamond for the prediction."""

from __future__ import annotations

from pathlib import Path

from benchmarks.cluster.experiment import System
from benchmarks.cluster.measure import Row
from benchmarks.cluster.report import Report, link_words

OURS, THEIRS, LINES, MARK = "#3b6ea5", "#e8a33d", "#777777", "#222222"


def plot(report: Report, path: Path) -> None:
    """Draw the plot; a case without results shows the reason."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    models = list(report.alone)
    most = max(sum(row.experiment.model == model for row in report.rows) for model in models)
    figure = Figure(figsize=(2.4 + 4.2 * len(models), 1.8 + 0.36 * most), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        rows = [row for row in report.rows if row.experiment.model == model]
        _panel(axes, model, rows, report.hosts)
    slower = f", everything {report.slower:g} times slower" if report.slower != 1 else ""
    figure.suptitle(f"Steps per second as a multiple of one worker\n{link_words(report)}{slower}", fontsize=11)
    measured = "workers sleep instead of computing, and all hosts share the cores of one machine"
    below = measured if report.measured else "nothing was measured"
    figure.supxlabel(f"{below}; diamonds: predicted by the simulator", fontsize=8, color=LINES)
    figure.savefig(path, dpi=120)


def _panel(axes: object, model: str, rows: list[Row], hosts: int) -> None:
    from matplotlib.axes import Axes

    assert isinstance(axes, Axes)
    for place, row in enumerate(rows):
        figures = row.figures
        if row.predicted is not None:
            axes.plot(row.predicted.speedup, place, marker="D", markersize=5, color=MARK, clip_on=False, zorder=3)
        if figures is None:
            text = row.reason.partition(":")[0] or ("" if row.predicted is None else f"{row.predicted.speedup:.2f}")
            axes.text(0.05, place, text, va="center", fontsize=8, color=LINES)
            continue
        colour = THEIRS if row.experiment.system is System.GLOO else OURS
        axes.barh(place, figures.speedup, color=colour)
        text = f"{figures.speedup:.2f}   link {figures.utilisation:.0%}"
        end = max(figures.speedup, 0.0 if row.predicted is None else row.predicted.speedup + 0.05)
        axes.text(end + 0.05, place, text, va="center", fontsize=8)
    axes.axvline(1, color=LINES, linewidth=0.8, linestyle=":")
    axes.axvline(hosts, color=LINES, linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row.case for row in rows])
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, hosts * 1.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_title(model, loc="left", fontsize=10)
