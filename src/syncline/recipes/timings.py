"""What a comparison has measured: left by worker 0, and put together for the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from syncline.errors import RunError
from syncline.recipes.job import Job
from syncline.sim.report import SCHEMA

TARGET = 0.95
SYNCS = ("bsp", "ssp:3", "asp", "pssp:s=3,p=0.5")
REPEATS = 5

_FILE = "timings.json"


class Timing(msgspec.Struct, frozen=True):
    """One run of one system; None: it did not come that far."""

    system: str
    repeat: int
    seconds: float | None
    """To the target."""
    steps: int | None
    """Of worker 0, to the target."""
    step_seconds: float
    """Of worker 0, on average over all its steps."""
    accuracy: float
    """At the end."""


class Timings(msgspec.Struct, frozen=True):
    timings: list[Timing]
    pauses: list[float]
    """Seconds that each worker was late in each step."""


def leave_timings(directory: Path, timings: list[Timing], pauses: list[float]) -> None:
    (directory / _FILE).write_bytes(msgspec.json.encode(Timings(timings, pauses)))


def read_comparison(job: Job, lane: str) -> dict[str, Any]:
    """The report of a comparison: a row a system, with the medians."""
    path = Path(job.directory) / _FILE
    if not path.is_file():
        raise RunError("worker 0, which keeps the time, is gone")
    found = msgspec.json.decode(path.read_bytes(), type=Timings)
    names = dict.fromkeys(timing.system for timing in found.timings)
    return {
        "schema": SCHEMA,
        "engine": "local",
        "lane": lane,
        "target_accuracy": TARGET,
        "repeats": REPEATS,
        "iterations": job.iterations,
        "late_seconds": found.pauses,
        "rows": [_row(name, [each for each in found.timings if each.system == name]) for name in names],
    }


def _row(name: str, timings: Sequence[Timing]) -> dict[str, Any]:
    there = [timing for timing in timings if timing.seconds is not None]
    return {
        "system": name,
        "reached": len(there),
        "seconds": _median(each.seconds for each in there) if len(there) == len(timings) else None,
        "steps": _median(each.steps for each in there) if len(there) == len(timings) else None,
        "step_seconds": _median(each.step_seconds for each in timings),
        "accuracy": _median(each.accuracy for each in timings),
        "runs": [msgspec.structs.asdict(each) for each in timings],
    }


def _median(values: Iterable[float | None]) -> float:
    return float(median(value for value in values if value is not None))
