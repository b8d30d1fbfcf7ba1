"""A little PyTorch model, its training, and the ways to distribute it, for tests of the adapter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from syncline import Session

MODES: dict[str, dict[str, Any]] = {
    "gradients": {"mode": "gradients"},
    "changes": {"mode": "changes"},
    "rule": {"rule": "sgd:0.1"},
}
"""The three modes, as arguments for `distribute`."""

PATHS: dict[str, list[dict[str, Any]]] = {
    "gradients": [{}, {"stage": True}, {"overlap": False}],
    "changes": [{}, {"stage": True}, {"overlap": "forward"}, {"overlap": "forward", "stage": True}],
    "rule": [{}, {"stage": True}, {"overlap": False}, {"overlap": "forward"}, {"overlap": "forward", "stage": True}],
}
"""The ways in which values travel between a model and the lane's memory."""


def little(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2)).to(dtype)


def loss_of(model: nn.Module, step: int = 0) -> Tensor:
    dtype = next(model.parameters()).dtype
    x = torch.randn(16, 4, generator=torch.Generator().manual_seed(step)).to(dtype)
    return (model(x) - x[:, :2]).square().mean()


def train(
    model: nn.Module, optimizer: Optimizer, steps: int = 5, between: Callable[[], object] = lambda: None
) -> list[Tensor]:
    """Train, and return the final parameters; `between`: called between backward() and step()."""
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, step).backward()
        between()
        optimizer.step()
    return [each.detach().clone() for each in model.parameters()]


def distributed(session: Session, mode: str, **options: Any) -> tuple[nn.Sequential, Optimizer]:
    model = little()
    return model, session.distribute(model, SGD(model.parameters(), 0.1), **MODES[mode], **options)


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
