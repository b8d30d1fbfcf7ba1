"""A torch classifier as a problem: torch and numpy share two flat buffers of parameters and gradients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from syncline.layout import Bucket, Layout, Values
from syncline.recipes.data import Batches, Dataset
from syncline.rules import Rule
from syncline.sim.problem import Quality

_LINE = 64
"""The size of a cache line in bytes."""

_TEST_BATCH = 1000
"""How many test examples are evaluated at once, to limit memory use."""


class TorchProblem:
    """Cross-entropy of one model on one data set; uses one thread, so that results are bit-identical."""

    always_finite = False

    def __init__(self, model: nn.Module, data: Dataset, batches: Batches, optimizer: Rule) -> None:
        torch.set_num_threads(1)
        self.optimizer = optimizer
        self.layout = Layout.of((name, tuple(value.shape)) for name, value in model.named_parameters())
        self.model = model
        self.batches = batches
        self._train = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
        self._test = torch.from_numpy(data.x_test), torch.from_numpy(data.y_test)
        self._buckets: Sequence[Bucket] = ()
        self._flatten()

    def _flatten(self) -> None:
        """Make every parameter and its gradient a view into a flat buffer that is shared with numpy."""
        self._params = _aligned(self.layout.size)
        self._gradient = _aligned(self.layout.size)
        flat, flat_gradient = torch.from_numpy(self._params), torch.from_numpy(self._gradient)
        for table, value in zip(self.layout.tables, self.model.parameters(), strict=True):
            place = slice(table.start, table.stop)
            flat[place] = value.detach().reshape(-1)
            value.data = flat[place].view(table.shape)
            value.grad = flat_gradient[place].view(table.shape)

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        self._buckets = buckets
        return [self._params[bucket.start : bucket.stop].copy() for bucket in buckets]

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        self._load(pieces)
        self._gradient.fill(0)
        inputs, labels = self.examples(self.batches.indices(worker, iteration))
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return [self._gradient[bucket.start : bucket.stop].copy() for bucket in self._buckets]

    def quality(self, pieces: Sequence[Values]) -> Quality:
        self._load(pieces)
        inputs, labels = self._test
        with torch.no_grad():
            scores = torch.cat([self.model(some) for some in torch.split(inputs, _TEST_BATCH)])
            loss = nn.functional.cross_entropy(scores, labels)
            right = (scores.argmax(1) == labels).float().mean()
        return Quality(float(loss), float(right))

    def examples(self, indices: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """The training examples with these indices, and their labels."""
        chosen = torch.from_numpy(indices)
        inputs, labels = self._train
        return inputs[chosen], labels[chosen]

    def _load(self, pieces: Sequence[Values]) -> None:
        for bucket, piece in zip(self._buckets, pieces, strict=True):
            self._params[bucket.start : bucket.stop] = piece


def _aligned(size: int) -> Values:
    """Zeros that are aligned to a cache line: alignment can change the order in which a library adds values."""
    spare = np.zeros(size + _LINE // 4, np.float32)
    start = -spare.ctypes.data % _LINE // 4
    return spare[start : start + size]
