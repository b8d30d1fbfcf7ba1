"""FluentPS's scalability test: one server, many workers with 1 Gbit links, and two kinds of stragglers.

The paper does not say what made workers slow, so both are tried: stragglers drawn anew each step, and machines that
stay slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.reproduce.figure import Results

STEP = 0.4
"""Seconds that a step takes a worker on average; 100 iterations took the paper's asynchronous run 46 s."""

ANEW, STAY = "drawn anew", "machines that stay slow"
STRAGGLERS = (ANEW, STAY)

RELEASES = ("soft", "lazy")
COLOURS: Mapping[str, str] = {"soft": "#e8a33d", "lazy": "#3b6ea5"}

NETWORK: Mapping[str, Any] = {"bandwidth": "1Gbit", "latency": "0.1ms"}


def machines(stragglers: str, workers: int) -> dict[str, Any]:
    """The sections of an experiment file that say how fast the workers are, and their links."""
    if stragglers == ANEW:
        compute = {"mean": STEP, "sigma": 0.2, "straggle": 0.05, "factor": 3.0}
        return {"cluster": {"workers": workers, "compute": compute}, "network": dict(NETWORK)}
    slow = range(workers - workers // 4, workers)
    return {
        "cluster": {"workers": workers, "compute": {"mean": STEP, "sigma": 0.2}},
        "network": dict(NETWORK),
        "faults": [
            {"at": 0.0, "kind": "slow", "worker": worker, "factor": 1.0 + place / len(slow)}
            for place, worker in enumerate(slow, start=1)
        ],
    }


def per_100(results: Results, name: str, key: str) -> float:
    """A figure of a run's report, for every 100 iterations of each worker."""
    report = results[name].report
    return float(report[key]) * 100 / float(report["iterations"])
