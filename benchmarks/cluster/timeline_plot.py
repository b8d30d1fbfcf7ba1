"""A picture of a timeline: for each worker, one row per bucket, and below it how busy its host's link was."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cluster.timeline import PARTS, BucketTimes, Timeline, WorkerStep

MOST_WORKERS = 8
"""The picture shows at most this many workers, the first ones."""

BACKWARD, FORWARD, LINES, OUT, IN = "#e3ebf7", "#e6f3e2", "#777777", "#4a4a4a", "#8c8c8c"

STAGES = (
    ("ready", "pushed", 0.15, 1.0, "ready; waits in the worker"),
    ("pushed", "arrived", 1.0, 1.0, "update on its way to the server"),
    ("arrived", "answered", 0.3, 0.45, "at the server (thin), until it may answer"),
    ("answered", "applied", 0.6, 1.0, "answer on its way to the worker"),
)
"""Two moments of a bucket, the opacity and the height of the bar between them, and what happens meanwhile."""


def draw_timeline(made: Timeline, path: Path, note: str = "") -> None:
    """Draw the timeline; `note` is added to the title."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    shown = made.workers[:MOST_WORKERS]
    rows = max(len(worker.buckets) for worker in shown)
    heights = [min(6.0, 2.0 + 0.03 * rows) if rows else 0.5, 0.42, 0.42]
    figure = Figure(figsize=(13, 1.9 + 1.12 * sum(heights) * len(shown)), layout="constrained")
    FigureCanvasAgg(figure)
    figure.get_layout_engine().set(hspace=0.0, h_pad=0.03)  # type: ignore[union-attr, call-arg]
    panels = figure.subplots(3 * len(shown), 1, sharex=True, squeeze=False, height_ratios=heights * len(shown))[:, 0]
    for number, worker in enumerate(shown):
        above, out, into = panels[3 * number : 3 * number + 3]
        _draw_buckets(above, made, worker, number)
        _draw_link(out, made, worker.sent, "out", OUT)
        _draw_link(into, made, worker.received, "in", IN)
    panels[-1].set_xlim(0, _ms(made, made.stop))
    panels[-1].set_xlabel("milliseconds since the first worker began its backward pass")
    figure.suptitle(_title(made, note), fontsize=11)
    figure.legend(handles=_legend(made), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.savefig(path, dpi=120)


def _title(made: Timeline, note: str) -> str:
    what = made.experiment
    net = f"{what.hosts} hosts, links of {what.rate * 8e-9:g} Gbit/s, latency {what.latency * 1e3:g} ms"
    cut = f"; the first {MOST_WORKERS} workers" if len(made.workers) > MOST_WORKERS else ""
    step = f"step {made.step + 1} of {made.steps} measured, {_ms(made, made.stop):.0f} ms"
    return f"One step of {what.model}, case {made.case}: {net}{note}\n{step}{cut}"


def _ms(made: Timeline, time: float) -> float:
    return (time - made.start) * 1e3


def _draw_buckets(axes: Any, made: Timeline, worker: WorkerStep, number: int) -> None:
    from matplotlib.collections import PolyCollection

    parts = worker.parts
    axes.axvspan(_ms(made, parts.begun), _ms(made, parts.computed), color=BACKWARD, linewidth=0)
    forward = parts.exchanged if made.experiment.overlap != "forward" else parts.computed
    axes.axvspan(_ms(made, forward), _ms(made, worker.stop), color=FORWARD, linewidth=0)
    last_first = tuple(reversed(worker.buckets))
    for first, second, opacity, height, _ in STAGES:
        boxes = [_box(made, bucket, row, first, second, height) for row, bucket in enumerate(last_first)]
        colours = [_colour(made, bucket.server) for bucket in last_first]
        axes.add_collection(PolyCollection(boxes, facecolors=colours, alpha=opacity, linewidths=0))
    ends = [_ms(made, bucket.applied) for bucket in last_first]
    rows = range(len(last_first))
    axes.vlines(ends, [row - 0.45 for row in rows], [row + 0.45 for row in rows], colors="black", linewidth=0.9)
    axes.set_ylim(max(len(last_first), 1) - 0.4, -0.6)
    axes.set_yticks(
        [0, len(last_first) - 1] if last_first else [], ["last layer", "first layer"][: 2 * bool(last_first)]
    )
    axes.tick_params(labelsize=7)
    axes.set_title(f"worker {number}" + (", a row per bucket" if last_first else ""), loc="left", fontsize=9, pad=3)
    axes.spines[["top", "right"]].set_visible(False)


def _box(made: Timeline, bucket: BucketTimes, row: int, first: str, second: str, height: float) -> Any:
    left, right = _ms(made, getattr(bucket, first)), _ms(made, getattr(bucket, second))
    top, bottom = row - 0.42 * height, row + 0.42 * height
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def _colour(made: Timeline, server: int) -> Any:
    from matplotlib import colormaps

    hosts = made.experiment.hosts
    return colormaps["tab10"](server) if hosts <= 10 else colormaps["hsv"](server / hosts)


def _draw_link(axes: Any, made: Timeline, busy: Sequence[float], name: str, colour: str) -> None:
    width = _ms(made, made.stop) / PARTS
    axes.stairs([100 * share for share in busy], [width * edge for edge in range(PARTS + 1)], fill=True, color=colour)
    axes.set_ylim(0, 100)
    axes.set_yticks([0, 100], ["", "100 %"], fontsize=7)
    axes.set_ylabel(f"link\n{name}", rotation=0, ha="right", va="center", fontsize=8)
    axes.text(1.005, 0.5, f"{sum(busy) / PARTS:.0%}", transform=axes.transAxes, va="center", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def _legend(made: Timeline) -> list[Any]:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    found: list[Any] = [Patch(color=BACKWARD, label="backward pass"), Patch(color=FORWARD, label="forward pass")]
    if any(worker.buckets for worker in made.workers):
        found += [Patch(color="black", alpha=opacity, linewidth=0, label=text) for _, _, opacity, _, text in STAGES]
        found.append(Line2D([], [], color="black", marker="|", linestyle="", label="applied by the worker"))
        servers = sorted({bucket.server for worker in made.workers for bucket in worker.buckets})
        found += [Patch(color=_colour(made, server), label=f"held by server {server}") for server in servers]
    found.append(Patch(color=OUT, label="link busy: the host sends"))
    found.append(Patch(color=IN, label="link busy: the host receives"))
    return found
