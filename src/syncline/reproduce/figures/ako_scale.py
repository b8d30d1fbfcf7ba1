"""Ako, figure 9: accuracy against time on 16, 32 and 64 machines, and the bytes that a worker sends."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from syncline.reproduce.figure import Compared, Figure, FigureRun, Results, Verdict, is_true
from syncline.reproduce.figures.ako_cluster import BYTES, CLOUD, STEP, AkoCluster, bytes_per_round, reached

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

SIZES, QUICK_SIZES = (16, 32, 64), (8, 16)
FULL, QUICK = AkoCluster(CLOUD, 180.0, 64), AkoCluster(CLOUD, 120.0, 16)
SHARES = (1 / 16, 1 / 8, 1 / 4, 3 / 8)
"""The shares of the machines that are servers, of which the best is taken."""
FEW_SHARE = 1 / 8
"""The share that is too few."""

TARGET = 0.95
"""The accuracy to reach, as a fraction of the best accuracy of any split into workers and servers."""

EXCHANGE, BEST, FEW = "exchange", "best servers", "too few servers"
ALL, SHARED = "all-to-all", "co-located"
COLOURS = {EXCHANGE: "#3b6ea5", BEST: "#5a9e6f", FEW: "#e8a33d", SHARED: "#a05195", ALL: "#b5533c"}


def _splits(machines: int) -> list[tuple[int, bool]]:
    """(servers, whether workers use copies of the parameters for several steps)."""
    counts = dict.fromkeys(max(1, round(share * machines)) for share in SHARES)
    return [(servers, cached) for servers in counts for cached in (False, True)]


def split_name(machines: int, servers: int, cached: bool) -> str:
    return f"{machines - servers} workers, {servers} servers{', cached' if cached else ''}"


def name(machines: int, system: str) -> str:
    return f"{machines} machines, {system}"


def _runs(quick: bool) -> list[FigureRun]:
    cluster = QUICK if quick else FULL
    found = [] if quick else [cluster.exchange(name(8, EXCHANGE), 8), cluster.all_to_all(name(8, ALL), 8)]
    for n in QUICK_SIZES if quick else SIZES:
        found.append(cluster.exchange(name(n, EXCHANGE), n))
        found += [
            cluster.split(split_name(n, servers, cached), n - servers, servers, cached)
            for servers, cached in _splits(n)
        ]
        found += [cluster.all_to_all(name(n, ALL), n), cluster.colocated(name(n, SHARED), n)]
    return found


def _sizes(results: Results) -> list[int]:
    """The numbers of machines for which all systems were simulated."""
    return [n for n in (8, *SIZES) if name(n, SHARED) in results]


def _target(results: Results, machines: int) -> float:
    """The accuracy to reach."""
    splits = [results[split_name(machines, *each)] for each in _splits(machines)]
    return TARGET * max(point.accuracy for each in splits for point in each.curve)


def _chosen(results: Results, machines: int) -> dict[str, str]:
    """The run of each system; the best split is the one that reaches the accuracy first."""
    splits, target = [split_name(machines, *each) for each in _splits(machines)], _target(results, machines)
    return {
        EXCHANGE: name(machines, EXCHANGE),
        BEST: min(splits, key=lambda each: reached(results[each], target) or inf),
        FEW: split_name(machines, max(1, round(FEW_SHARE * machines)), cached=False),
        SHARED: name(machines, SHARED),
        ALL: name(machines, ALL),
    }


def _times(results: Results, machines: int) -> tuple[float, dict[str, float | None]]:
    """The accuracy to reach, and the seconds that each system needs."""
    target = _target(results, machines)
    return target, {system: reached(results[run], target) for system, run in _chosen(results, machines).items()}


def _bytes(results: Results) -> dict[int, tuple[float, float]]:
    """For each number of machines: the bytes that a worker sends in a step with exchange and with all-to-all."""
    sizes = [n for n in (8, *SIZES) if name(n, EXCHANGE) in results]
    return {n: (bytes_per_round(results[name(n, EXCHANGE)]), bytes_per_round(results[name(n, ALL)])) for n in sizes}


def _is_constant(machines: int, sent: float) -> bool:
    """Whether a worker sends between (p - 1) / p and 1 of what its link can carry in a step."""
    p, full = FULL.parts(machines), BYTES / CLOUD * STEP
    return (p - 1) / p * full <= sent <= full


def _judge(results: Results) -> Verdict:
    sizes = _sizes(results)
    times = {n: _times(results, n) for n in sizes}
    large = sizes[-1]
    target, seconds = times[large]
    fast, slow = seconds[EXCHANGE], seconds[BEST]
    saved = 1 - fast / slow if fast is not None and slow is not None else 0.0
    sent = _bytes(results)
    linear = all(abs(each / (BYTES * (n - 1)) - 1) < 0.1 for n, (_, each) in sent.items())
    compared = (
        Compared(f"time saved to {target:.1%}, {large} machines", 0.25, saved, no_effect=0.0),
        is_true("all-to-all does not get there", seconds[ALL] is None),
        is_true("too few servers take longer than the best split", _later(seconds[FEW], slow)),
        is_true("co-located servers take longer than the best split", _later(seconds[SHARED], slow)),
        is_true(
            "with exchange a worker sends as much, however many there are", all(map(_is_constant, sent, _first(sent)))
        ),
        is_true("all-to-all sends in proportion to the number of machines", linear),
    )
    words = (
        f"on {large} machines exchange reaches {target:.1%} in {_said(fast)}, the best servers "
        f"({_chosen(results, large)[BEST]}) in {_said(slow)} (paper: exchange takes 25 % less), the best whose workers "
        f"wait for every answer in {_said(_waiting(results, large, target))}; too few servers: "
        f"{_said(seconds[FEW])}, co-located: {_said(seconds[SHARED])}, all-to-all: {_said(seconds[ALL])}"
    )
    return Verdict(compared, words, _numbers(results, times, sent))


def _waiting(results: Results, machines: int, target: float) -> float | None:
    """The seconds of the best split without copies that are used for several steps."""
    names = [split_name(machines, servers, cached) for servers, cached in _splits(machines) if not cached]
    return min((found for each in names if (found := reached(results[each], target)) is not None), default=None)


def _first(sent: dict[int, tuple[float, float]]) -> list[float]:
    return [each for each, _ in sent.values()]


def _later(some: float | None, other: float | None) -> bool:
    return other is not None and (some is None or some > other)


def _said(seconds: float | None) -> str:
    return "never" if seconds is None else f"{seconds:.0f} s"


def _numbers(results: Results, times: dict[int, Any], sent: dict[int, tuple[float, float]]) -> dict[str, Any]:
    return {
        "seconds": {
            n: {
                "target": target,
                "best_servers": _chosen(results, n)[BEST],
                "splits": {each: reached(results[each], target) for each in (split_name(n, *s) for s in _splits(n))},
                **seconds,
            }
            for n, (target, seconds) in times.items()
        },
        "bytes_per_round": {
            n: {EXCHANGE: some, ALL: all_, "link": BYTES / CLOUD * STEP, "p": FULL.parts(n)}
            for n, (some, all_) in sent.items()
        },
    }


def _draw(results: Results, picture: Picture) -> None:
    sizes = _sizes(results)
    axes: Sequence[Any] = picture.subplots(1, len(sizes), sharey=True)
    for place, machines in zip(axes, sizes, strict=True):
        chosen = _chosen(results, machines)
        for system, run in chosen.items():
            curve = results[run].curve
            x, y = [point.seconds for point in curve], [point.accuracy for point in curve]
            place.plot(x, y, color=COLOURS[system], label=system, linewidth=1)
        place.axhline(_target(results, machines), color="grey", linestyle=":", label="the accuracy to reach")
        words = f"{machines} machines, p = {FULL.parts(machines)}\nbest: {chosen[BEST]}\ntoo few: {chosen[FEW]}"
        place.set_title(words, fontsize=8)
        place.set_xlabel("virtual seconds; a step takes 1 s")
    axes[0].set_ylabel("accuracy")
    picture.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=6, frameon=False, fontsize=8)


FIGURE = Figure(
    "ako-scale",
    "Ako, figure 9",
    "On 64 machines, exchange reaches the same accuracy in 25 % less time than the best split with servers.",
    _runs,
    _judge,
    _draw,
)
