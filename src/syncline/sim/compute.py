"""Compute times: how long worker w takes for iteration i, in virtual seconds."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.reals import exp
from syncline.units import real, seconds

BLOCK = 64
"""The number of iterations of a worker whose times are drawn at once."""

SECTION = "cluster.compute"
"""Where an experiment file sets these times, for error messages."""

MOST_SIGMA = 5.0
"""With a larger sigma almost every time is far below the mean: at 5 the median is the mean divided by 268,000."""

FACTORS = (1e-6, 1e6)
"""The least and the largest factor by which a step may take longer."""


class Compute(Protocol):
    def block(self, worker: int, number: int, draw: Draw) -> Sequence[float]:
        """The seconds of the iterations from number * BLOCK on; at most BLOCK values."""
        ...


@dataclass(frozen=True)
class Lognormal:
    """Lognormal times with this mean. With probability `straggle`, an iteration takes `factor` times as long."""

    mean: float = 0.1
    sigma: float = 0.0
    straggle: float = 0.0
    factor: float = 1.0

    def __post_init__(self) -> None:
        seconds(self.mean, f"{SECTION}.mean")
        real(self.sigma, f"{SECTION}.sigma", most=MOST_SIGMA)
        real(self.factor, f"{SECTION}.factor", *FACTORS)
        if not 0 <= self.straggle <= 1:
            raise UsageError(f"{SECTION}.straggle", f"must be a probability in [0, 1], not {self.straggle}")

    @property
    def expected(self) -> float:
        """The seconds of an iteration on average."""
        return self.mean * (1 + self.straggle * (self.factor - 1))

    def block(self, worker: int, number: int, draw: Draw) -> Sequence[float]:
        times = np.full(BLOCK, self.mean)
        if self.sigma:
            times *= exp(self.sigma * draw.normals(BLOCK, "compute", worker, number) - self.sigma**2 / 2)
        if self.straggle:
            times[draw.uniforms(BLOCK, "straggle", worker, number) < self.straggle] *= self.factor
        return times.tolist()


@dataclass(frozen=True)
class Trace:
    """Given times: one row per worker, one column per iteration."""

    rows: tuple[tuple[float, ...], ...]

    def block(self, worker: int, number: int, draw: Draw) -> Sequence[float]:
        return self.rows[worker][number * BLOCK : (number + 1) * BLOCK]


def read_trace(path: Path, workers: int, iterations: int, option: str) -> Trace:
    """Read a trace from a CSV file, which must have exactly this shape."""
    try:
        if path.is_char_device() or path.is_block_device():
            raise UsageError(option, f"{str(path)!r} is a device; name a CSV file")
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, ValueError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a CSV file"
        raise UsageError(option, f"cannot read {str(path)!r}: {reason}") from None
    if len(rows) != workers:
        raise UsageError(
            option, f"{path} has {len(rows)} rows, but there are {workers} workers; give one row per worker"
        )
    return Trace(tuple(_row(row, number, iterations, path, option) for number, row in enumerate(rows)))


def _row(words: list[str], number: int, iterations: int, path: Path, option: str) -> tuple[float, ...]:
    where = f"{path}, row {number + 1}"
    if len(words) != iterations:
        raise UsageError(
            option, f"{where} has {len(words)} columns, but there are {iterations} iterations; give one column each"
        )
    return tuple(_seconds(word, f"{where}, column {column + 1}", option) for column, word in enumerate(words))


def _seconds(word: str, where: str, option: str) -> float:
    try:
        return seconds(float(word), option)
    except ValueError:
        raise UsageError(option, f"{where}: {word!r} is not a number of seconds") from None
    except UsageError as error:
        raise UsageError(option, f"{where}: {error.problem}") from None
