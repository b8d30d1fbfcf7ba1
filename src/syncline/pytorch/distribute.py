"""`session.distribute(model, optimizer)` turns the model's parameters into tables and adds hooks that exchange them."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import LBFGS, Optimizer

from syncline.engines.worker.replica import Replica
from syncline.errors import UsageError
from syncline.layout import Values
from syncline.pytorch.buffers import copy_from_leader
from syncline.pytorch.changes import Changes
from syncline.pytorch.forward import wait_in_forward
from syncline.pytorch.gradients import Gradients
from syncline.pytorch.mode_hooks import ModeHooks
from syncline.pytorch.rule import ByRule, RuleOptimizer
from syncline.pytorch.shared_buffers import KINDS, LOCAL, SharedBuffers, first_buffers
from syncline.pytorch.slots import Slot, can_move_in, first_values, slots_of
from syncline.strategies.mode import Mode

if TYPE_CHECKING:
    from syncline.pytorch.session import Session

OVERLAPS = (True, False, "forward")


@dataclass(frozen=True)
class Options:
    """The arguments of `distribute` that are not settings of the strategy."""

    overlap: bool | str = True
    buffers: str = "local"
    stage: bool = False
    clip: float | None = None
    scaler: Any = None

    def __post_init__(self) -> None:
        if self.buffers not in KINDS:
            raise UsageError("buffers", f"{self.buffers!r} is not a choice; use 'local', 'mean' or 'leader'")
        if self.buffers != LOCAL and self.overlap == "forward":
            raise UsageError(
                "buffers",
                f"{self.buffers!r} does not work with overlap='forward', because forward() changes buffers; "
                "use buffers='local', or another overlap",
            )
        if self.overlap not in OVERLAPS:
            raise UsageError("overlap", f"{self.overlap!r} is not a choice; use True, False or 'forward'")
        if self.clip is not None and not self.clip > 0:
            raise UsageError("clip", f"must be above 0, not {self.clip}")


@dataclass(eq=False)
class Distributed:
    """A distributed model, its optimizer and its hooks."""

    name: str
    model: nn.Module
    optimizer: Optimizer
    hooks: ModeHooks
    options: Options
    guard: Guard
    wishes: dict[str, object]

    @property
    def replica(self) -> Replica:
        return self.hooks.replica

    def detach(self) -> None:
        self.guard.open = True
        self.hooks.detach()


class Guard:
    """Makes `model.load_state_dict` fail while the model is distributed. Copies of the model are not affected."""

    def __init__(self) -> None:
        self.open = False

    def __call__(self, *_: object) -> None:
        if not self.open:
            raise UsageError(
                "model",
                "load_state_dict() would change only this worker's replica; call session.load_state_dict(...) on every "
                "worker instead",
            )

    def __deepcopy__(self, memo: dict[int, Any]) -> Guard:
        free = Guard()
        free.open = True
        return free

    def __reduce__(self) -> tuple[Callable[[], Guard], tuple[()]]:
        return _free_guard, ()


def _free_guard() -> Guard:
    return copy.deepcopy(Guard())


def check_model(model: nn.Module, optimizer: Optimizer | None) -> None:
    """Raise `UsageError` if the model or optimizer cannot be distributed, before anything is sent."""
    if not isinstance(model, nn.Module):
        raise UsageError("model", f"is a {type(model).__name__}; give a torch.nn.Module")
    wrapped = isinstance(model, DistributedDataParallel | DataParallel) or "FSDP" in type(model).__name__
    if wrapped or any("DTensor" in type(each).__name__ for each in model.parameters()):
        raise UsageError("model", f"{type(model).__name__} exchanges gradients itself; give the model that it wraps")
    if not any(each.requires_grad for each in model.parameters()):
        raise UsageError("model", "has no trainable parameters; at least one must have requires_grad=True")
    if optimizer is not None:
        if not isinstance(optimizer, Optimizer):
            raise UsageError("optimizer", f"is a {type(optimizer).__name__}; give a torch.optim.Optimizer")
        own = set(model.parameters())
        if not any(each in own for group in optimizer.param_groups for each in group["params"]):
            raise UsageError("optimizer", "has no parameter of this model; build it from model.parameters()")


def distribute(
    session: Session,
    name: str,
    model: nn.Module,
    optimizer: Optimizer | None,
    wishes: dict[str, object],
    options: Options,
) -> Distributed:
    """Take over the leader's parameters and buffers, and add the hooks that synchronise the model from now on."""
    check_model(model, optimizer)
    replica = session.replica(name)
    values = replica.declare(_tables(model, options), wishes)
    _check_settings(replica, optimizer, options)
    if optimizer is None:
        optimizer = _placeholder_optimizer(replica, model)
    copy_from_leader(session, replica, model)
    hooks = _add_hooks(replica, values, model, optimizer, options)
    guard = Guard()
    for part in model.modules():
        part.register_load_state_dict_pre_hook(guard)  # type: ignore[no-untyped-call]
    return Distributed(name, model, optimizer, hooks, options, guard, wishes)


