"""The learning-rate schedulers of an optimizer: a checkpoint needs them, and programs do not mention them."""

from __future__ import annotations

import gc
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler


def schedulers_of(optimizer: Optimizer) -> list[LRScheduler]:
    """The live schedulers of this optimizer, without those that are a part of another one, in order of creation."""
    found = [each for generation in (2, 1, 0) for each in gc.get_objects(generation) if _is_of(each, optimizer)]
    parts = {id(part) for each in found for part in getattr(each, "_schedulers", ())}
    return [each for each in found if id(each) not in parts]


def _is_of(value: object, optimizer: Optimizer) -> bool:
    return issubclass(type(value), LRScheduler) and getattr(value, "optimizer", None) is optimizer


def scheduler_states(optimizer: Optimizer) -> list[dict[str, Any]]:
    """The kind and state of each scheduler."""
    return [{"kind": type(each).__name__, "state": each.state_dict()} for each in schedulers_of(optimizer)]


def restore_schedulers(optimizer: Optimizer, states: list[dict[str, Any]]) -> None:
    """Restore the states to the schedulers of the same kind, in order; others keep theirs."""
    left = list(states)
    for scheduler in schedulers_of(optimizer):
        saved = next((each for each in left if each["kind"] == type(scheduler).__name__), None)
        if saved is not None:
            left.remove(saved)
            scheduler.load_state_dict(saved["state"])
