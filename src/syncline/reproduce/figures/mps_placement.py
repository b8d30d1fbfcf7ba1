"""The modularized parameter server, figures 5.1 and 5.3: speed-up and server load by placement."""

from __future__ import annotations

from statistics import mean, pstdev
from typing import TYPE_CHECKING, Any

from syncline.placement import checked
from syncline.recipes.layer_lists import LAYER_LISTS
from syncline.reproduce.figure import Compared, Figure, FigureRun, Results, Verdict, is_true
from syncline.reproduce.figures.mps_cluster import COLOURS, HOSTS, MODELS, run, speedup
from syncline.spec import parse

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

PLACEMENTS = ("uniform", "roundrobin", "balanced", "elastic")
WHOLE_TABLES = ("roundrobin", "balanced")


def _runs(quick: bool) -> list[FigureRun]:
    return [
        run(f"{model}, {placement}", model, {"placement": placement, "overlap": "backward"}, quick)
        for model in MODELS
        for placement in PLACEMENTS
    ]


def _variation(model: str, placement: str) -> float:
    """The coefficient of variation of the number of values per server."""
    layout = LAYER_LISTS[model]()
    held = checked(parse("placement", placement, "placement"), layout, HOSTS)
    sizes = [sum(piece.size for piece in each) for each in held]
    return pstdev(sizes) / mean(sizes)


def _judge(results: Results) -> Verdict:
    numbers: dict[str, Any] = {
        model: {
            placement: {
                "speedup": speedup(results, f"{model}, {placement}", model),
                "variation": _variation(model, placement),
            }
            for placement in PLACEMENTS
        }
        for model in MODELS
    }
    average = {each: mean(numbers[model][each]["speedup"] for model in MODELS) for each in PLACEMENTS}
    steadier = all(numbers[m]["balanced"]["variation"] <= numbers[m]["roundrobin"]["variation"] for m in MODELS)
    rank = sorted(average.values(), reverse=True).index(average["balanced"]) + 1
    said = ", ".join(f"{each} {value:.2f}" for each, value in average.items())
    words = (
        f"speed-up with 4 machines, averaged over the models: {said}; balanced varies less than roundrobin in "
        f"{'every model' if steadier else 'at most some models'}; uniform pays no cost for its small messages here"
    )
    compared = (
        Compared("rank of balanced by mean speed-up", 1, rank, no_effect=len(PLACEMENTS), enough=1.0),
        is_true("balanced has a steadier load than roundrobin for every model", steadier),
    )
    return Verdict(compared, words, numbers)


def _draw(results: Results, picture: Picture) -> None:
    axes: Any = picture.subplots(1, 2)
    for shift, (placement, colour) in enumerate(zip(PLACEMENTS, COLOURS, strict=False)):
        spots = [x + 0.2 * shift for x in range(len(MODELS))]
        speeds = [speedup(results, f"{model}, {placement}", model) for model in MODELS]
        axes[0].bar(spots, speeds, 0.19, color=colour, label=placement)
        axes[1].bar(spots, [_variation(model, placement) for model in MODELS], 0.19, color=colour)
    for place, label in zip(axes, ("speed-up, 4 machines", "coefficient of variation of the load"), strict=True):
        place.set_xticks([x + 0.3 for x in range(len(MODELS))], MODELS)
        place.set_ylabel(label)
    axes[0].legend(frameon=False, fontsize=8)


FIGURE = Figure(
    "mps-placement",
    "Modularized parameter server, figures 5.1 and 5.3",
    "The heuristic (balanced) has the best and steadiest speed-up on average; uniform is best for large layers.",
    _runs,
    _judge,
    _draw,
)
