"""FASGD, figures 1 and 2: the validation cost of fasgd and sasgd, by batch size and by number of clients.

FRED's dispatch draws the next client; an iteration is one update of one client. The learning rates are those that the
paper chose for each rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from statistics import mean
from typing import TYPE_CHECKING, Any

from syncline.reproduce.figure import Compared, Figure, FigureRun, Result, Results, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

FASGD, SASGD = "fasgd:0.005", "sasgd:0.04"
COLOURS = {FASGD: "#3b6ea5", SASGD: "#5a9e6f"}

DISPATCH = "weighted:after=0.25"
"""FRED's rule changes the probability of a client after it was drawn; the paper does not say how. Here it falls to a
quarter, since a client that has just pushed must compute before it can push again. With equal probabilities some
updates are hardly stale, and their large steps make batch size 1 too noisy to compare the rules."""

MNIST = {"recipe": "mnist-mlp", "validation": 10_000}
"""A 784-200-10 network, 50,000 training images and 10,000 validation images."""

POINTS = 25
SEEDS = (0, 1, 2)

BATCHES = ((4, 32, 10_000), (16, 8, 10_000), (32, 4, 10_000), (128, 1, 20_000))
"""(clients, batch size, updates); clients x batch size = 128."""

CLIENTS = ((250, 128, 5_000), (500, 128, 5_000), (1_000, 128, 5_000), (10_000, 128, 10_000))

Size = tuple[int, int, int]


def experiment(size: Size, rule: str, seed: int, **strategy: Any) -> dict[str, Any]:
    """The experiment for `size` = (clients, batch size, least updates)."""
    clients, batch, updates = size
    return {
        "iterations": -(-updates // clients),
        "seed": seed,
        "cluster": {"workers": clients},
        "dispatch": {"rule": DISPATCH},
        "model": {**MNIST, "batch": batch},
        "strategy": {"sync": "asp", "rule": rule, **strategy},
    }


def cost(result: Result) -> float:
    """The final validation cost: the mean of the last three evaluations."""
    return mean(point.loss for point in result.curve[-3:])


def _name(size: Size, rule: str, seed: int) -> str:
    return f"{size[0]} clients of batch {size[1]}, {rule}, seed {seed}"


def _runs(sizes: Sequence[Size], quick: bool) -> list[FigureRun]:
    if quick:
        sizes = [(clients, batch, 2_000) for clients, batch, _ in sizes if clients <= 2_000]
    return [
        FigureRun(_name(size, rule, seed), experiment(size, rule, seed), POINTS)
        for size in sizes
        for rule in (FASGD, SASGD)
        for seed in (SEEDS[:1] if quick else SEEDS)
    ]


def _there(sizes: Sequence[Size], results: Results) -> dict[Size, list[int]]:
    """The seeds of each size that was run."""
    found = {size: [seed for seed in SEEDS if _name(size, FASGD, seed) in results] for size in sizes}
    return {size: seeds for size, seeds in found.items() if seeds}


def _judge(sizes: Sequence[Size], results: Results, *, grows: bool = False) -> Verdict:
    numbers: dict[str, dict[str, list[float]]] = {}
    wins, trials = 0, 0
    for size, seeds in _there(sizes, results).items():
        pairs = [tuple(cost(results[_name(size, rule, seed)]) for rule in (FASGD, SASGD)) for seed in seeds]
        wins += sum(ours < theirs for ours, theirs in pairs)
        trials += len(pairs)
        numbers[f"{size[0]} x {size[1]}"] = {FASGD: [a for a, _ in pairs], SASGD: [b for _, b in pairs]}
    said = ", ".join(f"{mean(each[FASGD]):.3f} / {mean(each[SASGD]):.3f} ({size})" for size, each in numbers.items())
    words = f"fasgd's validation cost is below sasgd's in {wins} of {trials} pairs: {said}"
    compared = [Compared("pairs in which fasgd's cost is lower", 1.0, wins / trials, no_effect=0.5, enough=1.0)]
    if grows:
        factors = [mean(each[SASGD]) / mean(each[FASGD]) for each in numbers.values()]
        steps = [more > less for less, more in pairwise(factors)]
        words += f"; sasgd's cost is {', '.join(f'{factor:.2f}' for factor in factors)} times fasgd's"
        share = sum(steps) / len(steps) if steps else 0.0
        compared.append(
            Compared("steps to more clients that raise the advantage", 1.0, share, no_effect=0.0, enough=1.0)
        )
    return Verdict(compared, words, numbers)


def _draw(sizes: Sequence[Size], results: Results, picture: Picture) -> None:
    there = _there(sizes, results)
    axes: Any = picture.subplots(2, 2, squeeze=False).ravel()
    for place, (size, seeds) in zip(axes, there.items(), strict=False):
        for rule in (FASGD, SASGD):
            for seed in seeds:
                curve = results[_name(size, rule, seed)].curve
                label = rule if seed == seeds[0] else None
                xs, ys = [point.iterations for point in curve], [point.loss for point in curve]
                place.plot(xs, ys, color=COLOURS[rule], label=label, linewidth=1)
        place.set_yscale("log")
        place.set_title(f"{size[0]} clients of batch {size[1]}", fontsize=9)
        place.set_xlabel("updates", fontsize=8)
        place.set_ylabel("validation cost", fontsize=8)
    for place in axes[len(there) :]:
        place.axis("off")
    axes[0].legend(frameon=False, fontsize=8)


FIGURES = (
    Figure(
        "fasgd-batch",
        "FASGD, figure 1",
        "fasgd has a lower validation cost than sasgd for every batch size.",
        lambda quick: _runs(BATCHES, quick),
        lambda results: _judge(BATCHES, results),
        lambda results, picture: _draw(BATCHES, results, picture),
    ),
    Figure(
        "fasgd-clients",
        "FASGD, figure 2",
        "fasgd has a lower validation cost than sasgd, and the difference grows with the number of clients.",
        lambda quick: _runs(CLIENTS, quick),
        lambda results: _judge(CLIENTS, results, grows=True),
        lambda results, picture: _draw(CLIENTS, results, picture),
    ),
)
