"""How many ranges are best for partial exchange between workers: the cost model of the Ako paper (equation 3).

A worker sends one range to each of the n - 1 others after each update. So p = ceil(rate * bytes * (n - 1) / bandwidth)
is the least number of ranges with which the links keep up with the updates.
"""

from __future__ import annotations

from math import ceil, inf, isfinite

MOST_CHOSEN = 256
"""The most ranges that the workers choose themselves: with more, a worker learns of updates too late to be of use."""


def load(rate: float, model_bytes: int, workers: int, bandwidth: float) -> float:
    """The bytes that a worker would send per second without ranges, as a multiple of its bandwidth."""
    return 0.0 if bandwidth == inf else rate * model_bytes * (workers - 1) / bandwidth


def best_parts(found: float, values: int) -> int:
    """The number of ranges for this load; at most one range for each value of the model."""
    return max(1, min(ceil(found) if isfinite(found) else MOST_CHOSEN, values, MOST_CHOSEN))
