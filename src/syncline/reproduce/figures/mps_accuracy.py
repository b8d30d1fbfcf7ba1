"""The modularized parameter server, figures 5.7 and 5.8: accuracy by iteration and by time.

It compares plain bsp with all techniques together. The neural network is smaller than the paper's ResNet, and the links
are slower by the same factor, so that computing and sending take as long as in the paper.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from syncline.recipes import RECIPES
from syncline.recipes.layer_lists import LAYER_LISTS
from syncline.recipes.layer_shares import STEP_SECONDS
from syncline.reproduce.figure import Compared, Figure, FigureRun, Result, Results, Verdict, is_true
from syncline.reproduce.figures.mps_cluster import HOSTS, JITTER
from syncline.reproduce.figures.mps_combination import PLAIN, TECHNIQUES, TOGETHER

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

GIGABIT = 1_000_000_000
TARGET = 0.98
"""The accuracy to reach, as a fraction of the best accuracy of plain bsp; the times to reach it are compared."""


def _runs(quick: bool) -> list[FigureRun]:
    recipe = "digits-mlp" if quick else "mnist-cnn"
    rate = GIGABIT * RECIPES[recipe].values / LAYER_LISTS["resnet56"]().size
    return [
        FigureRun(
            technique,
            {
                "iterations": 400 if quick else 2000,
                "seed": 5,
                "cluster": {
                    "workers": HOSTS,
                    "colocated": True,
                    "compute": {"mean": STEP_SECONDS["resnet56"], "sigma": JITTER},
                },
                "network": {"bandwidth": f"{rate / 1000:.3f}kbit", "latency": "0.1ms"},
                "model": {"recipe": recipe, "optimizer": "sgd:0.1"},
                "strategy": {"servers": HOSTS, "bucket": "8KiB", "mode": "changes", **TECHNIQUES[technique]},
            },
            60,
        )
        for technique in (PLAIN, TOGETHER)
    ]


def _reached(result: Result, accuracy: float) -> float | None:
    return next((point.seconds for point in result.curve if point.accuracy >= accuracy), None)


def _judge(results: Results) -> Verdict:
    plain, together = results[PLAIN], results[TOGETHER]
    target = TARGET * max(point.accuracy for point in plain.curve)
    slow, fast = _reached(plain, target), _reached(together, target)
    ends = {name: result.curve[-1].accuracy for name, result in results.items()}
    numbers: dict[str, Any] = {"target": target, "seconds": {PLAIN: slow, TOGETHER: fast}, "final_accuracy": ends}
    if slow is None or fast is None:
        missed = is_true(f"all together reaches {target:.1%}", False)
        return Verdict([missed], f"all together did not reach {target:.1%}, which plain bsp reached", numbers)
    words = (
        f"all together reaches {target:.1%} in {fast / slow:.0%} of plain bsp's time (paper: 43 %); after the same "
        f"number of iterations its accuracy is {ends[TOGETHER]:.1%}, and {ends[PLAIN]:.1%} with plain bsp"
    )
    compared = (
        Compared("time saved to the same accuracy", 0.57, 1 - fast / slow, no_effect=0.0),
        is_true("it loses at most a point of accuracy per iteration", ends[TOGETHER] > ends[PLAIN] - 0.01),
    )
    return Verdict(compared, words, numbers)


def _draw(results: Results, picture: Picture) -> None:
    axes: Any = picture.subplots(1, 2, sharey=True)
    for name, result in results.items():
        accuracies = [point.accuracy for point in result.curve]
        axes[0].plot([point.iterations / HOSTS for point in result.curve], accuracies, label=name)
        axes[1].plot([point.seconds for point in result.curve], accuracies, label=name)
    for place, label in zip(axes, ("iterations of each worker", "virtual seconds"), strict=True):
        place.set_xlabel(label)
    axes[0].set_ylabel("accuracy")
    axes[0].legend(frameon=False)


FIGURE = Figure(
    "mps-accuracy",
    "Modularized parameter server, figures 5.7 and 5.8",
    "All together loses a little accuracy per iteration, and reaches the same accuracy in 43 % of the time.",
    _runs,
    _judge,
    _draw,
)