def redistribute(session: Session, each: Distributed, generation: int, memory: dict[str, Values]) -> None:
    """Declare the model again with its current parameters, then drop the old replica.

    `memory`: the memory of the servers' rule to continue with.
    """
    old = each.hooks
    replica = session.replica(f"{each.name}#{generation}")
    values = replica.declare(_tables(each.model, each.options), each.wishes, memory)
    old.detach()
    each.hooks = _add_hooks(replica, values, each.model, each.optimizer, each.options)
    each.hooks.scaled = old.scaled
    each.hooks.stepped = old.stepped
    session.drop(old.replica)


def _tables(model: nn.Module, options: Options) -> dict[str, Values]:
    return {**first_values(model), **first_buffers(model, options.buffers)}


def _add_hooks(
    replica: Replica, values: dict[str, Values], model: nn.Module, optimizer: Optimizer, options: Options
) -> ModeHooks:
    slots = slots_of(model, replica.places(), values)
    _load_first_values(replica, slots, options.stage)
    hooks = _hooks_for(replica, slots, optimizer, options)
    hooks.buffers = SharedBuffers(model, options.buffers, replica, values)
    if options.overlap == "forward":
        hooks.keep(wait_in_forward(model, hooks))
    hooks.scaled = options.scaler is not None
    return hooks


def _check_settings(replica: Replica, optimizer: Optimizer | None, options: Options) -> None:
    mode = replica.mode
    if mode is Mode.CHANGES and optimizer is None:
        raise UsageError("optimizer", "is required in mode 'changes', which sends what the optimizer changes")
    if isinstance(optimizer, LBFGS) and mode is not Mode.CHANGES:
        raise UsageError(
            "optimizer",
            f"LBFGS calls backward() several times per step, which mode {mode.value!r} does not support; "
            "use mode='changes'",
        )
    if options.overlap == "forward" and mode is Mode.GRADIENTS:
        raise UsageError(
            "overlap",
            "'forward' does not work in mode 'gradients', where step() needs the mean of every gradient; "
            "use mode='changes' or a rule",
        )
    if options.buffers != LOCAL and mode is Mode.RULE:
        raise UsageError(
            "buffers",
            f"{options.buffers!r} does not work in mode 'rule', where the servers would optimise the buffers too; "
            "use buffers='local'",
        )
    if options.clip is not None and mode is not Mode.RULE:
        raise UsageError("clip", f"is for mode 'rule'; in mode {mode.value!r} clip between backward() and step()")


def _load_first_values(replica: Replica, slots: list[Slot], stage: bool) -> None:
    """Copy the first parameters into the model. If answers are parameters, move the model into the lane's memory."""
    with torch.no_grad():
        for slot in slots:
            if replica.mode is not Mode.GRADIENTS and can_move_in(slot, stage):
                slot.move_in()
            else:
                slot.fresh()


def _placeholder_optimizer(replica: Replica, model: nn.Module) -> Optimizer:
    if replica.mode is not Mode.RULE:
        return _NoOptimizer(model)
    return RuleOptimizer(model, replica.strategy.learning_rate)


class _NoOptimizer(RuleOptimizer):
    """A placeholder, for a program that changes its parameters without an optimizer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model, 1.0)


def _hooks_for(replica: Replica, slots: list[Slot], optimizer: Optimizer, options: Options) -> ModeHooks:
    on_nan = replica.settings["on_nan"]
    if replica.mode is Mode.GRADIENTS:
        own = None if isinstance(optimizer, _NoOptimizer) else optimizer
        return Gradients(replica, slots, own, on_nan, bool(options.overlap))
    if replica.mode is Mode.CHANGES:
        return Changes(replica, slots, optimizer, on_nan, options.overlap == "forward")
    return ByRule(replica, slots, optimizer, on_nan, options.overlap, options.clip, options.scaler is not None)
