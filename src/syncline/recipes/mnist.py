"""`mnist-mlp` and `mnist-cnn`: MNIST from a file that the user provides, and two networks in torch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from syncline.draw import Draw
from syncline.recipes.data import Batches, Dataset, mnist
from syncline.recipes.torch_problem import TorchProblem
from syncline.rules import Momentum, Rule, Sgd


def mlp(
    *, draw: Draw, workers: int, batch: int, data: Path, optimizer: Rule | None = None, validation: int | None = None
) -> TorchProblem:
    """A 784-200-10 network."""
    return _problem(_mlp, draw, workers, batch, optimizer or Momentum(0.05, 0.9), mnist(data).validated(validation))


def cnn(
    *, draw: Draw, workers: int, batch: int, data: Path, optimizer: Rule | None = None, validation: int | None = None
) -> TorchProblem:
    """Three convolutions of 10, 20 and 100 channels, each with pooling, and 200 neurons.

    It trains without momentum: momentum multiplies the delay of a codec's error feedback, and `onebit` then diverges.
    """
    return _problem(_cnn, draw, workers, batch, optimizer or Sgd(0.1), mnist(data).validated(validation))


def _problem(
    build: Callable[[], nn.Module], draw: Draw, workers: int, batch: int, optimizer: Rule, data: Dataset
) -> TorchProblem:
    torch.manual_seed(draw.seed % 2**63)
    return TorchProblem(build(), data, Batches(len(data.y_train), workers, batch, draw), optimizer)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def _cnn() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 10, 5), nn.ReLU(), nn.MaxPool2d(2)),  # 12 x 12
        *(nn.Conv2d(10, 20, 3), nn.ReLU(), nn.MaxPool2d(2)),  # 5 x 5
        *(nn.Conv2d(20, 100, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 2 x 2
        *(nn.Flatten(), nn.Linear(400, 200), nn.ReLU(), nn.Linear(200, 10)),
    )
