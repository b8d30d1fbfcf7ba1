"""The learning curve of a run: loss, accuracy and bytes sent, at regular intervals."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from syncline.errors import UsageError


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
