"""FluentPS, figure 6: compute and communication time, by system.

The systems are a central scheduler, shards that synchronise independently, and the same with elastic slicing. The model
is ResNet-56, with batches of 4,096 divided among the workers, 8 servers, and about 1.25 Gbit per machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from syncline.layout import Table
from syncline.reproduce.figure import Compared, Figure, FigureRun, Results, Verdict

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

WORKERS = (8, 16, 32)
BATCH_SECONDS = 8.0
"""The time that one machine needs to compute a whole batch: about 500 images per second."""


def by_key(tables: tuple[Table, ...], servers: int) -> list[Sequence[str]]:
    """PS-Lite's default: each server holds the same number of neighbouring tables, regardless of their sizes."""
    cuts = [len(tables) * server // servers for server in range(servers + 1)]
    return [[table.name for table in tables[start:stop]] for start, stop in pairwise(cuts)]


BY_KEY = f"{__name__}.by_key"

SYSTEMS: Mapping[str, Mapping[str, Any]] = {
    "central scheduler": {"placement": BY_KEY, "central": True},
    "shards of their own": {"placement": BY_KEY},
    "and elastic slicing": {"placement": "elastic"},
}
COLOURS = ("#b5533c", "#e8a33d", "#3b6ea5")


def _name(workers: int, system: str) -> str:
    return f"{workers} workers, {system}"


def _runs(quick: bool) -> list[FigureRun]:
    return [
        FigureRun(
            _name(workers, system),
            {
                "iterations": 5 if quick else 50,
                "seed": 6,
                "cluster": {"workers": workers, "compute": {"mean": BATCH_SECONDS / workers, "sigma": 0.05}},
                "network": {"bandwidth": "1.25Gbit", "latency": "0.2ms"},
                "model": {"layers": "resnet56"},
                "strategy": {"servers": 8, "bucket": "64KiB", "overlap": "backward", **settings},
            },
        )
        for workers in WORKERS
        for system, settings in SYSTEMS.items()
    ]


def _times(results: Results, workers: int, system: str) -> tuple[float, float]:
    """(seconds computing, other seconds) of one iteration."""
    report = results[_name(workers, system)].report
    whole = float(report["virtual_seconds"]) / int(report["iterations"])
    return BATCH_SECONDS / workers, whole - BATCH_SECONDS / workers


def _judge(results: Results) -> Verdict:
    times = {_name(n, system): _times(results, n, system) for n in WORKERS for system in SYSTEMS}
    central, own, elastic = SYSTEMS
    gain = max(sum(times[_name(n, central)]) / sum(times[_name(n, own)]) for n in WORKERS)
    more = max(sum(times[_name(n, own)]) / sum(times[_name(n, elastic)]) for n in WORKERS)
    saved = max(1 - times[_name(n, own)][1] / times[_name(n, central)][1] for n in WORKERS)
    words = (
        f"independent shards are up to {gain:.2f} times as fast as a central scheduler (paper: 4.26) "
        f"and save {saved:.0%} of the communication (paper: 86 %); elastic slicing makes them another {more:.2f} times "
        "as fast (paper: 1.42)"
    )
    numbers = {name: {"compute_seconds": a, "other_seconds": b} for name, (a, b) in times.items()}
    compared = (
        Compared("independent shards, times as fast as a central scheduler", 4.26, gain),
        Compared("communication that they save", 0.86, saved, no_effect=0.0),
        Compared("elastic slicing, times as fast", 1.42, more),
    )
    return Verdict(compared, words, numbers)


def _draw(results: Results, picture: Picture) -> None:
    axes = picture.subplots()
    for shift, (system, colour) in enumerate(zip(SYSTEMS, COLOURS, strict=True)):
        spots = [x + 0.27 * shift for x in range(len(WORKERS))]
        compute, other = zip(*(_times(results, workers, system) for workers in WORKERS), strict=True)
        axes.bar(spots, compute, 0.25, color=colour, alpha=0.45)
        axes.bar(spots, other, 0.25, bottom=compute, color=colour, label=system)
    axes.set_xticks([x + 0.27 for x in range(len(WORKERS))], [f"{workers} workers" for workers in WORKERS])
    axes.set_ylabel("seconds per iteration (pale: computing)")
    axes.legend(frameon=False)


FIGURE = Figure(
    "fluent-overlap",
    "FluentPS, figure 6",
    "Independent shards are up to 4.26 times as fast as a central scheduler; slicing makes them another 1.42 times "
    "as fast.",
    _runs,
    _judge,
    _draw,
)
