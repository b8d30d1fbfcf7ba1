"""Parameter sharing, section 3.6: the best fan-out, measured and by the paper's delay model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.nodes.topologies import best_fan_out, fan_out_delay
from syncline.reproduce.figure import Figure, FigureRun, Results, Verdict, is_true
from syncline.reproduce.figures.tree_load import VALUES, late, paper_load

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

NODES, QUICK_NODES = 32, 16
DEGREES = (1, 2, 3, 4, 6, 8, 16, 31)
SPEEDS = {"fast": 4.0, "slow": 0.25}
"""GB of updates that a node adds up per second."""
HOP = 1e-4
"""The latency of a link, in seconds."""
LINK = VALUES * 4 / 125e6
"""How long a change occupies the link of a node, in seconds. The changes of its neighbours come one after another, so
this is a part of what an update costs, like the time to add it."""
PERIOD = 0.01
"""Short, so that what is measured is the delay of messages and of processing, as in the model."""


def _name(speed: str, nodes: int, degree: int) -> str:
    return f"{speed} nodes, {nodes} of them, fan-out {degree}"


def _degrees(nodes: int) -> list[int]:
    return [each for each in DEGREES if each < nodes] + [nodes - 1] * (nodes - 1 not in DEGREES)


def _runs(quick: bool) -> list[FigureRun]:
    nodes = QUICK_NODES if quick else NODES
    return [
        paper_load(_name(speed, nodes, degree), nodes, f"tree:{degree}", 1, apply=f"{1000 * rate:.0f}MB", period=PERIOD)
        for speed, rate in SPEEDS.items()
        for degree in _degrees(nodes)
    ]


def _found(results: Results) -> tuple[int, dict[str, dict[int, float]]]:
    nodes = NODES if _name("fast", NODES, 2) in results else QUICK_NODES
    found = {speed: {each: late(results[_name(speed, nodes, each)]) for each in _degrees(nodes)} for speed in SPEEDS}
    return nodes, found


def _update(speed: str) -> float:
    """What one neighbour's update costs a node, in seconds."""
    return LINK + VALUES * 4 / (SPEEDS[speed] * 1e9)


def _at(seconds: dict[int, float], degree: int) -> float:
    """The seconds with the measured fan-out that is nearest to this one."""
    return seconds[min(seconds, key=lambda each: abs(each - degree))]


def _judge(results: Results) -> Verdict:
    nodes, found = _found(results)
    best = {speed: min(seconds, key=lambda each: seconds[each]) for speed, seconds in found.items()}
    model = {speed: best_fan_out(nodes, HOP, _update(speed)) for speed in SPEEDS}
    slower = {speed: _at(seconds, model[speed]) / min(seconds.values()) for speed, seconds in found.items()}
    words = "; ".join(
        f"{rate:g} GB/s: best {best[speed]}, model {model[speed]}, which takes {slower[speed]:.2f} times as long"
        for speed, rate in SPEEDS.items()
    )
    compared = (
        is_true("neither the chain nor the star is best if adding takes time", 1 < best["slow"] < nodes - 1),
        is_true("slower nodes want a smaller fan-out", best["slow"] <= best["fast"]),
        is_true("the fan-out of the model takes at most 1.5 times as long as the best", max(slower.values()) <= 1.5),
    )
    return Verdict(
        compared,
        f"{nodes} nodes; {words}",
        {"nodes": nodes, "seconds": found, "best": best, "model": model},
    )


def _draw(results: Results, picture: Picture) -> None:
    nodes, found = _found(results)
    axes = picture.subplots()
    for speed, colour in zip(SPEEDS, ("#3b6ea5", "#e8a33d"), strict=True):
        seconds, rate = found[speed], SPEEDS[speed]
        axes.plot(list(seconds), list(seconds.values()), marker="o", color=colour, label=f"measured, {rate:g} GB/s")
        degrees = [each for each in seconds if each > 1]
        modelled = [fan_out_delay(nodes, each, HOP, _update(speed)) for each in degrees]
        axes.plot(degrees, modelled, linestyle=":", color=colour, label=f"delay model, {rate:g} GB/s")
    axes.set_xscale("log", base=2)
    axes.set_xlabel(f"fan-out, {nodes} nodes (1: chain, {nodes - 1}: star)")
    axes.set_ylabel("seconds until all replicas agree")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


FIGURE = Figure(
    "tree-fanout",
    "Parameter sharing, section 3.6",
    "The best topology lies between chain and star, and a model of the delay finds it.",
    _runs,
    _judge,
    _draw,
)
