"""What is trained: computes gradients and measures how good a model is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol

import numpy as np

from syncline.draw import Draw
from syncline.layout import Bucket, Layout, Values
from syncline.rules import Add, Rule
from syncline.sim.compute import BLOCK

_REAL_VALUES = 4
"""The number of real values per bucket of a made-up model."""


class Quality(NamedTuple):
    """How good a model is on data that it was not trained on."""

    loss: float
    accuracy: float


class Problem(Protocol):
    """A model and its data. Everything is a pure function of the parameters, the worker and the iteration."""

    @property
    def layout(self) -> Layout: ...

    @property
    def optimizer(self) -> Rule:
        """The workers' optimizer, for the modes in which workers optimise."""
        ...

    @property
    def always_finite(self) -> bool:
        """True if updates cannot contain NaN or infinity; the workers then skip the check."""
        ...

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        """The initial model, cut into these buckets. All later pieces are in the same order."""
        ...

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        """The gradient of one batch, in new arrays."""
        ...

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        """How good these parameters are; None if the problem has no such measure."""
        ...


_NONE: tuple[int, list[list[Values]]] = (0, [])


class MadeUp:
    """Made-up updates for a model of this many parameters: each bucket has a few real values and its real wire size."""

    optimizer: Rule = Add()
    always_finite = True

    def __init__(self, parameters: int, draw: Draw) -> None:
        self.layout = Layout.of([("made-up", (parameters,))])
        self._draw = draw
        self._blocks: dict[int, tuple[int, list[list[Values]]]] = {}
        """For each worker: the first iteration of its current block, and the updates of the iterations in it."""

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        return [np.zeros(min(_REAL_VALUES, bucket.size), np.float32) for bucket in buckets]

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        first, updates = self._blocks.get(worker, _NONE)
        place = iteration - first
        if not 0 <= place < len(updates):
            number, place = divmod(iteration, BLOCK)
            updates = self._block(pieces, worker, number)
            self._blocks[worker] = (number * BLOCK, updates)
        return updates[place]

    def _block(self, pieces: Sequence[Values], worker: int, number: int) -> list[list[Values]]:
        """The updates of a worker for BLOCK iterations."""
        cuts = list(accumulate(len(piece) for piece in pieces))
        drawn = self._draw.values(BLOCK * cuts[-1], "update", worker, number).reshape(BLOCK, cuts[-1])
        columns = [list(drawn[:, start:stop]) for start, stop in pairwise([0, *cuts])]
        return list(map(list, zip(*columns, strict=True)))

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        return None


class Layers(MadeUp):
    """Made-up updates for a list of tables; `shares` gives each table's share of a pass, and their sum is 1."""

    def __init__(self, layout: Layout, shares: Sequence[float], draw: Draw) -> None:
        super().__init__(layout.size, draw)
        self.layout = layout
        self.shares = tuple(shares)
