"""FluentPS, figure 9: the number of delayed pulls of pssp, and of the ssp with the same regret bound."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncline.reproduce.figure import Compared, Figure, FigureRun, Results, Verdict
from syncline.reproduce.figures.fluent_cluster import COLOURS, RELEASES, STAY, STRAGGLERS, machines, per_100

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

VALUES = 90_000
"""About the size of the AlexNet that Caffe ships for CIFAR-10."""

PAIRS = tuple((f"pssp:s=3,p={1 / inverse:.4g}", f"ssp:{3 + inverse - 1}") for inverse in (2, 3, 5, 10))
"""pssp(3, c) and ssp(s') with s' = 3 + 1/c - 1."""

KEYS = {"delayed_pulls": "delayed pulls per 100 iterations", "virtual_seconds": "seconds per 100 iterations"}


def _name(stragglers: str, release: str, model: str) -> str:
    return f"{stragglers}, {release}, {model}"


def _runs(quick: bool) -> list[FigureRun]:
    return [
        FigureRun(
            _name(stragglers, release, model),
            {
                "iterations": 100 if quick else 1000,
                "seed": 9,
                **machines(stragglers, 64),
                "model": {"parameters": VALUES},
                "strategy": {"sync": model, "release": release},
            },
        )
        for stragglers in STRAGGLERS
        for release in RELEASES
        for pair in PAIRS
        for model in pair
    ]


def _judge(results: Results) -> Verdict:
    numbers = {name: {key: per_100(results, name, key) for key in KEYS} for name in results}
    saved = {
        (stragglers, release): [_saved(numbers, stragglers, release, pair, "delayed_pulls") for pair in PAIRS]
        for stragglers in STRAGGLERS
        for release in RELEASES
    }
    holds = [case for case, shares in saved.items() if min(shares) > 0]
    faster = max(_saved(numbers, STAY, "soft", pair, "virtual_seconds") for pair in PAIRS)
    best = max(max(shares) for shares in saved.values())
    lazy = max(
        numbers[_name(STAY, "soft", model)]["virtual_seconds"] / numbers[_name(STAY, "lazy", model)]["virtual_seconds"]
        for _, model in PAIRS
    )
    where = "; ".join(f"{stragglers}, {release}" for stragglers, release in holds) or "no setting"
    words = (
        f"pssp delays fewer pulls than the ssp with the same bound in all four pairs with: {where}; up to {best:.1%} "
        f"fewer (paper: 97.1 %) and {faster:.1%} less time (paper: 28.5 %); if machines stay slow, ssp with lazy is up "
        f"to {lazy:.2f} times as fast as with soft (paper: 1.24)"
    )
    compared = (
        Compared("delayed pulls that pssp saves, at best", 0.971, best, no_effect=0.0),
        Compared(
            "settings in which it saves some in every pair", 1.0, len(holds) / len(saved), no_effect=0.0, enough=1.0
        ),
        Compared("time that pssp saves, at best", 0.285, faster, no_effect=0.0),
        Compared("ssp with lazy, times as fast as with soft", 1.24, lazy),
    )
    return Verdict(compared, words, {"per_100_iterations": numbers})


def _saved(
    numbers: Mapping[str, Mapping[str, float]], stragglers: str, release: str, pair: tuple[str, str], key: str
) -> float:
    ours, theirs = (numbers[_name(stragglers, release, model)][key] for model in pair)
    return 1 - ours / theirs if theirs else 0.0


def _draw(results: Results, picture: Picture) -> None:
    axes: Any = picture.subplots(len(KEYS), len(STRAGGLERS), sharex=True)
    models = [model for pair in PAIRS for model in pair]
    for column, stragglers in enumerate(STRAGGLERS):
        for row, (key, label) in enumerate(KEYS.items()):
            place = axes[row][column]
            for shift, release in enumerate(RELEASES):
                heights = [per_100(results, _name(stragglers, release, model), key) for model in models]
                spots = [x + 0.4 * shift for x in range(len(models))]
                place.bar(spots, heights, 0.38, color=COLOURS[release], label=release)
            ticks = [f"{letter}\n{model}" for letter, model in zip("ABCDEFGH", models, strict=True)]
            place.set_xticks([x + 0.2 for x in range(len(models))], ticks, fontsize=6)
            place.set_ylabel(label, fontsize=8)
        axes[0][column].set_title(f"stragglers: {stragglers}", fontsize=9)
    axes[0][0].legend(frameon=False, fontsize=8)


FIGURE = Figure(
    "fluent-dpr",
    "FluentPS, figure 9",
    "With the same regret bound, pssp delays up to 97.1 % fewer pulls than ssp.",
    _runs,
    _judge,
    _draw,
)
