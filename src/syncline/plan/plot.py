"""A picture of a plan: how fast each candidate is and what limits it, and how fast each split is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from syncline.plan.advice import figure
from syncline.plan.forecast import COMPUTE, Forecast
from syncline.plan.planner import ClusterPlan
from syncline.sim.plot import MADE_BY

COLOURS = {"computing": "#3b6ea5", "link": "#e8a33d", "processor": "#a33d3d", "latency": "#7d7d7d"}
UNFIT = "#dddddd"


def draw_plan(plan: ClusterPlan, path: Path, form: str = "png") -> None:
    """Draw one bar per row, the fastest at the top; below, the splits."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    height = 1.2 + 0.34 * len(plan.rows)
    figure = Figure(figsize=(10, height + 2.6), layout="constrained")
    FigureCanvasAgg(figure)
    bars, splits = figure.subplots(2, 1, height_ratios=(height, 2.2))
    _draw_rows(bars, plan)
    _draw_splits(splits, plan)
    used = dict.fromkeys(_kind(row) for row in plan.rows if row.fits)
    legend = [Patch(color=COLOURS[kind], label=f"limit: {kind}") for kind in used]
    figure.legend(handles=legend, loc="outside lower center", ncols=max(1, len(legend)), frameon=False)
    figure.savefig(path, dpi=120, format=form, metadata=MADE_BY[form])


def _kind(row: Forecast) -> str:
    return COMPUTE if row.limit == COMPUTE else next(kind for kind in COLOURS if kind in row.limit)


def _draw_rows(axes: Any, plan: ClusterPlan) -> None:
    batch = plan.model.batch or 1
    rates = [row.rate * batch for row in plan.rows]
    colours = [COLOURS[_kind(row)] if row.fits else UNFIT for row in plan.rows]
    axes.barh(range(len(rates)), rates, color=colours)
    axes.set_yticks(range(len(rates)), [row.candidate.label for row in plan.rows])
    axes.invert_yaxis()
    for place, row in enumerate(plan.rows):
        axes.text(rates[place], place, f" {figure(row.seconds * 1e3)} ms per iteration", va="center", fontsize=8)
    axes.set_xlim(0, max(rates) * 1.3)
    axes.set_xlabel("examples per second of all workers" if plan.model.batch else "steps per second of all workers")
    axes.spines[["top", "right"]].set_visible(False)
    machines = plan.machines
    words = f"{plan.model.name}, {machines.workers} machines, {machines.bandwidth * 8 / 1e9:g} Gbit/s"
    axes.set_title(words, loc="left", fontsize=10)


def _draw_splits(axes: Any, plan: ClusterPlan) -> None:
    batch = plan.model.batch or 1
    axes.plot(list(plan.splits), [rate * batch for rate in plan.splits.values()], "o-", color=COLOURS[COMPUTE])
    axes.set_ylim(bottom=0)
    axes.set_xlabel(f"machines that are servers, of {plan.machines.workers} (bsp)")
    axes.set_ylabel("per second")
    axes.spines[["top", "right"]].set_visible(False)
