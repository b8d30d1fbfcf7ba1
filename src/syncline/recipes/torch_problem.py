"""A torch classifier as a problem for the simulator: parameters and gradients live in two flat buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from syncline.layout import Bucket, Layout, Values
from syncline.recipes.data import Batches, Dataset
from syncline.rules import Rule
from syncline.sim.problem import Quality


class TorchProblem:
    """Cross-entropy of one model on one data set, on one thread, so that the same input gives the same bits."""

    always_finite = False

    def __init__(self, model: nn.Module, data: Dataset, batches: Batches, optimizer: Rule) -> None:
        torch.set_num_threads(1)
        self.optimizer = optimizer
        self.layout = Layout.of((name, tuple(value.shape)) for name, value in model.named_parameters())
        self._model = model
        self._batches = batches
        self._train = torch.from_numpy(data.x_train), torch.from_numpy(data.y_train)
        self._test = torch.from_numpy(data.x_test), torch.from_numpy(data.y_test)
        self._buckets: Sequence[Bucket] = ()
        self._flatten()

    def _flatten(self) -> None:
        """Make every parameter, and its gradient, a view into a flat buffer that numpy sees as well."""
        self._params = np.empty(self.layout.size, np.float32)
        self._gradient = np.zeros(self.layout.size, np.float32)
        flat, flat_gradient = torch.from_numpy(self._params), torch.from_numpy(self._gradient)
        for table, value in zip(self.layout.tables, self._model.parameters(), strict=True):
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
        chosen = torch.from_numpy(self._batches.indices(worker, iteration))
        inputs, labels = self._train
        loss = nn.functional.cross_entropy(self._model(inputs[chosen]), labels[chosen])
        loss.backward()  # type: ignore[no-untyped-call]
        return [self._gradient[bucket.start : bucket.stop].copy() for bucket in self._buckets]

    def quality(self, pieces: Sequence[Values]) -> Quality:
        self._load(pieces)
        inputs, labels = self._test
        with torch.no_grad():
            scores = self._model(inputs)
            loss = nn.functional.cross_entropy(scores, labels)
            right = (scores.argmax(1) == labels).float().mean()
        return Quality(float(loss), float(right))

    def _load(self, pieces: Sequence[Values]) -> None:
        for bucket, piece in zip(self._buckets, pieces, strict=True):
            self._params[bucket.start : bucket.stop] = piece
