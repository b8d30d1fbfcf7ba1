"""A worker's replica, and how each of the three modes uses gradients and answers.

Pieces that came from a shard are shared between replicas. They are replaced, never modified.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from syncline.effects import Deliver, How
from syncline.layout import Values
from syncline.rules import Add, Memory, Rule
from syncline.sim.problem import Problem
from syncline.strategies.mode import Mode

_CHANGES, _GRADIENTS = Mode.CHANGES, Mode.GRADIENTS  # looking up an enum member is slow
_ADD, _ZERO = How.ADD, How.ZERO


class Steps:
    """Caches optimizer steps: replicas that apply the same mean to the same piece share one, if there is no state."""

    __slots__ = ("_last",)

    def __init__(self) -> None:
        self._last: dict[int, tuple[Values, Values, Values]] = {}
        """For each piece: the parameters before the last step, its mean, and the parameters after it."""

    def step(self, rule: Rule, place: int, piece: Values, mean: Values) -> Values:
        last = self._last.get(place)
        if last is None or last[0] is not piece or last[1] is not mean:
            last = self._last[place] = (piece, mean, _stepped(rule, piece, mean, {}))
        return last[2]


class WorkerModel:
    """The parameters of one worker, piece by piece, and the state of its optimizer."""

    __slots__ = ("_adds", "_means", "_memory", "_parts", "_problem", "_steps", "pieces")

    def __init__(
        self,
        problem: Problem,
        pieces: Sequence[Values],
        memory: list[Memory] | None = None,
        steps: Steps | None = None,
    ) -> None:
        """`steps`: a cache to share between replicas; give one only if pieces and means are never modified."""
        self._steps = steps
        self._problem = problem
        self._adds = isinstance(problem.optimizer, Add)
        self.pieces = list(pieces)
        self._memory = memory
        self._means: dict[int, Values] = {}
        self._parts: dict[int, list[tuple[slice, Values]]] = {}
        """The means of parts of a piece, if its bucket was cut."""

    def update(self, mode: Mode, worker: int, iteration: int) -> list[Values]:
        """What this worker sends after one batch: its gradient, or the change that its optimizer makes."""
        gradient = self._problem.gradient(self.pieces, worker, iteration)
        if mode is not _CHANGES:
            return gradient
        if not self._adds:
            gradient = [self._change(place, each) for place, each in enumerate(gradient)]
        return gradient

    def take(self, mode: Mode, place: int, deliver: Deliver) -> None:
        """Take in what has arrived for a piece: parameters, a round's mean, or a change (see `How`)."""
        payload = deliver.payload
        if payload is None:
            if mode is _GRADIENTS and deliver.how is _ZERO:
                self._means[place] = np.zeros_like(self.pieces[place])
        elif mode is _GRADIENTS:
            self._means[place] = payload
        elif deliver.how is _ADD:
            self.pieces[place] = self.pieces[place] + payload
        else:
            self.pieces[place] = payload

    def fresh(self, mode: Mode, place: int, payload: Values) -> None:
        """Take in an answer for a piece: parameters, or a round's mean."""
        if mode is _GRADIENTS:
            self._means[place] = payload
        else:
            self.pieces[place] = payload

    def take_part(self, mode: Mode, place: int, where: slice, deliver: Deliver) -> None:
        """Like `take`, for a part of a piece whose bucket was cut."""
        payload, how = deliver.payload, deliver.how
        if mode is _GRADIENTS:
            if how is _ZERO:
                payload = np.zeros_like(self.pieces[place][where])
            if payload is not None:
                self._parts.setdefault(place, []).append((where, payload))
        elif payload is not None:
            piece = self.pieces[place] = self.pieces[place].copy()
            piece[where] = piece[where] + payload if how is _ADD else payload

    def whole(self) -> None:
        """In mode `gradients`: the means of all buckets have arrived, and the worker's optimizer takes its step."""
        rule, pieces = self._problem.optimizer, self.pieces
        for place, mean in self._means.items():
            memory = self._remembered(place)
            if self._steps is None or memory:
                pieces[place] = _stepped(rule, pieces[place], mean, memory)
            else:
                pieces[place] = self._steps.step(rule, place, pieces[place], mean)
        self._means.clear()
        if self._parts:
            self._step_parts()

    def twin(self) -> WorkerModel:
        """A copy from which a joiner can continue: parameters and optimizer state."""
        memory = self._memory and [{key: value.copy() for key, value in each.items()} for each in self._memory]
        return WorkerModel(self._problem, self.pieces, memory, self._steps)

    def optimizer_state(self) -> list[Memory]:
        """What the worker's optimizer remembers; the caller may write to it."""
        return [self._remembered(place) for place in range(len(self.pieces))]

    def state_arrays(self) -> int:
        """How many arrays of the model's size a donor sends to a joiner."""
        return 1 + (len(self._memory[0]) if self._memory else 0)

    def _change(self, place: int, gradient: Values) -> Values:
        """The change that the worker's optimizer makes from a gradient."""
        piece = self.pieces[place]
        return _stepped(self._problem.optimizer, piece, gradient, self._remembered(place)) - piece

    def _remembered(self, place: int) -> Memory:
        if self._memory is None:
            self._memory = [self._problem.optimizer.start(piece) for piece in self.pieces]
        return self._memory[place]

    def _step_parts(self) -> None:
        """Take the optimizer's step for pieces whose buckets were cut."""
        rule = self._problem.optimizer
        for place, parts in self._parts.items():
            piece, memory = self.pieces[place].copy(), self._remembered(place)
            for where, part in parts:
                own = {name: each[where] for name, each in memory.items()}
                rule.apply(piece[where], part, own, 0, None, np.empty_like(part))
            self.pieces[place] = piece
        self._parts.clear()


def _stepped(rule: Rule, piece: Values, update: Values, memory: Memory) -> Values:
    piece = piece.copy()
    rule.apply(piece, update, memory, 0, None, np.empty_like(piece))
    return piece
