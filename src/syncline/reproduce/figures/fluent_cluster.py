"""FluentPS's scalability test: one server, many workers with 1 Gbit links, and two kinds of stragglers.

The paper does not say why workers were slow, so both kinds are tried: stragglers that are drawn again in each step, and
machines that stay slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.reproduce.figure import Results

STEP = 0.4
"""The mean seconds of a worker's step; the paper's asynchronous run took 46 s for 100 iterations."""

ANEW, STAY = "drawn anew", "machines that stay slow"
STRAGGLERS = (ANEW, STAY)

RELEASES = ("soft", "lazy")
COLOURS: Mapping[str, str] = {"soft": "#e8a33d", "lazy": "#3b6ea5"}

NETWORK: Mapping[str, Any] = {"bandwidth": "1Gbit", "latency": "0.1ms"}


def machines(stragglers: str, workers: int) -> dict[str, Any]:
    """The sections of an experiment file that set the speed of the workers and of their links."""
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
    """A number of a run's report, per 100 iterations of each worker."""
    report = results[name].report
    return float(report[key]) * 100 / float(report["iterations"])
