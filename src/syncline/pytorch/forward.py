"""`overlap="forward"`: a module waits, just before it runs, for the parameters that it is about to read."""

from __future__ import annotations

from functools import partial
from typing import Any

from torch import nn

from syncline.pytorch.exchange import Exchange


def wait_in_forward(model: nn.Module, exchange: Exchange) -> list[Any]:
    """Hooks before the forward of every module that has parameters of its own; the handles to remove them."""
    slots = {slot.parameter: slot for slot in exchange.slots}
    handles = []
    for module in model.modules():
        own = [slots[each] for each in module._parameters.values() if each in slots]
        if own:
            hook = partial(_wait, exchange, [slot.name for slot in own])
            handles.append(module.register_forward_pre_hook(hook))
    return handles


def _wait(exchange: Exchange, names: list[str], *_: object) -> None:
    for name in names:
        exchange.wait_for(name)
