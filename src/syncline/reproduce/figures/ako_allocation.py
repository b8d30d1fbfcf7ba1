"""Ako, figure 2: accuracy after the same time, by how many machines are servers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.reproduce.figure import Compared, Figure, FigureRun, Results, Verdict, is_true
from syncline.reproduce.figures.ako_cluster import accuracy_at
from syncline.reproduce.figures.ako_scale import EXCHANGE, FULL, QUICK, name, split_name

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MACHINES, QUICK_MACHINES = 64, 16
SHARE = 0.5
"""The accuracies are compared after this share of the time that `ako-scale` simulates."""


def _counts(machines: int) -> range:
    """The numbers of servers: in steps of a thirty-second of the machines, at least of one."""
    step = max(1, machines // 32)
    return range(step, machines * 5 // 8 + 1, step)


def _runs(quick: bool) -> list[FigureRun]:
    machines, cluster = (QUICK_MACHINES, QUICK) if quick else (MACHINES, FULL)
    splits = [
        cluster.split(split_name(machines, servers, cached=False), machines - servers, servers)
        for servers in _counts(machines)
    ]
    return [*splits, cluster.exchange(name(machines, EXCHANGE), machines)]


def _accuracies(results: Results) -> tuple[int, dict[int, float], float]:
    """The number of machines; the accuracy for each number of servers; that of exchange."""
    machines = MACHINES if name(MACHINES, EXCHANGE) in results else QUICK_MACHINES
    whole = (FULL if machines == MACHINES else QUICK).seconds
    found = {
        servers: accuracy_at(results[split_name(machines, servers, cached=False)], SHARE * whole)
        for servers in _counts(machines)
    }
    return machines, found, accuracy_at(results[name(machines, EXCHANGE)], SHARE * whole)


def _judge(results: Results) -> Verdict:
    machines, found, without = _accuracies(results)
    best = max(found, key=lambda servers: found[servers])
    few, many = machines // 16, machines // 2
    words = (
        f"{machines - best} workers and {best} servers are best, with {found[best]:.1%} (paper: 48 and 16 of 64); "
        f"{few} servers: {1 - found[few] / found[best]:.1%} worse (paper: 38.9 %), {many} servers: "
        f"{1 - found[many] / found[best]:.1%} worse (paper, with 20: 14.5 %); exchange: {without:.1%}"
    )
    compared = (
        Compared("how much worse too few servers are", 0.389, 1 - found[few] / found[best], no_effect=0.0),
        Compared("how much worse too many servers are", 0.145, 1 - found[many] / found[best], no_effect=0.0),
        is_true("exchange is at least as accurate as the best split", without >= found[best]),
    )
    return Verdict(compared, words, {"machines": machines, "accuracy": found, EXCHANGE: without, "best": best})


def _draw(results: Results, picture: Picture) -> None:
    machines, found, without = _accuracies(results)
    axes = picture.subplots()
    best = max(found.values())
    colours = ["#5a9e6f" if each == best else "#b9d3c1" for each in found.values()]
    axes.bar(list(found), list(found.values()), 0.8 * max(1, machines // 32), color=colours)
    axes.axhline(without, color="#3b6ea5", label="exchange, which has no servers")
    axes.set_xlabel(f"servers, of {machines} machines")
    axes.set_ylabel("accuracy after the same time")
    axes.legend(frameon=False)


FIGURE = Figure(
    "ako-allocation",
    "Ako, figure 2",
    "A wrong split into workers and servers costs up to 39 % accuracy in the same time.",
    _runs,
    _judge,
    _draw,
)
