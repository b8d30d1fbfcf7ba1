"""The pace of each worker: the duration of its steps. A step lasts from an answer to the next push."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

STEPS = 8
"""The number of last steps that a worker's pace is averaged over."""


class Paces:
    """The durations of each worker's last steps in seconds, for models that adapt their bound."""

    __slots__ = ("_answered_at", "_steps")

    def __init__(self) -> None:
        self._answered_at: dict[int, float] = {}
        self._steps: dict[int, deque[float]] = {}

    def answered(self, worker: int, now: float) -> None:
        """Begin a step. A repeated answer does not begin it again."""
        self._answered_at.setdefault(worker, now)

    def pushed(self, worker: int, now: float) -> None:
        answered = self._answered_at.pop(worker, None)
        if answered is not None:
            self._steps.setdefault(worker, deque(maxlen=STEPS)).append(now - answered)

    def forget(self, worker: int) -> None:
        self._answered_at.pop(worker, None)
        self._steps.pop(worker, None)

    def steps(self) -> dict[int, deque[float]]:
        """The last complete steps of each worker."""
        return self._steps

    def recall(self, worker: int, steps: Iterable[float]) -> None:
        """Continue from steps that another server measured."""
        self._steps[worker] = deque(steps, maxlen=STEPS)

    def means(self, members: Container[int]) -> list[float]:
        """The mean step duration in seconds of each of these workers that has completed a step."""
        return [sum(steps) / len(steps) for worker, steps in self._steps.items() if worker in members]
