"""GradScaler: it skips a step by not calling it, so whoever waits for that step has to be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from syncline.pytorch.distribute import Distributed


def register(scaler: Any, models: Mapping[str, Distributed]) -> None:
    """Have `scaler.step(optimizer)` tell a model's hooks of a step that was skipped."""
    for each in models.values():
        each.hooks.scaled = True
    if hasattr(scaler, "_syncline_step"):
        return
    scaler._syncline_step = scaler.step

    def step(optimizer: Optimizer, *args: Any, **kwargs: Any) -> Any:
        found = [each.hooks for each in models.values() if each.optimizer is optimizer]
        before = [hooks.steps for hooks in found]
        result = scaler._syncline_step(optimizer, *args, **kwargs)
        for hooks, steps in zip(found, before, strict=True):
            if hooks.steps == steps:
                hooks.skipped()
        return result

    scaler.step = step
