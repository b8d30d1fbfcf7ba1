"""The learning curve of a run: loss, accuracy and bytes sent, at regular intervals."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from math import inf
from typing import NamedTuple

from syncline.errors import UsageError
from syncline.sim.trace import TextTarget


class Point(NamedTuple):
    """One measurement of the model during the run."""

    seconds: float
    """Virtual seconds; with a dispatch, turns."""
    iterations: int
    """The iterations done by all workers together."""
    loss: float
    accuracy: float
    bytes_pushed: int
    bytes_pulled: int


def write_curve(points: Iterable[Point], file: TextTarget) -> None:
    """Write the points as CSV, with a header; a loss or an accuracy that is unknown is empty."""
    rows = csv.writer(file, lineterminator="\n")
    rows.writerow(Point._fields)
    rows.writerows(["" if each != each else each for each in point] for point in points)  # NaN differs from itself


class Curve:
    """Takes a point after every `every` iterations of all workers together; None: takes no points."""

    def __init__(self, every: int | None = None) -> None:
        if every is not None and every < 1:
            raise UsageError("every", f"must be at least 1 iteration, not {every}")
        self._every: float = inf if every is None else every
        self.due = self._every
        """The number of iterations after which the next point is due."""
        self.points: list[Point] = []

    def add(self, point: Point) -> None:
        self.points.append(point)
        while self.due <= point.iterations:
            self.due += self._every
