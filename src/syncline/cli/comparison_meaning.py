"""One sentence that says what the numbers of a comparison mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from syncline.recipes.turns import ALONE, DDP

AS_GOOD = 0.01
"""A model counts as good as that of one process if its accuracy is at most this much lower."""

AS_FAST = 0.05
"""Two systems count as equally fast if their rates differ by at most this share, as repeats of one system do."""


def meaning(figures: Mapping[str, Any]) -> str:
    """Compare the best of Syncline's sync models, and DDP, with one process: measured, and simulated."""
    rows, simulated = figures["rows"], figures["simulated"]
    best = best_row(rows)
    own, ddp = (_ratio(rows, system) for system in (best["system"], DDP))
    measured = f"{best['system']} trained {_times(own)} one process, and DDP {_times(ddp).removesuffix(' as')}"
    there = (f"{_ratio(simulated['rows'], system):.1f}" for system in (best["system"], DDP))
    expected = f"the simulator expects {' and '.join(there)} times"
    network = f"{simulated['machines']} machines with a {simulated['link_bits_per_second'] / 1e9:g} Gbit network"
    return (
        f"With {_slow_workers(figures['late_seconds'])}, {measured}, {_accuracy(best, row_of(rows, ALONE))}; "
        f"on {network} {expected}."
    )


def best_row(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Syncline's fastest row among those as good as one process; among all, if none is."""
    own = [row for row in rows if row["system"] not in (ALONE, DDP)]
    good = [row for row in own if row["accuracy"] >= row_of(rows, ALONE)["accuracy"] - AS_GOOD]
    return max(good or own, key=_rate)


def row_of(rows: Sequence[dict[str, Any]], system: str) -> dict[str, Any]:
    return next(row for row in rows if row["system"] == system)


def _slow_workers(late_seconds: Sequence[float]) -> str:
    slow = sum(seconds > 0 for seconds in late_seconds)
    return f"{slow or 'none'} of {len(late_seconds)} workers slow"


def _ratio(rows: Sequence[dict[str, Any]], system: str) -> float:
    """How many times as fast as one process a system is."""
    return _rate(row_of(rows, system)) / _rate(row_of(rows, ALONE))


def _times(ratio: float) -> str:
    return "as fast as" if abs(ratio - 1) <= AS_FAST else f"{ratio:.1f} times as fast as"


def _accuracy(best: Mapping[str, Any], alone: Mapping[str, Any]) -> str:
    """Compare the accuracy with that of one process."""
    if abs(best["accuracy"] - alone["accuracy"]) <= AS_GOOD:
        return "to about the same accuracy"
    return f"to {best['accuracy']:.1%} accuracy instead of {alone['accuracy']:.1%}"


def _rate(row: Mapping[str, Any]) -> float:
    return float(row["images_per_second"])
