"""The staleness of updates: how often each value occurred, and the figures of a report that follow from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

Histogram = Mapping[int, int]
"""How many updates had each staleness, counted per bucket."""

MOST_BINS = 64
"""The most rows of a histogram in a report."""

MOST_VALUES = 1024
"""The most different values that a server sends."""


def merged(histograms: Iterable[Histogram]) -> Counter[int]:
    """The sum of several histograms."""
    found: Counter[int] = Counter()
    for each in histograms:
        found.update(each)
    return found


def condensed(histogram: Histogram, most: int = MOST_VALUES) -> dict[int, int]:
    """At most this many values: if there are more, each stands for a range and is the smallest of it.

    A peer that names a version that there is not yet would have a negative staleness, which counts as 0.
    """
    width = _width(histogram, most) if len(histogram) > most else 1
    found: Counter[int] = Counter()
    for value, count in sorted(histogram.items()):
        found[max(0, value - value % width)] += count
    return dict(found)


def staleness_figures(histogram: Histogram) -> dict[str, Any]:
    """The mean, the largest, and rows of (smallest, largest, updates); None and no rows if nothing was counted.

    The rows have one value each, or, if there would be more than `MOST_BINS`, ranges of equal width.
    """
    updates = sum(histogram.values())
    if not updates:
        return {"staleness_mean": None, "staleness_max": None, "staleness_histogram": []}
    width = _width(histogram, MOST_BINS)
    bins: Counter[int] = Counter()
    for value, count in histogram.items():
        bins[value // width] += count
    return {
        "staleness_mean": sum(value * count for value, count in histogram.items()) / updates,
        "staleness_max": max(histogram),
        "staleness_histogram": [[place * width, (place + 1) * width - 1, bins[place]] for place in sorted(bins)],
    }


def _width(histogram: Histogram, most: int) -> int:
    """The smallest power of two for which ranges of this width are at most `most`."""
    width = 1
    while max(histogram) // width >= most:
        width *= 2
    return width
