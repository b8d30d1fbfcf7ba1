"""Support for GradScaler, which skips a step by not calling it. The hooks must know, or other workers would wait."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from syncline.pytorch.distribute import Distributed
from syncline.pytorch.optimizers import unwrapped


def register(scaler: Any, models: Mapping[str, Distributed]) -> None:
    """Make `scaler.step(optimizer)` call the model's hooks after a skipped step."""
    for each in models.values():
        each.hooks.scaled = True
    if hasattr(scaler, "_syncline_step"):
        return
    scaler._syncline_step = scaler.step

    def step(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        (inner,) = unwrapped(optimizer)
        found = [each.hooks for each in models.values() if inner in each.optimizers]
        before = [hooks.steps for hooks in found]
        result = scaler._syncline_step(optimizer, *args, **kwargs)
        for hooks, steps in zip(found, before, strict=True):
            if hooks.steps == steps:
                hooks.skipped()
        return result

    scaler.step = step
