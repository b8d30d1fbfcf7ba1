"""B-FASGD, figure 3: validation cost against the number of transfers, and how far pushes and fetches can be reduced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from syncline.reproduce.figure import Compared, Figure, FigureRun, Result, Results, Verdict, is_true
from syncline.reproduce.figures.fasgd import FASGD, POINTS, Size, cost, experiment

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

SIZE: Size = (4, 32, 40_000)
QUICK: Size = (4, 32, 4_000)
"""Clients, batch and updates."""

ALLOWED = 1.1
"""The largest acceptable final cost, as a multiple of that of fasgd without a gate."""

FETCHES = (0.0, 0.05, 0.1, 0.2)
PUSHES = (0.02, 0.05, 0.1)
TOGETHER = (
    *((0.05, 0.05), (0.1, 0.1), (0.2, 0.1), (0.2, 0.2), (0.5, 0.1), (0.5, 0.2), (0.5, 0.4)),
    *((1.0, 0.1), (1.0, 0.2), (1.0, 0.4), (2.0, 0.2)),
)
"""(push, fetch) settings of the gate."""


def _gate(push: float, fetch: float, on_skip: str = "accumulate") -> str:
    if not push and not fetch:
        return "always"
    return f"bandwidth:push={push:g},fetch={fetch:g},on_skip={on_skip}"


def _runs(gates: Sequence[str], quick: bool) -> list[FigureRun]:
    size = QUICK if quick else SIZE
    return [FigureRun(gate, experiment(size, FASGD, 0, gate=gate), POINTS) for gate in dict.fromkeys(gates)]


def _shares(result: Result) -> tuple[float, float]:
    """The fraction of updates that were sent, and the fraction of fetches that were made."""
    report = result.report
    turns = result.curve[-1].iterations
    return 1 - report["pushes_skipped"] / turns, 1 - report["fetches_skipped"] / turns


def _traffic(result: Result) -> int:
    return int(result.report["bytes_pushed"]) + int(result.report["bytes_pulled"])


def _numbers(results: Results) -> dict[str, dict[str, float]]:
    return {
        gate: {
            "cost": cost(result),
            "pushes": _shares(result)[0],
            "fetches": _shares(result)[1],
            "bytes": _traffic(result),
        }
        for gate, result in results.items()
    }


def _curves(axes: Any, results: Results, gates: Sequence[str], key: str) -> None:
    """Left: the cost by updates. Right: the transfers made by updates."""
    for gate in gates:
        curve = results[gate].curve
        axes[0].plot([point.iterations for point in curve], [point.loss for point in curve], label=gate, linewidth=1)
        one = curve[-1].bytes_pushed if key == "bytes_pushed" else curve[-1].bytes_pulled
        share = _shares(results[gate])[key == "bytes_pulled"]
        copy = one / max(share * curve[-1].iterations, 1)
        axes[1].plot([point.iterations for point in curve], [getattr(point, key) / copy for point in curve], label=gate)
    axes[0].set_yscale("log")
    axes[0].set_ylabel("validation cost", fontsize=8)
    axes[1].set_ylabel("copies made", fontsize=8)
    for place in axes:
        place.set_xlabel("updates", fontsize=8)
        place.legend(frameon=False, fontsize=6)


# Gated fetches only.

_FETCH_GATES = tuple(_gate(0.0, c) for c in FETCHES)


def _fetch_judge(results: Results) -> Verdict:
    numbers = _numbers(results)
    free = numbers["always"]["cost"]
    good = {gate: each for gate, each in numbers.items() if each["cost"] <= ALLOWED * free}
    best = min(good, key=lambda gate: good[gate]["fetches"])
    fewer, total = 1 / good[best]["fetches"], numbers["always"]["bytes"] / good[best]["bytes"]
    words = (
        f"{fewer:.1f} times fewer fetches at {good[best]['cost'] / free:.2f} times the cost ({best}; paper: 10); "
        f"total traffic falls {total:.2f} times, since a push and a fetch have the same size (paper: 5)"
    )
    compared = (Compared("times fewer fetches", 10.0, fewer), Compared("times less traffic", 5.0, total))
    return Verdict(compared, words, numbers)


def _fetch_draw(results: Results, picture: Picture) -> None:
    _curves(picture.subplots(1, 2), results, _FETCH_GATES, "bytes_pulled")


# Gated pushes only.

_PUSH_GATES = (
    "always",
    *(_gate(c, 0.0, on_skip) for on_skip in ("reapply", "accumulate") for c in PUSHES),
)


def _push_judge(results: Results) -> Verdict:
    numbers = _numbers(results)
    free = numbers["always"]["cost"]
    least = {
        word: min(
            (each["pushes"] for gate, each in numbers.items() if word in gate and each["cost"] <= ALLOWED * free),
            default=1.0,
        )
        for word in ("reapply", "accumulate")
    }
    words = (
        f"at up to {ALLOWED:g} times the cost, pushes fall {1 / least['reapply']:.1f} times with reapply (paper: "
        f"hardly at all) and {1 / least['accumulate']:.1f} times with accumulate"
    )
    compared = (
        is_true("with reapply, pushes can hardly be saved", 1 / least["reapply"] < 1.5),
        is_true("another way to hold updates back does better", least["accumulate"] < least["reapply"]),
    )
    return Verdict(compared, words, numbers)


def _push_draw(results: Results, picture: Picture) -> None:
    _curves(picture.subplots(1, 2), results, _PUSH_GATES, "bytes_pushed")


# Gated pushes and fetches.

_BOTH_GATES = ("always", *(_gate(push, fetch) for push, fetch in TOGETHER))


def _both_judge(results: Results) -> Verdict:
    numbers = _numbers(results)
    free = numbers["always"]
    good = {gate: each for gate, each in numbers.items() if each["cost"] <= ALLOWED * free["cost"]}
    best = min(good, key=lambda gate: good[gate]["bytes"])
    found = good[best]
    words = (
        f"{best}: total traffic falls {free['bytes'] / found['bytes']:.1f} times at {found['cost'] / free['cost']:.2f} "
        f"times the cost (pushes {1 / found['pushes']:.1f} and fetches {1 / found['fetches']:.1f} times fewer)"
    )
    less = free["bytes"] / found["bytes"]
    compared = (is_true("traffic falls more than without gated pushes, where it falls 1.8 times", less > 1.8),)
    return Verdict(compared, words, {"best": best, "gates": numbers})


def _both_draw(results: Results, picture: Picture) -> None:
    axes = picture.subplots()
    numbers = _numbers(results)
    free = numbers["always"]
    label: dict[str, Any] = {"fontsize": 6, "xytext": (3, 3), "textcoords": "offset points"}
    for gate, each in numbers.items():
        x, y = each["bytes"] / free["bytes"], each["cost"] / free["cost"]
        axes.plot(x, y, "o", color="#3b6ea5" if y <= ALLOWED else "#b8b8b8")
        axes.annotate(gate.removesuffix(",on_skip=accumulate"), (x, y), **label)
    axes.axhline(ALLOWED, color="grey", linestyle=":")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("bytes, relative to fasgd without a gate")
    axes.set_ylabel("final cost, relative to fasgd without a gate")


FIGURES = (
    Figure(
        "bfasgd-fetch",
        "FASGD, figure 3, top",
        "Ten times fewer fetches cost hardly any accuracy.",
        lambda quick: _runs(_FETCH_GATES, quick),
        _fetch_judge,
        _fetch_draw,
    ),
    Figure(
        "bfasgd-push",
        "FASGD, figure 3, bottom",
        "Fewer pushes make training diverge quickly; another way to hold updates back might do better.",
        lambda quick: _runs(_PUSH_GATES, quick),
        _push_judge,
        _push_draw,
    ),
    Figure(
        "bfasgd-both",
        "beyond FASGD: pushes and fetches together",
        "With accumulated updates, pushes can be gated as well as fetches.",
        lambda quick: _runs(_BOTH_GATES, quick),
        _both_judge,
        _both_draw,
    ),
)
