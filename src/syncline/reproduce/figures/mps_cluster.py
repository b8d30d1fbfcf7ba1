"""The modularized parameter server's cluster: four machines, each a worker and a server, joined by 1 Gbit Ethernet.

How long a step takes one of its machines is said in recipes/layer_shares.py. Links count payload bytes only, so what
headers and many small messages cost is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.recipes.layer_shares import STEP_SECONDS
from syncline.reproduce.figure import FigureRun, Results

MODELS = tuple(STEP_SECONDS)
HOSTS = 4
BUCKET = "128KiB"
"""A bucket that a 1 Gbit link carries in about a millisecond."""

COLOURS = ("#27476e", "#e8c33d", "#e8883d", "#7fb2d9", "#5a9e6f", "#a05195")


JITTER = 0.05
"""By how much a step's time varies: the sigma of a lognormal."""


def run(name: str, model: str, strategy: Mapping[str, Any], quick: bool, hosts: int = HOSTS) -> FigureRun:
    """A run of one of the models."""
    return FigureRun(
        name,
        {
            "iterations": 12 if quick else 40,
            "seed": 5,
            "cluster": {
                "workers": hosts,
                "colocated": True,
                "compute": {"mean": STEP_SECONDS[model], "sigma": JITTER},
            },
            "network": {"bandwidth": "1Gbit", "latency": "0.1ms"},
            "model": {"layers": model},
            "strategy": {"servers": hosts, "bucket": BUCKET, **strategy},
        },
    )


def speedup(results: Results, name: str, model: str, hosts: int = HOSTS) -> float:
    """Iterations a second, as a multiple of one worker that computes alone."""
    report = results[name].report
    return hosts * float(report["iterations"]) * STEP_SECONDS[model] / float(report["virtual_seconds"])
