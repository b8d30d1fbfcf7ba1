"""The cluster of the modularized parameter server: four machines on 1 Gbit Ethernet, each a worker and a server.

recipes/layer_shares.py has the time of a step on one machine. Links count payload bytes only: the cost of headers and
of many small messages is not included.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncline.recipes.layer_shares import STEP_SECONDS
from syncline.reproduce.figure import FigureRun, Results

MODELS = tuple(STEP_SECONDS)
HOSTS = 4
BUCKET = "128KiB"
"""A 1 Gbit link transfers this bucket in about a millisecond."""

COLOURS = ("#27476e", "#e8c33d", "#e8883d", "#7fb2d9", "#5a9e6f", "#a05195")


JITTER = 0.05
"""The variation of step times: the sigma of a lognormal distribution."""


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
    """Iterations per second, relative to one worker without communication."""
    report = results[name].report
    return hosts * float(report["iterations"]) * STEP_SECONDS[model] / float(report["virtual_seconds"])
