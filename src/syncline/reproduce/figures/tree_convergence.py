"""Parameter sharing, figure 3: how long all replicas need to agree, by topology and number of machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.reproduce.figure import Figure, FigureRun, Results, Verdict, is_true
from syncline.reproduce.figures.tree_load import PUSHES, QUICK_PUSHES, late, paper_load

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

SHAPES = ("star", "twin", "chain")
MACHINES = range(2, 13, 2)
SMALL, FIT, LARGE = 4, 8, 10
"""Few machines; those with which the paper's star still works; those with which it does not."""


def _name(shape: str, machines: int) -> str:
    return f"{shape}, {machines} machines"


def _runs(quick: bool) -> list[FigureRun]:
    pushes, machines = (QUICK_PUSHES, (SMALL, FIT, LARGE)) if quick else (PUSHES, MACHINES)
    return [paper_load(_name(shape, each), each, shape, pushes) for shape in SHAPES for each in machines]


def _found(results: Results) -> dict[str, dict[int, float]]:
    return {
        shape: {each: late(results[_name(shape, each)]) for each in MACHINES if _name(shape, each) in results}
        for shape in SHAPES
    }


def _judge(results: Results) -> Verdict:
    found = _found(results)
    star, twin, chain = (found[shape] for shape in SHAPES)
    words = (
        f"{SMALL} machines: star {star[SMALL]:.1f} s, twin {twin[SMALL]:.1f} s, chain {chain[SMALL]:.1f} s; "
        f"{FIT}: {star[FIT]:.1f}, {twin[FIT]:.1f}, {chain[FIT]:.1f}; {LARGE}: {star[LARGE]:.1f}, {twin[LARGE]:.1f}, "
        f"{chain[LARGE]:.1f} (paper: the star is best up to {FIT}, and poor beyond; twin lies between star and chain)"
    )
    compared = (
        is_true(f"the star is best with {SMALL} machines", star[SMALL] <= min(twin[SMALL], chain[SMALL])),
        is_true(f"the star is best with {FIT} machines", star[FIT] <= min(twin[FIT], chain[FIT])),
        is_true(f"the chain is better than the star with {LARGE} machines", chain[LARGE] < star[LARGE]),
        is_true("the star gets worse faster than the machines", star[LARGE] / star[FIT] > 1.5 * LARGE / FIT),
        is_true("the chain scales", chain[LARGE] / chain[SMALL] < 1.5 * LARGE / SMALL),
        is_true(
            f"twin lies between star and chain with {LARGE} machines",
            min(star[LARGE], chain[LARGE]) <= twin[LARGE] <= max(star[LARGE], chain[LARGE]),
        ),
    )
    after = {name: result.report["seconds_to_agree"] for name, result in results.items()}
    return Verdict(compared, words, {"seconds": found, "seconds_after_the_last_push": after})


def _draw(results: Results, picture: Picture) -> None:
    axes = picture.subplots()
    for shape, seconds in _found(results).items():
        axes.plot(list(seconds), list(seconds.values()), marker="o", label=shape)
    axes.set_xlabel("machines, each with a node and 3 workers")
    axes.set_ylabel("seconds from the end of the load until all replicas agree")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)


FIGURE = Figure(
    "tree-convergence",
    "Parameter sharing, figure 3",
    "The star converges fast up to 8 machines, and poorly beyond; the chain scales; twin masters lie between.",
    _runs,
    _judge,
    _draw,
)
