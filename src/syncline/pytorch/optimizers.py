"""The optimizers of a model: those that other libraries wrap, and a stand-in for programs that have none."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn
from torch.optim import LBFGS, Optimizer

from syncline.errors import UsageError
from syncline.strategies.mode import Mode


class StandIn(Optimizer):
    """An optimizer that changes nothing. Its step() says that an iteration is complete.

    For mode `rule`, where the servers optimise: every push carries its `lr`, so that learning-rate schedulers work. For
    a program that changes its parameters by hand: it calls step() after each change.
    """

    def __init__(self, model: nn.Module, lr: float) -> None:
        super().__init__([each for each in model.parameters() if each.requires_grad], {"lr": lr})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Does nothing itself; its hooks do."""


def unwrapped(given: object) -> list[Optimizer]:
    """The torch optimizers in what the program gave: one, several, or wrappers of them; none for None.

    accelerate and Lightning wrap an optimizer in an object whose attribute `optimizer` is the real one.
    """
    if given is None:
        return []
    each = list(given) if isinstance(given, list | tuple) else [given]
    return [_unwrapped(one) for one in each]


def _unwrapped(optimizer: Any) -> Optimizer:
    while isinstance(inner := getattr(optimizer, "optimizer", None), Optimizer):
        optimizer = inner
    if not isinstance(optimizer, Optimizer):
        raise UsageError("optimizer", f"is a {type(optimizer).__name__}; give a torch.optim.Optimizer")
    return optimizer


def check_optimizers(optimizers: list[Optimizer], model: nn.Module) -> None:
    """Raise `UsageError` if one of these optimizers is not for this model."""
    own = set(model.parameters())
    for optimizer in optimizers:
        if not any(each in own for group in optimizer.param_groups for each in group["params"]):
            raise UsageError("optimizer", "has no parameter of this model; build it from model.parameters()")


def check_mode(optimizers: list[Optimizer], mode: Mode) -> None:
    """Raise `UsageError` if these optimizers do not work in this mode."""
    if mode is not Mode.RULE:
        return
    if len(optimizers) > 1:
        raise UsageError(
            "optimizer",
            f"mode 'rule' takes one optimizer, not {len(optimizers)}: the servers apply one rule to the whole model; "
            "use mode='changes'",
        )
    if any(isinstance(each, LBFGS) for each in optimizers):
        raise UsageError(
            "optimizer",
            "LBFGS calls backward() several times per step, which mode 'rule' does not support; use mode='changes'",
        )


def average_losses(optimizers: Iterable[Optimizer], mean: Callable[[Any], Any]) -> list[Any]:
    """Let LBFGS see the mean loss of all workers, so that all take the same decisions; returns the hooks' handles.

    LBFGS calls its closure until the loss and the gradient satisfy it. In mode `gradients` all workers have the same
    gradient. With losses of their own they would stop at different points.
    """

    def with_mean(_: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        me, *rest = args
        closure = rest[0] if rest else kwargs["closure"]
        return (me, lambda: mean(closure())), {}

    return [each.register_step_pre_hook(with_mean) for each in optimizers if isinstance(each, LBFGS)]
