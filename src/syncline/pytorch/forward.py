"""`overlap="forward"`: a module waits, just before it runs, for the parameters that it is about to read."""

from __future__ import annotations

from collections.abc import Callable
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
            handles.append(module.register_forward_pre_hook(_Waiting([slot.name for slot in own], exchange)))
    return handles


class _Waiting:
    """A module's hook. A copy of the module waits for nobody."""

    def __init__(self, names: list[str], exchange: Exchange | None = None) -> None:
        self._names = names
        self._exchange = exchange

    def __call__(self, *_: object) -> None:
        if self._exchange is not None:
            for name in self._names:
                self._exchange.wait_for(name)

    def __reduce__(self) -> tuple[Callable[..., _Waiting], tuple[list[str]]]:
        return _Waiting, (self._names,)
