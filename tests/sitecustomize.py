"""Python imports this file in every process that a test starts: these processes import PyTorch's compiler only if used.

The first optimizer that a program makes, and its first step, import the compiler, only to tell it what not to compile.
That takes more than a second of processor time in each worker, longer than most tests train. Here they do without as
long as nothing else has imported the compiler: until then nothing can be compiled. So programs do the same as without
this file. Remove it to see how much longer the tests take.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

COMPILER = "torch._dynamo"


def _marked(function: Callable[..., Any] | None = None, recursive: bool = True, *, mark: Callable[..., Any]) -> Any:
    """Mark a function as "not to be compiled", as `torch._compile` does."""
    if function is None:
        return partial(_marked, recursive=recursive, mark=mark)
    return _either(mark(function, recursive), function)


def _step(function: Callable[..., Any], *, mark: Callable[..., Any]) -> Any:
    """Let an optimizer's `step` record gradients only if it is differentiable, as `torch.optim.optimizer` does."""

    def step(*args: Any, **kwargs: Any) -> Any:
        import torch

        with torch.set_grad_enabled(args[0].defaults["differentiable"]):
            return function(*args, **kwargs)

    return _either(mark(function), step)


def _either(with_compiler: Callable[..., Any], without: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(with_compiler)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (with_compiler if COMPILER in sys.modules else without)(*args, **kwargs)

    return call


CHANGED: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "torch._compile": ("_disable_dynamo", _marked),
    "torch.optim.optimizer": ("_use_grad_for_differentiable", _step),
}
"""For each module: the decorator that imports the compiler, and what is used instead."""


class _LateCompiler(MetaPathFinder):
    """Changes these modules when they are imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in CHANGED:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = partial(_execute, spec.loader.exec_module)  # type: ignore[method-assign]
        return spec


def _execute(execute: Callable[[ModuleType], None], module: ModuleType) -> None:
    execute(module)
    name, instead = CHANGED[module.__name__]
    if hasattr(module, name):
        setattr(module, name, partial(instead, mark=getattr(module, name)))


sys.meta_path.insert(0, _LateCompiler())

if "RECORD_OF_THE_COORDINATOR" in os.environ and "syncline.engines.coordinator" in sys.orig_argv:
    import coordinator_record

    coordinator_record.install()
