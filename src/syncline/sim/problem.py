"""What is being trained: where gradients come from, and how good a model is."""

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
"""Real values per bucket of a made-up model."""


class Quality(NamedTuple):
    """How good a model is on data it was not trained on."""

    loss: float
    accuracy: float


class Problem(Protocol):
    """A model and its data. Everything is a pure function of the parameters, the worker and the iteration."""

    @property
    def layout(self) -> Layout: ...

    @property
    def optimizer(self) -> Rule:
        """The workers' own optimizer, for the modes in which workers optimise."""
        ...

    @property
    def always_finite(self) -> bool:
        """Its updates cannot hold NaN or infinity, so nobody needs to look."""
        ...

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        """The initial model, cut into these buckets; from now on all pieces come in this order."""
        ...

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        """The gradient of one batch, in fresh arrays."""
        ...

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        """How good these parameters are; None if that means nothing."""
        ...


_NONE: tuple[int, list[list[Values]]] = (0, [])


class MadeUp:
    """Made-up updates for a model of this many parameters: each bucket has a few real values and its true wire size."""

    optimizer: Rule = Add()
    always_finite = True

    def __init__(self, parameters: int, draw: Draw) -> None:
        self.layout = Layout.of([("made-up", (parameters,))])
        self._draw = draw
        self._blocks: dict[int, tuple[int, list[list[Values]]]] = {}
        """Of each worker: the first iteration of its present block, and the updates of the iterations in it."""

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
    """The same for a list of tables, each of which has its share of a pass; `shares` are together 1."""

    def __init__(self, layout: Layout, shares: Sequence[float], draw: Draw) -> None:
        super().__init__(layout.size, draw)
        self.layout = layout
        self.shares = tuple(shares)
