"""A torch classifier as a problem: parameters and gradients live in two flat buffers, which numpy sees as well."""

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
"""Bytes of a cache line."""

_TEST_BATCH = 1000
"""Test examples that are looked at together: all at once would take much memory."""


class TorchProblem:
    """Cross-entropy of one model on one data set, on one thread, so that the same input gives the same bits."""

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
        """Make every parameter, and its gradient, a view into a flat buffer that numpy sees as well."""
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
        """These of the examples to train on, and their labels."""
        chosen = torch.from_numpy(indices)
        inputs, labels = self._train
        return inputs[chosen], labels[chosen]

    def _load(self, pieces: Sequence[Values]) -> None:
        for bucket, piece in zip(self._buckets, pieces, strict=True):
            self._params[bucket.start : bucket.stop] = piece


def _aligned(size: int) -> Values:
    """Zeros that begin where a cache line does: where they begin can decide how a library adds them up."""
    spare = np.zeros(size + _LINE // 4, np.float32)
    start = -spare.ctypes.data % _LINE // 4
    return spare[start : start + size]
