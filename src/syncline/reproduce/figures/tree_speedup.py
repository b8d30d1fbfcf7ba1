"""Parameter sharing, figure 5: two replicas reach the same test error in nearly half the time of one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.reproduce.figure import Compared, Figure, FigureRun, Result, Results, Verdict
from syncline.sim.curve import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

REPLICAS = (1, 2)
SEEDS, QUICK_SEEDS = (1, 2, 3), (1,)
TARGET = 0.95
STEPS, POINTS = 400, 100
STEP = 0.1
PERIOD = 0.25
"""Seconds between two changes over the link: 2.5 steps."""
LEARNING_RATE = 0.05
"""Of every worker. A node divides updates by the number of workers, as the paper divides its learning rate."""


def _name(replicas: int, seed: int) -> str:
    return f"{replicas} replica{'s' * (replicas > 1)}, seed {seed}"


def _run(replicas: int, seed: int) -> FigureRun:
    experiment = {
        "seed": seed,
        "iterations": STEPS,
        "cluster": {"workers": replicas, "compute": {"mean": STEP, "sigma": 0.1}},
        "network": {"bandwidth": "1Gbit", "latency": "0.1ms"},
        "model": {"recipe": "digits-mlp", "batch": 16, "optimizer": f"sgd:{LEARNING_RATE}"},
        "strategy": {"kind": "tree", "topology": "chain", "period": PERIOD},
    }
    return FigureRun(_name(replicas, seed), experiment, points=POINTS)


def _runs(quick: bool) -> list[FigureRun]:
    return [_run(replicas, seed) for replicas in REPLICAS for seed in (QUICK_SEEDS if quick else SEEDS)]


def _seconds(result: Result) -> float:
    """When the model first reaches the target."""
    reached = [point.seconds for point in result.curve if point.accuracy >= TARGET]
    return reached[0] if reached else float("inf")


def _of(results: Results, replicas: int) -> list[Result]:
    return [results[_name(replicas, seed)] for seed in SEEDS if _name(replicas, seed) in results]


def _judge(results: Results) -> Verdict:
    times = {each: sorted(map(_seconds, _of(results, each))) for each in REPLICAS}
    one, two = (sum(times[each]) / len(times[each]) for each in REPLICAS)
    ratio = one / two if two < float("inf") else 0.0
    words = f"to {TARGET:.0%}: one replica {one:.1f} s, two {two:.1f} s: {ratio:.2f} times as fast (paper: nearly 2)"
    return Verdict((Compared("two replicas against one", 1.9, ratio),), words, {"seconds": times})


def _points(result: Result) -> list[Point]:
    return result.curve


def _draw(results: Results, picture: Picture) -> None:
    axes = picture.subplots()
    for replicas, colour in zip(REPLICAS, ("#e8a33d", "#3b6ea5"), strict=True):
        for number, result in enumerate(_of(results, replicas)):
            points = _points(result)
            label = f"{replicas} replica{'s' * (replicas > 1)}" if not number else None
            axes.plot([p.seconds for p in points], [1 - p.accuracy for p in points], color=colour, label=label)
    axes.axhline(1 - TARGET, color="grey", linestyle=":")
    axes.set_xlabel("virtual seconds")
    axes.set_ylabel("test error")
    axes.set_ylim(0, 0.3)
    axes.legend(frameon=False)


FIGURE = Figure(
    "tree-speedup",
    "Parameter sharing, figure 5",
    "Training with two workers achieves the same test error in nearly half the time.",
    _runs,
    _judge,
    _draw,
)
