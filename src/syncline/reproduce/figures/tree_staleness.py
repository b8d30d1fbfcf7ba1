"""Parameter sharing, figure 4: the average staleness over time of a star with 4, 8 and 10 machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.reproduce.figure import Figure, FigureRun, Result, Results, Verdict, is_true
from syncline.reproduce.figures.tree_load import PUSHES, QUICK_PUSHES, WORKERS, paper_load

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MACHINES = (4, 8, 10)
LEVEL = 1.2
"""Staleness that grows by less from the second quarter of the load to the last stays level."""


def _name(machines: int) -> str:
    return f"star, {machines} machines"


def _runs(quick: bool) -> list[FigureRun]:
    return [paper_load(_name(each), each, "star", QUICK_PUSHES if quick else PUSHES) for each in MACHINES]


def _curve(result: Result, machines: int) -> list[tuple[float, float]]:
    """(seconds, updates of each worker that a replica lacks, on average)."""
    return [(time, value / (WORKERS * machines)) for time, value in result.report["staleness_curve"]]


def _mean(result: Result, machines: int, first: float, last: float) -> float:
    """The mean staleness in this part of the load."""
    load = result.report["iterations"]
    found = [value for time, value in _curve(result, machines) if first * load <= time <= last * load]
    return sum(found) / len(found)


def _judge(results: Results) -> Verdict:
    late = {each: _mean(results[_name(each)], each, 0.75, 1.0) for each in MACHINES}
    growth = {each: late[each] / _mean(results[_name(each)], each, 0.25, 0.5) for each in MACHINES}
    few, fit, many = MACHINES
    lacking, grown = ([f"{found[each]:.2f}" for each in MACHINES] for found in (late, growth))
    words = (
        f"with {few}, {fit} and {many} machines a replica lacks {', '.join(lacking)} updates of each worker in the "
        f"last quarter of the load; that is {', '.join(grown)} times as many as in the second quarter (paper: level, "
        "level, surging until the load ends)"
    )
    compared = (
        is_true(f"staleness is level with {few} and {fit} machines", max(growth[few], growth[fit]) < LEVEL),
        is_true(f"a replica lacks much more with {many} machines", late[many] > 1.5 * late[fit] * many / fit),
        is_true(f"staleness surges with {many} machines", growth[many] > 1.5),
    )
    return Verdict(compared, words, {"last_quarter": late, "growth": growth})


def _draw(results: Results, picture: Picture) -> None:
    axes = picture.subplots()
    for machines in MACHINES:
        times, values = zip(*_curve(results[_name(machines)], machines), strict=True)
        axes.plot(times, values, label=f"{machines} machines")
    axes.set_xlabel("virtual seconds")
    axes.set_ylabel("updates of each worker that a replica lacks")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


FIGURE = Figure(
    "tree-staleness",
    "Parameter sharing, figure 4",
    "A star keeps staleness low with 4 and 8 machines; with 10 its master is saturated, and staleness keeps surging.",
    _runs,
    _judge,
    _draw,
)
