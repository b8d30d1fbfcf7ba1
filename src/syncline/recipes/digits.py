"""`digits-mlp` and `digits-cnn`: scikit-learn's embedded digits and two networks in torch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from syncline.draw import Draw
from syncline.recipes.data import Batches, digits
from syncline.recipes.torch_problem import TorchProblem
from syncline.rules import Momentum, Rule


def mlp(
    *, draw: Draw, workers: int, batch: int, optimizer: Rule | None = None, validation: int | None = None
) -> TorchProblem:
    """64-128-10. Reaches 95 % on the test images in about 100 iterations of 8 workers with batch 32.

    The split and the learning rate were chosen by that test accuracy, so use it to compare schemes, not as a benchmark.
    """
    return _problem(_mlp, draw, workers, batch, optimizer or Momentum(0.1, 0.9), validation)


def cnn(
    *, draw: Draw, workers: int, batch: int, optimizer: Rule | None = None, validation: int | None = None
) -> TorchProblem:
    """Three convolutions of 64, 96 and 64 channels, 64 neurons. Its learning rate was chosen as that of `mlp`."""
    return _problem(_cnn, draw, workers, batch, optimizer or Momentum(0.08, 0.9), validation)


def _problem(
    build: Callable[[], nn.Module], draw: Draw, workers: int, batch: int, optimizer: Rule, validation: int | None
) -> TorchProblem:
    data = digits().validated(validation)
    torch.manual_seed(draw.seed % 2**63)
    return TorchProblem(build(), data, Batches(len(data.y_train), workers, batch, draw), optimizer)


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def _cnn() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)),
        *(nn.Conv2d(1, 64, 3, padding=1), nn.ReLU()),
        *(nn.Conv2d(64, 96, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 4 x 4
        *(nn.Conv2d(96, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),  # 2 x 2
        *(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 10)),
    )
