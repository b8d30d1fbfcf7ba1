"""The curve of a run: how good the model was, and what it had cost, at even distances on the way."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

from syncline.errors import UsageError


class Point(NamedTuple):
    """A look at the model on the way."""

    seconds: float
    """Of virtual time; with a dispatch, turns."""
    iterations: int
    """Of all workers together."""
    loss: float
    accuracy: float
    bytes_pushed: int
    bytes_pulled: int


class Curve:
    """A point after every `every` iterations of all workers together; None: no point at all."""

    def __init__(self, every: int | None = None) -> None:
        if every is not None and every < 1:
            raise UsageError("every", f"must be at least 1 iteration, not {every}")
        self._every: float = inf if every is None else every
        self.due = self._every
        """When so many iterations are done, the next look is due."""
        self.points: list[Point] = []

    def add(self, point: Point) -> None:
        self.points.append(point)
        while self.due <= point.iterations:
            self.due += self._every
