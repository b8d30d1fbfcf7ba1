"""A torch model as a problem: torch and numpy share two flat buffers of parameters and gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import nan
from typing import Any, Protocol, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from torch.utils.data import TensorDataset, default_collate

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Bucket, Layout, Values
from syncline.recipes.data import Batches, Dataset
from syncline.rules import Rule, Sgd
from syncline.sim.problem import Quality

_LINE = 64
"""The size of a cache line in bytes."""

_TEST_BATCH = 1000
"""How many test examples are evaluated at once, to limit memory use."""


class Examples(Protocol):
    """A data set in the sense of `torch.utils.data.Dataset`, with a length and (input, target) pairs."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Any: ...


Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(the model's output, the targets) -> the mean loss of the examples."""


class TorchProblem:
    """One model, trained on one data set; uses one thread, so that results are bit-identical."""

    always_finite = False

    def __init__(
        self,
        model: nn.Module,
        data: Dataset | tuple[Examples, Examples],
        batches: Batches,
        optimizer: Rule,
        loss: Loss = nn.functional.cross_entropy,
    ) -> None:
        """`data`: arrays, or the examples for training and those for testing."""
        torch.set_num_threads(1)
        self.optimizer = optimizer
        self.model = model
        self.batches = batches
        self._loss = loss
        self._train, self._test = _tensors(data) if isinstance(data, Dataset) else data
        self._trained = {name: value for name, value in model.named_parameters() if value.requires_grad}
        self.layout = Layout.of((name, tuple(value.shape)) for name, value in self._trained.items())
        self._buckets: Sequence[Bucket] = ()
        self._flatten()

    @classmethod
    def of(
        cls,
        model: nn.Module,
        train: Examples,
        test: Examples,
        *,
        workers: int,
        batch: int = 32,
        loss: Loss = nn.functional.cross_entropy,
        optimizer: Rule | None = None,
        seed: int = 0,
    ) -> Self:
        """Any model with float32 parameters on the CPU, and any data sets with a length and (input, target) pairs.

        `optimizer`: the workers' optimizer, by default `Sgd(0.1)`. `seed`: of the order of the examples. The accuracy
        is NaN unless the targets are class numbers.
        """
        for name, value in model.named_parameters():
            if value.dtype != torch.float32 or value.device.type != "cpu":
                raise UsageError("model", f"{name!r} is {value.dtype} on {value.device}; use float32 on the CPU")
        batches = Batches(len(train), workers, batch, Draw(seed))
        return cls(model, (train, test), batches, optimizer or Sgd(0.1), loss)

    def _flatten(self) -> None:
        """Make every parameter and its gradient a view into a flat buffer that is shared with numpy."""
        self._params = _aligned(self.layout.size)
        self._gradient = _aligned(self.layout.size)
        flat, flat_gradient = torch.from_numpy(self._params), torch.from_numpy(self._gradient)
        for table, value in zip(self.layout.tables, self._trained.values(), strict=True):
            place = slice(table.start, table.stop)
            flat[place] = value.detach().reshape(-1)
            value.data = flat[place].view(table.shape)
            value.grad = flat_gradient[place].view(table.shape)
        self._first = self._params.copy()

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        self._buckets = buckets
        return [self._first[bucket.start : bucket.stop].copy() for bucket in buckets]

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        self._load(pieces)
        self._gradient.fill(0)
        inputs, labels = self.examples(self.batches.indices(worker, iteration))
        self.model.train()
        loss = self._loss(self.model(inputs), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return [self._gradient[bucket.start : bucket.stop].copy() for bucket in self._buckets]

    def quality(self, pieces: Sequence[Values]) -> Quality:
        self._load(pieces)
        self.model.eval()
        examples = len(self._test)
        with torch.no_grad():
            parts = [
                _chosen(self._test, np.arange(start, min(start + _TEST_BATCH, examples)))
                for start in range(0, examples, _TEST_BATCH)
            ]
            scores = torch.cat([self.model(inputs) for inputs, _ in parts])
            labels = torch.cat([labels for _, labels in parts])
            loss = self._loss(scores, labels)
            return Quality(float(loss), _accuracy(scores, labels))

    def examples(self, indices: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
        """The training examples with these indices, and their labels."""
        return _chosen(self._train, indices)

    def _load(self, pieces: Sequence[Values]) -> None:
        for bucket, piece in zip(self._buckets, pieces, strict=True):
            self._params[bucket.start : bucket.stop] = piece


def _tensors(data: Dataset) -> tuple[Examples, Examples]:
    train, test = (data.x_train, data.y_train), (data.x_test, data.y_test)
    return TensorDataset(*map(torch.from_numpy, train)), TensorDataset(*map(torch.from_numpy, test))


def _chosen(examples: Examples, indices: npt.NDArray[np.int64]) -> tuple[torch.Tensor, torch.Tensor]:
    """The examples with these indices as one batch: inputs and targets."""
    if isinstance(examples, TensorDataset):
        places = torch.from_numpy(indices)
        inputs, targets = (tensor[places] for tensor in examples.tensors)
    else:
        inputs, targets = default_collate([examples[int(index)] for index in indices])
    return inputs, targets


def _accuracy(scores: torch.Tensor, labels: torch.Tensor) -> float:
    """The share of examples whose class has the highest score; NaN if the targets are not classes."""
    if labels.is_floating_point() or scores.ndim != labels.ndim + 1:
        return nan
    return float((scores.argmax(1) == labels).float().mean())


def _aligned(size: int) -> Values:
    """Zeros that are aligned to a cache line: alignment can change the order in which a library adds values."""
    spare = np.zeros(size + _LINE // 4, np.float32)
    start = -spare.ctypes.data % _LINE // 4
    return spare[start : start + size]
