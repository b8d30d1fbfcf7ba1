"""Ako, figure 12: accuracy and bandwidth by the number of ranges, beside what the cost model predicts and chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.reproduce.figure import Figure, FigureRun, Result, Results, Verdict, is_true
from syncline.reproduce.figures.ako_cluster import BYTES, PRIVATE, STEP, AkoCluster

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MACHINES = 16
PARTS = range(1, 9)
FULL, QUICK = AkoCluster(PRIVATE, 60.0, MACHINES), AkoCluster(PRIVATE, 40.0, MACHINES)
SEEDS, QUICK_SEEDS = (3, 4, 5), (3,)
TAU = 1
"""With one range and tau = 0, a worker would not send while it computes."""
LINK = BYTES / PRIVATE
"""Bytes per second."""


def _name(p: int | str, seed: int) -> str:
    return f"p = {p}, seed {seed}"


def _runs(quick: bool) -> list[FigureRun]:
    cluster, seeds = (QUICK, QUICK_SEEDS) if quick else (FULL, SEEDS)
    chosen: list[int | str] = [*PARTS, "auto"]
    return [
        cluster.exchange(_name(p, seed), MACHINES, seed, partitions=p, tau=TAU)
        for p in chosen
        for seed in (seeds[:1] if p == "auto" else seeds)
    ]


def _of(results: Results, p: int) -> list[Result]:
    return [results[_name(p, seed)] for seed in SEEDS if _name(p, seed) in results]


def _accuracy(results: Results, p: int) -> float:
    """The mean accuracy over the whole run and all seeds: a model that learns faster has a higher one."""
    points: list[float] = [point.accuracy for result in _of(results, p) for point in _even(result)]
    return sum(points) / len(points)


def _even(result: Result) -> list[Any]:
    """The points of a curve, one in five seconds: those that are measured by updates are denser if a run is faster."""
    found, due = [], 5.0 * STEP
    for point in result.curve:
        if point.seconds >= due:
            found.append(point)
            due = point.seconds - point.seconds % (5.0 * STEP) + 5.0 * STEP
    return found


def _used(results: Results, p: int) -> float:
    """The bytes that a worker sends per second."""
    found = [result.report for result in _of(results, p)]
    rates: list[float] = [each["bytes_pushed"] / each["virtual_seconds"] for each in found]
    return sum(rates) / len(rates) / MACHINES


def _expected(p: int) -> float:
    """What the cost model predicts for it; a link carries no more than its bandwidth."""
    return min(LINK, BYTES * (MACHINES - 1) / p / STEP)


def _picked(result: Result) -> int:
    """The number of ranges that `auto` uses in the second half of a run, by the bytes that are sent."""
    middle, end = result.curve[len(result.curve) // 2], result.curve[-1]
    sent = (end.bytes_pushed - middle.bytes_pushed) / (end.iterations - middle.iterations)
    return round(BYTES * (MACHINES - 1) / sent)


def _judge(results: Results) -> Verdict:
    rows = {p: (_accuracy(results, p), _used(results, p), _expected(p)) for p in PARTS}
    chosen, best = FULL.parts(MACHINES), max(rows, key=lambda p: rows[p][0])
    auto = _picked(next(result for name, result in results.items() if "auto" in name))
    off = {p: used / expected - 1 for p, (_, used, expected) in rows.items()}
    worst = max(off, key=lambda p: abs(off[p]))
    words = (
        f"the cost model chooses p = {chosen} (x = {FULL.load(MACHINES):.2f}; paper: 3), a run with auto uses "
        f"{auto}, and p = {best} learns fastest (paper: 3); the bandwidth used differs from the prediction by at most "
        f"{abs(off[worst]):.1%} (p = {worst})"
    )
    compared = (
        is_true("the best number of ranges is the predicted one or its neighbour", abs(best - chosen) <= 1),
        is_true("auto uses the predicted one or its neighbour", abs(auto - chosen) <= 1),
        is_true("the bandwidth used is within a tenth of the prediction", abs(off[worst]) <= 0.1),
    )
    numbers = {
        str(p): {"mean_accuracy": accuracy, "bytes_per_second": used, "predicted": expected}
        for p, (accuracy, used, expected) in rows.items()
    }
    return Verdict(compared, words, {"p": numbers, "link": LINK, "chosen": chosen, "auto": auto})


def _draw(results: Results, picture: Picture) -> None:
    left, right = picture.subplots(1, 2)
    chosen = FULL.parts(MACHINES)
    colours = ["#3b6ea5" if p == chosen else "#a9bfd6" for p in PARTS]
    left.bar(PARTS, [_accuracy(results, p) for p in PARTS], color=colours)
    left.set_ylabel("mean accuracy over the run (dark: what the cost model chooses)")
    right.plot(PARTS, [_used(results, p) / LINK for p in PARTS], "o-", color="#3b6ea5", label="used")
    right.plot(PARTS, [_expected(p) / LINK for p in PARTS], "x--", color="#b5533c", label="predicted")
    right.set_ylim(bottom=0)
    right.set_ylabel("bandwidth of a worker, as a share of its link")
    right.legend(frameon=False)
    for axes in (left, right):
        axes.set_xlabel("number of ranges, p")


FIGURE = Figure(
    "ako-partitions",
    "Ako, figure 12",
    "The number of ranges that the cost model chooses gives the highest accuracy, and it predicts the bandwidth used.",
    _runs,
    _judge,
    _draw,
)
