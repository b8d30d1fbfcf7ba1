"""Ako, figure 13: accuracy against time with and without the accumulation of updates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.reproduce.figure import Compared, Figure, FigureRun, Results, Verdict
from syncline.reproduce.figures.ako_cluster import CLOUD, AkoCluster, accuracy_at, reached

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MACHINES = 8
FULL, QUICK = AkoCluster(CLOUD, 200.0, MACHINES), AkoCluster(CLOUD, 100.0, MACHINES)
PARTS = (FULL.parts(MACHINES), 8)
"""The number that the cost model chooses, and one with which every message carries an eighth of an update."""

TARGET = 0.85
WITH, WITHOUT = "with accumulation", "without"


def _name(p: int, accumulate: bool) -> str:
    return f"p = {p}, {WITH if accumulate else WITHOUT}"


def _runs(quick: bool) -> list[FigureRun]:
    cluster = QUICK if quick else FULL
    return [
        cluster.exchange(_name(p, accumulate), MACHINES, partitions=p, accumulate=accumulate)
        for p in PARTS
        for accumulate in (True, False)
    ]


def _judge(results: Results) -> Verdict:
    compared, said, numbers = [], [], {}
    for p in PARTS:
        whole, lossy = results[_name(p, True)], results[_name(p, False)]
        when = reached(whole, TARGET)
        ours = accuracy_at(lossy, when or 0.0) / TARGET
        compared.append(Compared(f"accuracy without, relative to with, p = {p}", 0.5, ours if when else 1.0))
        numbers[str(p)] = {
            "seconds": {WITH: when, WITHOUT: reached(lossy, TARGET)},
            "accuracy_then": accuracy_at(lossy, when or 0.0),
            "final_accuracy": {WITH: whole.curve[-1].accuracy, WITHOUT: lossy.curve[-1].accuracy},
        }
        said.append(f"{ours * TARGET:.0%} with p = {p}" if when else f"never with p = {p}")
    words = f"when accumulation reaches {TARGET:.0%}, a run without it has {' and '.join(said)} (paper: half as much)"
    return Verdict(compared, words, numbers)


def _draw(results: Results, picture: Picture) -> None:
    axes = picture.subplots()
    for p, colour in zip(PARTS, ("#3b6ea5", "#e8a33d"), strict=True):
        for accumulate, style in ((True, "-"), (False, "--")):
            curve = results[_name(p, accumulate)].curve
            x, y = [point.seconds for point in curve], [point.accuracy for point in curve]
            axes.plot(x, y, style, color=colour, label=_name(p, accumulate))
    axes.set_xlabel("virtual seconds; a step takes 1 s")
    axes.set_ylabel("accuracy")
    axes.legend(frameon=False)


FIGURE = Figure(
    "ako-accumulation",
    "Ako, figure 13",
    "Without the accumulation of updates, the model learns more slowly and reaches only half the accuracy.",
    _runs,
    _judge,
    _draw,
)
