"""FluentPS, figures 8, 10 and 11 and table IV: time and accuracy by sync model and release.

The neural networks are smaller than the paper's, so that two cores can train them for 128 workers: on MNIST, or on
digits for quick runs. Compute times are virtual; only their ratio to the speed of the links matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from syncline.recipes import RECIPES
from syncline.reproduce.figure import Compared, Figure, FigureRun, Result, Results, Verdict, is_true
from syncline.reproduce.figures.fluent_cluster import ANEW, COLOURS, RELEASES, STRAGGLERS, machines, per_100

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Picture

POINTS = 30


GIGABIT = 1_000_000
"""1 Gbit in kbit."""

QUICK = "digits-mlp"


def _run(
    name: str,
    workers: int,
    strategy: Mapping[str, Any],
    stragglers: str,
    quick: bool,
    recipe: str = "mnist-mlp",
    cost: str | None = None,
) -> FigureRun:
    there = machines(stragglers, workers)
    if quick:  # scale the bandwidth, so that a message takes as long as with the larger neural network
        there["network"]["bandwidth"] = f"{GIGABIT * RECIPES[QUICK].values / RECIPES[recipe].values:.3f}kbit"
    if cost is not None:
        there["network"]["delay_cost"] = cost
    return FigureRun(
        name,
        {
            "iterations": 60 if quick else 300,
            "seed": 10,
            **there,
            "model": {"recipe": QUICK if quick else recipe, "batch": 16, "optimizer": "sgd:0.2"},
            "strategy": {"mode": "changes", **strategy},
        },
        POINTS,
    )


def _final(result: Result) -> tuple[float, float]:
    """The final seconds and accuracy; the accuracy is the mean of the last five evaluations, which fluctuate."""
    last = result.curve[-5:]
    return float(result.report["virtual_seconds"]), sum(point.accuracy for point in last) / len(last)


def _curve(axes: Axes, result: Result, label: str, **style: Any) -> None:
    axes.plot([p.seconds for p in result.curve], [p.accuracy for p in result.curve], label=label, **style)


def _label(axes: Axes, title: str) -> None:
    axes.set_title(title, fontsize=9)
    axes.set_xlabel("virtual seconds", fontsize=8)
    axes.set_ylabel("accuracy", fontsize=8)
    axes.legend(frameon=False, fontsize=7)


# Figures 10 and 11: accuracy against time, 64 and 128 workers.

SIZES = (64, 128)
MODELS = ("bsp", "ssp:3", "asp", "pssp:s=3,p=0.1", "pssp:s=3,p=0.3", "pssp:s=3,p=0.5")


def _accuracy_runs(quick: bool) -> list[FigureRun]:
    return [
        _run(f"{workers} workers, {model}", workers, {"sync": model, "servers": servers}, ANEW, quick)
        for workers, servers in zip(SIZES, (1, 8), strict=True)
        for model in MODELS
    ]


def _accuracy_judge(results: Results) -> Verdict:
    ends = {name: _final(result) for name, result in results.items()}
    numbers = {name: {"seconds": seconds, "accuracy": right} for name, (seconds, right) in ends.items()}
    faster, better = [], []
    for workers in SIZES:
        of = {model: ends[f"{workers} workers, {model}"] for model in MODELS}
        pssp = [of[model] for model in MODELS if model.startswith("pssp")]
        faster.append(of["ssp:3"][0] / min(seconds for seconds, _ in pssp))
        better.append(max(right for _, right in pssp) - of["asp"][1])
    words = (
        f"pssp is {faster[0]:.2f} and {faster[1]:.2f} times as fast as ssp:3 with 64 and 128 workers (paper: 1.38), "
        f"its best accuracy {100 * better[0]:+.1f} and {100 * better[1]:+.1f} points from asp's (paper: +1 and +3.9)"
    )
    compared = [
        *(Compared(f"pssp, times as fast as ssp:3, {n} workers", 1.38, faster[i]) for i, n in enumerate(SIZES)),
        *(
            Compared(f"accuracy above asp's, {n} workers", paper, better[i], no_effect=0.0)
            for i, (n, paper) in enumerate(zip(SIZES, (0.01, 0.039), strict=True))
        ),
    ]
    return Verdict(compared, words, numbers)


def _accuracy_draw(results: Results, picture: Picture) -> None:
    axes: Any = picture.subplots(1, len(SIZES))
    for place, workers in zip(axes, SIZES, strict=True):
        for model in MODELS:
            _curve(place, results[f"{workers} workers, {model}"], model)
        _label(place, f"{workers} workers")


# Figure 8: lazy and soft release, by kind of stragglers, number of servers and cost of a delayed pull.

CASES = tuple(product(STRAGGLERS, (8, 1), ("0ms", "10ms")))


def _case(stragglers: str, servers: int, cost: str) -> str:
    return f"{stragglers}, {servers} server{'s' * (servers > 1)}, {cost}"


def _lazy_runs(quick: bool) -> list[FigureRun]:
    return [
        _run(
            f"{_case(stragglers, servers, cost)}, {release}",
            32,
            {"sync": "ssp:2", "servers": servers, "release": release},
            stragglers,
            quick,
            cost=cost,
        )
        for stragglers, servers, cost in CASES
        for release in RELEASES
    ]


def _lazy_judge(results: Results) -> Verdict:
    ends = {name: _final(result) for name, result in results.items()}
    cases = [_case(*case) for case in CASES]
    gains = {case: ends[f"{case}, soft"][0] / ends[f"{case}, lazy"][0] for case in cases}
    numbers = {
        "lazy_times_as_fast": gains,
        "delayed_pulls": {name: results[name].report["delayed_pulls"] for name in results},
        "accuracy": {name: right for name, (_, right) in ends.items()},
    }
    said = ", ".join(f"{gain:.2f} ({case})" for case, gain in gains.items())
    words = f"speed of lazy relative to soft (paper: 1.21), by stragglers, servers and cost of a delayed pull: {said}"
    faster = sum(gain > 1.02 for gain in gains.values())
    compared = (
        Compared("lazy, times as fast as soft, at best", 1.21, max(gains.values())),
        Compared("settings in which lazy is faster", 1.0, faster / len(gains), no_effect=0.0, enough=1.0),
    )
    return Verdict(compared, words, numbers)


def _lazy_draw(results: Results, picture: Picture) -> None:
    axes: Any = picture.subplots(2, 2).ravel()
    places = dict(zip(dict.fromkeys(case[:2] for case in CASES), axes, strict=True))
    for stragglers, servers, cost in CASES:
        for release in RELEASES:
            result = results[f"{_case(stragglers, servers, cost)}, {release}"]
            line = "-" if cost == CASES[0][2] else ":"
            _curve(places[stragglers, servers], result, f"{release}, {cost}", color=COLOURS[release], linestyle=line)
    for (stragglers, servers), place in places.items():
        _label(place, f"stragglers: {stragglers}; servers: {servers}")


# Table IV: time, accuracy and delayed pulls by P and release.

NETWORKS: Mapping[str, Mapping[str, Any]] = {
    "mlp, 64 workers, 1 server": {"workers": 64, "servers": 1, "s": 3, "recipe": "mnist-mlp"},
    "cnn, 32 workers, 8 servers": {"workers": 32, "servers": 8, "s": 2, "recipe": "mnist-cnn"},
}
COLUMNS = ("P=0", "P=0.1", "P=0.3", "P=0.5", "P=1", "dynamic")


def _model(column: str, s: int) -> str:
    match column:
        case "P=0":
            return "asp"
        case "P=1":
            return f"ssp:{s}"
        case "dynamic":
            return f"pssp:s={s},alpha=1"
    return f"pssp:s={s},p={column.removeprefix('P=')}"


def _cells() -> list[tuple[str, str, str]]:
    """(network, column, release) of each cell; asp delays no pulls, so it needs only one release."""
    return [
        (network, column, release)
        for network in NETWORKS
        for release in RELEASES
        for column in COLUMNS
        if column != "P=0" or release == "soft"
    ]


def _table_runs(quick: bool) -> list[FigureRun]:
    return [
        _run(
            ", ".join(cell),
            NETWORKS[cell[0]]["workers"],
            {
                "sync": _model(cell[1], NETWORKS[cell[0]]["s"]),
                "servers": NETWORKS[cell[0]]["servers"],
                "release": cell[2],
            },
            ANEW,
            quick,
            NETWORKS[cell[0]]["recipe"],
        )
        for cell in _cells()
    ]


def _rows(results: Results) -> dict[str, dict[str, float]]:
    """The numbers that the table shows, by run."""
    return {
        name: {
            "seconds_per_100": per_100(results, name, "virtual_seconds"),
            "accuracy": _final(result)[1],
            "delayed_pulls_per_100": per_100(results, name, "delayed_pulls"),
        }
        for name, result in results.items()
    }


def _table_judge(results: Results) -> Verdict:
    rows = _rows(results)
    pairs = [
        tuple(rows[f"{network}, {column}, {release}"] for release in RELEASES)
        for network in NETWORKS
        for column in COLUMNS[1:]
    ]
    fewer = sum(lazy["delayed_pulls_per_100"] < soft["delayed_pulls_per_100"] for soft, lazy in pairs)
    faster = sum(lazy["seconds_per_100"] < soft["seconds_per_100"] for soft, lazy in pairs)
    apart = sum(lazy["accuracy"] - soft["accuracy"] for soft, lazy in pairs) / len(pairs)
    words = (
        f"lazy delays fewer pulls than soft in {fewer} of {len(pairs)} columns (paper: 18 of 20), is faster in "
        f"{faster} (paper: 14 of 20), and its accuracy differs by {100 * apart:+.2f} points on average (paper: +0.25)"
    )
    compared = (
        Compared("columns in which lazy delays fewer pulls", 0.9, fewer / len(pairs), no_effect=0.0, enough=0.9),
        Compared("columns in which lazy is faster", 0.7, faster / len(pairs), no_effect=0.0),
        is_true("lazy is no less accurate by more than a point", apart > -0.01),
    )
    return Verdict(compared, words, rows)


def _table_draw(results: Results, picture: Picture) -> None:
    rows = _rows(results)
    axes: Any = picture.subplots(len(NETWORKS), 1)
    for place, network in zip(axes, NETWORKS, strict=True):
        heads = [f"{release}\n{column}" for release in RELEASES for column in COLUMNS]
        names = [
            f"{network}, {column}, {'soft' if column == 'P=0' else release}"
            for release in RELEASES
            for column in COLUMNS
        ]
        cells = [
            [f"{rows[name]['seconds_per_100']:.1f}" for name in names],
            [f"{rows[name]['accuracy']:.3f}" for name in names],
            [f"{rows[name]['delayed_pulls_per_100']:,.0f}" for name in names],
        ]
        _table(place, heads, ("seconds", "accuracy", "delayed pulls"), cells)
        place.set_title(f"{network}, per 100 iterations", fontsize=9)


def _table(axes: Axes, heads: Sequence[str], sides: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    axes.axis("off")
    table = axes.table(cells, colLabels=heads, rowLabels=sides, loc="center")
    table.auto_set_font_size(False)
    table.set_fontsize(7)
    table.scale(1, 1.8)


FIGURES = (
    Figure(
        "fluent-accuracy",
        "FluentPS, figures 10 and 11",
        "pssp is 1.38 times as fast as ssp at the same accuracy, and more accurate than asp.",
        _accuracy_runs,
        _accuracy_judge,
        _accuracy_draw,
    ),
    Figure(
        "fluent-table",
        "FluentPS, table IV",
        "Lazy release delays far fewer pulls than soft release, at the same accuracy.",
        _table_runs,
        _table_judge,
        _table_draw,
    ),
    Figure(
        "fluent-lazy",
        "FluentPS, figure 8",
        "Under ssp, lazy release is 1.21 times as fast as soft release, and no less accurate.",
        _lazy_runs,
        _lazy_judge,
        _lazy_draw,
    ),
)
