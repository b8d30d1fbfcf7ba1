"""How fast each worker steps, a step being the time from an answer to the next push."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Iterable

STEPS = 8
"""Over how many of its last steps a worker's pace is measured."""


class Paces:
    """The last steps of each worker, for models that adapt their bound."""

    __slots__ = ("_answered_at", "_steps")

    def __init__(self) -> None:
        self._answered_at: dict[int, float] = {}
        self._steps: dict[int, deque[float]] = {}

    def answered(self, worker: int, now: float) -> None:
        """The first answer counts: one that is repeated does not shorten the step."""
        self._answered_at.setdefault(worker, now)

    def pushed(self, worker: int, now: float) -> None:
        answered = self._answered_at.pop(worker, None)
        if answered is not None:
            self._steps.setdefault(worker, deque(maxlen=STEPS)).append(now - answered)

    def forget(self, worker: int) -> None:
        self._answered_at.pop(worker, None)
        self._steps.pop(worker, None)

    def steps(self) -> dict[int, deque[float]]:
        """The last steps of each worker; what it is in the middle of is not among them."""
        return self._steps

    def recall(self, worker: int, steps: Iterable[float]) -> None:
        """Go on from steps that were measured elsewhere."""
        self._steps[worker] = deque(steps, maxlen=STEPS)

    def means(self, members: Container[int]) -> list[float]:
        """The mean seconds of a step, for each of these workers that has made one."""
        return [sum(steps) / len(steps) for worker, steps in self._steps.items() if worker in members]
