"""The modularized parameter server, figures 5.4 and 5.5: speed-up by technique and by number of machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from syncline.reproduce.figure import Compared, Figure, FigureRun, Results, Verdict, is_true
from syncline.reproduce.figures.mps_cluster import COLOURS, HOSTS, MODELS, run, speedup

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

TOP: Mapping[str, Any] = {"codec": "topk:0.01", "reply_codec": "topk:0.01"}
STALE: Mapping[str, Any] = {"sync": "ssp:5", "mode": "changes", "gate": "cached:5"}
"""The paper's stale synchronous parallel: a worker uses its copy until it is more than five iterations old."""

TECHNIQUES: Mapping[str, Mapping[str, Any]] = {
    "bsp, all at once": {"overlap": "none"},
    "bsp, wait-free": {"overlap": "backward"},
    "top 1 %": {"overlap": "backward", **TOP},
    "stale by 5": {"overlap": "backward", **STALE},
    "all together": {"overlap": "forward", **TOP, **STALE},
}
PLAIN, TOGETHER = "bsp, all at once", "all together"

PAPER: Mapping[str, float] = {"resnet56": 3.91, "inception-v4": 3.78}


def _name(model: str, technique: str, hosts: int = HOSTS) -> str:
    return f"{model}, {technique}, {hosts} machines"


def _runs(quick: bool) -> list[FigureRun]:
    bars = [
        run(_name(model, technique), model, {"placement": "balanced", **settings}, quick)
        for model in MODELS
        for technique, settings in TECHNIQUES.items()
    ]
    lines = [
        run(_name(model, technique, hosts), model, {"placement": "balanced", **TECHNIQUES[technique]}, quick, hosts)
        for model in MODELS
        for technique in (PLAIN, TOGETHER)
        for hosts in range(2, HOSTS)
    ]
    return bars + lines


def _judge(results: Results) -> Verdict:
    found = {
        model: {technique: speedup(results, _name(model, technique), model) for technique in TECHNIQUES}
        for model in MODELS
    }
    best = all(max(bars, key=lambda each: bars[each]) == TOGETHER for bars in found.values())
    said = ", ".join(f"{found[model][TOGETHER]:.2f} for {model} (paper: {paper})" for model, paper in PAPER.items())
    plain = ", ".join(f"{found[model][PLAIN]:.2f}" for model in PAPER)
    compared = [
        Compared(f"speed-up of all together, {model}", paper, found[model][TOGETHER], enough=0.9)
        for model, paper in PAPER.items()
    ]
    compared.append(is_true("all together is the fastest technique for every model", best))
    return Verdict(compared, f"all together: {said}; plain bsp: {plain}", {"speedup": found})


def _draw(results: Results, picture: Picture) -> None:
    bars, lines = picture.subplots(1, 2)
    for shift, (technique, colour) in enumerate(zip(TECHNIQUES, COLOURS, strict=False)):
        spots = [x + 0.16 * shift for x in range(len(MODELS))]
        bars.bar(
            spots,
            [speedup(results, _name(model, technique), model) for model in MODELS],
            0.15,
            color=colour,
            label=technique,
        )
    bars.set_xticks([x + 0.32 for x in range(len(MODELS))], MODELS)
    bars.set_ylabel("speed-up, 4 machines")
    bars.set_ylim(0, 1.25 * HOSTS)  # room for the legend
    bars.legend(frameon=False, fontsize=7, ncols=2)
    counts = range(1, HOSTS + 1)
    for model, colour in zip(MODELS, COLOURS[1:], strict=False):
        for technique, style in ((TOGETHER, "-"), (PLAIN, "--")):
            speeds = [speedup(results, _name(model, technique, n), model, n) for n in counts[1:]]
            lines.plot(counts, [1.0, *speeds], style, color=colour, label=f"{model}, {technique}")
    lines.plot(counts, counts, ":", color="grey", label="linear")
    lines.set_xticks(counts)
    lines.set_xlabel("machines")
    lines.set_ylabel("speed-up")
    lines.legend(frameon=False, fontsize=7)


FIGURE = Figure(
    "mps-combination",
    "Modularized parameter server, figures 5.4 and 5.5",
    "All techniques together give a nearly linear speed-up: 3.91 of 4 for ResNet, 3.78 for Inception-v4.",
    _runs,
    _judge,
    _draw,
)
