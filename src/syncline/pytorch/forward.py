"""`overlap="forward"`: just before a module runs, it waits for the parameters that it is about to read.

These are its own parameters and those of submodules whose forward() is never called: parameter lists, and the output
projection of an attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from torch import nn

from syncline.pytorch.mode_hooks import ModeHooks


def wait_in_forward(model: nn.Module, hooks: ModeHooks) -> list[Any]:
    """Add a hook before forward() and state_dict() of every module that reads parameters; returns the handles."""
    names = {slot.parameter: slot.name for slot in hooks.slots}
    handles: list[Any] = []
    for module in model.modules():
        read = [names[each] for each in _read_by(module) if each in names]
        if read:
            hook = _ForwardWait(read, hooks)
            handles.append(module.register_forward_pre_hook(hook))
            handles.append(module.register_state_dict_pre_hook(hook))  # type: ignore[no-untyped-call]
    return handles


def _read_by(module: nn.Module) -> Iterator[nn.Parameter]:
    yield from (each for each in module._parameters.values() if each is not None)
    for part in module.children():
        if isinstance(module, nn.MultiheadAttention) or type(part).forward is nn.Module.forward:
            yield from _read_by(part)


class _ForwardWait:
    """The hook of a module. In a copy of the module the hook does nothing."""

    def __init__(self, names: list[str], hooks: ModeHooks | None = None) -> None:
        self._names = names
        self._hooks = hooks

    def __call__(self, *_: object) -> None:
        if self._hooks is not None:
            for name in self._names:
                self._hooks.wait_for(name)

    def __reduce__(self) -> tuple[Callable[..., _ForwardWait], tuple[list[str]]]:
        return _ForwardWait, (self._names,)
