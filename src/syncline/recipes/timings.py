"""The timings of a comparison: worker 0 writes them to a file, and the launcher makes the report from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from syncline.errors import RunError
from syncline.recipes.job import RecipeJob
from syncline.recipes.machines import Measured, simulated_machines
from syncline.recipes.turns import ALONE
from syncline.sim.report import SCHEMA

_FILE = "timings.json"


class Timing(msgspec.Struct, frozen=True):
    """One turn of one system."""

    system: str
    slow: bool
    """Whether the slow workers paused in every step."""
    repeat: int
    seconds: float
    images: int
    """The number of images that all workers trained on in these seconds."""
    accuracy: float
    """The accuracy on the test images at the end."""

    @property
    def rate(self) -> float:
        """Images per second."""
        return self.images / self.seconds


class Timings(msgspec.Struct, frozen=True):
    """All results of a comparison."""

    timings: list[Timing]
    measured: Measured
    late_seconds: list[float]
    """For each worker: how many seconds it pauses in every step of a turn with a slow worker."""


def write_timings(directory: Path, timings: Timings) -> None:
    (directory / _FILE).write_bytes(msgspec.json.encode(timings))


def read_comparison(job: RecipeJob, lane: str) -> dict[str, Any]:
    """The report of a comparison: one row per system with the medians, and the simulator's prediction."""
    path = Path(job.directory) / _FILE
    if not path.is_file():
        raise RunError("worker 0 ended before it wrote the timings")
    found = msgspec.json.decode(path.read_bytes(), type=Timings)
    names = dict.fromkeys(timing.system for timing in found.timings)
    rows = [_row(name, [each for each in found.timings if each.system == name]) for name in names]
    return {
        "schema": SCHEMA,
        "engine": "local",
        "lane": lane,
        "workers": job.workers,
        "images": job.iterations * job.workers * job.batch,
        "images_a_round": job.workers * job.batch,
        "repeats": job.repeats,
        "step_seconds": found.measured.step_seconds,
        "round_seconds": found.measured.round_seconds,
        "late_seconds": found.late_seconds,
        "rows": rows,
        "simulated": simulated_machines(job, found.measured),
    }


def _row(name: str, timings: Sequence[Timing]) -> dict[str, Any]:
    """The medians of one system. One process has no slow worker, so both of its rates are the same."""
    slow = [each for each in timings if each.slow or name == ALONE]
    equal = [each for each in timings if not each.slow]
    return {
        "system": name,
        "images_per_second_equal": _median(equal, lambda each: each.rate),
        "images_per_second": _median(slow, lambda each: each.rate),
        "seconds": _median(slow, lambda each: each.seconds),
        "accuracy": _median(slow, lambda each: each.accuracy),
        "runs": [msgspec.structs.asdict(each) for each in timings],
    }


def _median(timings: Sequence[Timing], figure: Callable[[Timing], float]) -> float:
    return float(median(map(figure, timings)))
