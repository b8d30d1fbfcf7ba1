"""A worker's copy of the model, and what the three modes make of a gradient and of an answer.

Pieces that came from a shard are shared snapshots: they are replaced, never written.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncline.layout import Values
from syncline.rules import Add, Memory
from syncline.sim.problem import Problem
from syncline.strategy import Mode

_CHANGES, _GRADIENTS = Mode.CHANGES, Mode.GRADIENTS  # a member of an enum is slow to look up


class Replica:
    """The parameters as one worker holds them, piece by piece, with its optimizer's memory."""

    __slots__ = ("_changes", "_means", "_memory", "_parts", "_problem", "pieces")

    def __init__(self, problem: Problem, pieces: Sequence[Values], memory: list[Memory] | None = None) -> None:
        self._problem = problem
        self.pieces = list(pieces)
        self._memory = memory
        self._means: dict[int, Values] = {}
        self._parts: dict[int, list[tuple[slice, Values]]] = {}
        """Means of parts of a piece, where it was cut."""
        self._changes: list[Values] = []

    def update(self, mode: Mode, worker: int, iteration: int) -> list[Values]:
        """What this worker sends after one batch: its gradient, or the change that its own optimizer makes."""
        gradient = self._problem.gradient(self.pieces, worker, iteration)
        if mode is not _CHANGES:
            return gradient
        if not isinstance(self._problem.optimizer, Add):
            after = self._stepped(gradient)
            gradient = [new - old for new, old in zip(after, self.pieces, strict=True)]
        self._changes = gradient
        return gradient

    def fresh(self, mode: Mode, place: int, payload: Values | None) -> None:
        """An answer came in: parameters, or a round's mean; None: nothing new, so the worker keeps its own change."""
        if payload is None:
            if self._changes:
                self.pieces[place] = self.pieces[place] + self._changes[place]
        elif mode is _GRADIENTS:
            self._means[place] = payload
        else:
            self.pieces[place] = payload

    def fresh_part(self, mode: Mode, place: int, where: slice, payload: Values | None) -> None:
        """The same for a part of a piece, whose bucket was cut."""
        if mode is _GRADIENTS:
            if payload is not None:
                self._parts.setdefault(place, []).append((where, payload))
        elif payload is not None or self._changes:
            piece = self.pieces[place] = self.pieces[place].copy()
            piece[where] = piece[where] + self._changes[place][where] if payload is None else payload

    def whole(self) -> None:
        """In `gradients` mode: every bucket's mean is there, and the worker's optimizer takes its step."""
        if self._means or self._parts:
            self.pieces = self._stepped([self._means.get(place) for place in range(len(self.pieces))])
            self._means, self._parts = {}, {}

    def twin(self) -> Replica:
        """A copy that a joiner can go on with: parameters and optimizer state."""
        memory = self._memory and [{key: value.copy() for key, value in each.items()} for each in self._memory]
        return Replica(self._problem, self.pieces, memory)

    def state_arrays(self) -> int:
        """How many arrays of the model's size a joiner is sent."""
        return 1 + (len(self._memory[0]) if self._memory else 0)

    def _stepped(self, gradient: Sequence[Values | None]) -> list[Values]:
        rule = self._problem.optimizer
        if self._memory is None:
            self._memory = [rule.start(piece) for piece in self.pieces]
        after = []
        for place, (piece, update, memory) in enumerate(zip(self.pieces, gradient, self._memory, strict=True)):
            if place in self._parts:
                piece = piece.copy()
                for where, part in self._parts[place]:
                    rule.apply(piece[where], part, {name: each[where] for name, each in memory.items()}, 0, None)
            elif update is not None:
                piece = piece.copy()
                rule.apply(piece, update, memory, 0, None)
            after.append(piece)
        return after
