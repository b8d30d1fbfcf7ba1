"""Ako, figure 11: the bytes between all pairs of 16 machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from syncline.reproduce.figure import Figure, FigureRun, Result, Results, Verdict, is_true
from syncline.reproduce.figures.ako_cluster import BYTES, PRIVATE, STEP, AkoCluster

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

MACHINES = 16
SERVERS = 4
FULL, QUICK = AkoCluster(PRIVATE, 200.0, MACHINES), AkoCluster(PRIVATE, 50.0, MACHINES)
EXCHANGE, SPLIT, ALL = "exchange", f"{MACHINES - SERVERS} workers, {SERVERS} servers", "all-to-all"
LINK = BYTES / PRIVATE
"""Bytes per second."""

Matrix = npt.NDArray[np.float64]


def _runs(quick: bool) -> list[FigureRun]:
    cluster = QUICK if quick else FULL
    runs = (
        cluster.exchange(EXCHANGE, MACHINES),
        cluster.split(SPLIT, MACHINES - SERVERS, SERVERS),
        cluster.all_to_all(ALL, MACHINES),
    )
    return [FigureRun(run.name, run.experiment, pairs=True) for run in runs]


def _machine(node: str, workers: int) -> int:
    """The machine of a node: first the workers, then the servers."""
    number = int(node.removeprefix("worker").removeprefix("server"))
    return number + workers if node.startswith("server") else number


def _matrix(result: Result, workers: int) -> Matrix:
    """Bytes per second from each machine (row) to each other one (column)."""
    found = np.zeros((MACHINES, MACHINES))
    for source, to, size in result.pairs:
        if "coordinator" not in (source, to):
            found[_machine(source, workers), _machine(to, workers)] += size / result.report["virtual_seconds"]
    return found


def _matrices(results: Results) -> dict[str, Matrix]:
    return {
        name: _matrix(result, MACHINES - SERVERS if name == SPLIT else MACHINES) for name, result in results.items()
    }


def _pairs(matrix: Matrix) -> Matrix:
    """The pairs of different machines, one after another."""
    return matrix[~np.eye(MACHINES, dtype=bool)]


def _per_step(results: Results, name: str, matrix: Matrix) -> float:
    """The most bytes that one machine sends another one per step."""
    report = results[name].report
    steps = report["iterations_done"] / MACHINES / report["virtual_seconds"]
    return float(matrix.max() / steps)


def _judge(results: Results) -> Verdict:
    found = _matrices(results)
    some, other, every = found[EXCHANGE], found[SPLIT], found[ALL]
    uneven = float(_pairs(some).min() / _pairs(some).max())
    unused = float((_pairs(other) == 0).mean())
    expected = FULL.load(MACHINES) / FULL.parts(MACHINES)
    used = {name: float(matrix.sum(1).mean() / LINK) for name, matrix in found.items()}
    words = (
        f"exchange uses every pair of machines (the least used one {uneven:.0%} as much as the most used one) and "
        f"{used[EXCHANGE]:.0%} of the links (predicted: {expected:.0%}); {SPLIT}: {unused:.0%} of the pairs unused"
    )
    compared = (
        is_true("exchange uses all pairs alike", uneven > 0.9),
        is_true("exchange fills its links as predicted", used[EXCHANGE] >= 0.9 * expected),
        is_true("with servers, the links between workers are not used", unused > 0.5),
        is_true(
            "in a step, exchange sends less than all-to-all between any two",
            _per_step(results, EXCHANGE, some) < _per_step(results, ALL, every),
        ),
    )
    return Verdict(
        compared, words, {"share_of_links": used, "bytes_per_second": {n: m.tolist() for n, m in found.items()}}
    )


def _draw(results: Results, picture: Picture) -> None:
    found = _matrices(results)
    axes: Any = picture.subplots(1, len(found))
    top = max(matrix.max() for matrix in found.values()) / 1000 * STEP
    shown: Any = None
    for place, (name, matrix) in zip(axes, found.items(), strict=True):
        shown = place.imshow(matrix / 1000 * STEP, cmap="viridis", vmin=0, vmax=top)
        place.set_title(name, fontsize=9)
        place.set_xlabel("to machine")
        place.set_xticks(range(0, MACHINES, 3))
        place.set_yticks(range(0, MACHINES, 3))
    axes[0].set_ylabel("from machine (workers first, then servers)")
    picture.colorbar(shown, ax=list(axes), shrink=0.5, label="KB per second of virtual time")


FIGURE = Figure(
    "ako-usage",
    "Ako, figure 11",
    "Exchange uses the links between all pairs of machines; servers leave those between workers unused.",
    _runs,
    _judge,
    _draw,
)
