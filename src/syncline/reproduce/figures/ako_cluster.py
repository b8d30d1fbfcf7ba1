"""The machines of the Ako paper, and the systems that it compares.

The model is a small one, `digits-mlp`, so that 64 replicas can really learn in a simulation. What decides the figures
is as in the paper: how long a link needs for the whole model, relative to a step.

An example has the same weight in every system, as in the paper, where workers add up gradients. Syncline divides by the
number of workers, so the learning rate is proportional to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any

from syncline.layout import VALUE_BYTES
from syncline.recipes import RECIPES
from syncline.reproduce.figure import FigureRun, Result

RECIPE = "digits-mlp"
BYTES = RECIPES[RECIPE].values * VALUE_BYTES
"""The size of the model."""

STEP = 1.0
"""The mean seconds of a step."""

CLOUD = 0.317 * STEP
"""The seconds that a link needs for the model in the paper's cluster of 64, where the cost model chose 20 ranges."""

PRIVATE = 2.9 / 15 * STEP
"""The same in its cluster of 16, where the cost model chose 3 ranges."""

LEARNING_RATE = 0.0384
"""Of all machines of the largest cluster of a figure together; a higher one is too much for updates that are old."""

SEED = 3
BATCH = 4
SYNC = "ssp:4"
POINTS = 40
"""Points of a curve in 100 steps."""


@dataclass(frozen=True)
class AkoCluster:
    """The links and the length of a figure's runs."""

    model_seconds: float
    """How long a link needs for the model."""
    seconds: float
    """The virtual seconds of a run."""
    largest: int
    """The number of machines of the largest cluster."""

    def load(self, machines: int) -> float:
        """What a worker would send without ranges, as a multiple of its bandwidth (the paper's equation 3)."""
        return (machines - 1) * self.model_seconds / STEP

    def parts(self, machines: int) -> int:
        """The number of ranges that the cost model chooses."""
        return ceil(self.load(machines))

    def experiment(self, workers: int, strategy: Mapping[str, Any], seed: int = SEED) -> dict[str, Any]:
        rate = LEARNING_RATE * workers / self.largest
        return {
            "seed": seed,
            "stop": {"seconds": self.seconds},
            "cluster": {"workers": workers, "compute": {"mean": STEP, "sigma": 0.1}},
            "network": {"bandwidth": f"{8 * BYTES / self.model_seconds / 1000:.3f}kbit", "latency": "1ms"},
            "model": {"recipe": RECIPE, "batch": BATCH, "optimizer": f"sgd:{rate:.6g}"},
            "strategy": dict(strategy),
        }

    def exchange(self, name: str, machines: int, seed: int = SEED, **settings: Any) -> FigureRun:
        """Workers that send each other parts of their updates; by default as many as the cost model chooses."""
        strategy = {"kind": "exchange", "partitions": self.parts(machines), **settings}
        return FigureRun(name, self.experiment(machines, strategy, seed), POINTS)

    def all_to_all(self, name: str, machines: int) -> FigureRun:
        """Every worker sends every update whole to all others."""
        return self.exchange(name, machines, partitions=1)

    def split(self, name: str, workers: int, servers: int, cached: bool = False) -> FigureRun:
        """Some machines are workers, the others servers; `cached`: a worker uses its copy for up to four steps."""
        strategy: dict[str, Any] = {"servers": servers, "sync": SYNC, "mode": "changes", "overlap": "forward"}
        if cached:
            strategy |= {"overlap": "backward", "gate": "cached:4"}
        return FigureRun(name, self.experiment(workers, strategy), POINTS)

    def colocated(self, name: str, machines: int) -> FigureRun:
        """Every machine is a worker and a server."""
        content = dict(self.split(name, machines, machines).experiment)
        content["cluster"] = {**content["cluster"], "colocated": True}
        return FigureRun(name, content, POINTS)


def reached(result: Result, accuracy: float) -> float | None:
    """The virtual seconds after which a model has this accuracy, as a mean of three points; None: never."""
    curve = result.curve
    means = (sum(point.accuracy for point in curve[at - 1 : at + 2]) / 3 for at in range(1, len(curve) - 1))
    return next((curve[at].seconds for at, mean in enumerate(means, start=1) if mean >= accuracy), None)


def accuracy_at(result: Result, seconds: float) -> float:
    """The last accuracy that was measured until then; 0 if none was."""
    return next((point.accuracy for point in reversed(result.curve) if point.seconds <= seconds), 0.0)


def bytes_per_round(result: Result) -> float:
    """The bytes that a worker sends for each of its updates, on average."""
    return float(result.report["bytes_pushed"]) / float(result.report["updates"])
