"""`session.distribute(model, optimizer)` turns the model's parameters into tables and adds hooks that exchange them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from torch.optim import Optimizer

from syncline.engines.process import say
from syncline.engines.worker.replica import Clocks, Replica
from syncline.errors import UsageError
from syncline.layout import Values
from syncline.pytorch.buffers import copy_from_leader
from syncline.pytorch.changes import Changes
from syncline.pytorch.forward import wait_in_forward
from syncline.pytorch.gradients import Gradients
from syncline.pytorch.mode_hooks import ModeHooks
from syncline.pytorch.optimizers import StandIn, average_losses, check_mode, check_optimizers
from syncline.pytorch.rule import ByRule
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
    """A distributed model, its optimizers and its hooks."""

    name: str
    model: nn.Module
    optimizers: list[Optimizer]
    hooks: ModeHooks
    options: Options
    wishes: dict[str, object]
    generation: int = 0
    """How many times the model was declared again, because other values were loaded."""

    @property
    def replica(self) -> Replica:
        return self.hooks.replica

    def detach(self) -> None:
        self.hooks.detach()


def check_model(model: nn.Module) -> None:
    """Raise `UsageError` if the model cannot be distributed, before anything is sent."""
    if not isinstance(model, nn.Module):
        raise UsageError("model", f"is a {type(model).__name__}; give a torch.nn.Module")
    wrapped = isinstance(model, DistributedDataParallel | DataParallel) or "FSDP" in type(model).__name__
    if wrapped or any("DTensor" in type(each).__name__ for each in model.parameters()):
        raise UsageError("model", f"{type(model).__name__} exchanges gradients itself; give the model that it wraps")
    if not any(each.requires_grad for each in model.parameters()):
        raise UsageError("model", "has no trainable parameters; at least one must have requires_grad=True")


def distribute(
    session: Session,
    name: str,
    model: nn.Module,
    optimizers: list[Optimizer],
    wishes: dict[str, object],
    options: Options,
) -> Distributed:
    """Take over the leader's parameters and buffers, and add the hooks that synchronise the model from now on."""
    check_model(model)
    check_optimizers(optimizers, model)
    replica = session.replica(name)
    beginning = session.run_checkpoints.begin_with(name, model)
    values = beginning.declare(replica, _tables(model, options), wishes)
    _check_settings(replica, optimizers, options)
    optimizers = optimizers or [StandIn(model, replica.strategy.learning_rate if replica.mode is Mode.RULE else 1.0)]
    copy_from_leader(session, replica, model)
    hooks = _add_hooks(replica, values, model, optimizers, options)
    if replica.mode is Mode.GRADIENTS:
        hooks.keep(average_losses(optimizers, session.mean))
    made = Distributed(name, model, optimizers, hooks, options, wishes)
    session.run_checkpoints.began(name, made, beginning)
    hooks.loads.agree = lambda: _agree_on_load(session, made)
    return made


def redistribute(
    session: Session, each: Distributed, memory: dict[str, Values], clocks: dict[int, Clocks] | None = None
) -> None:
    """Declare the model again with its current parameters, then drop the old replica.

    `memory`: the memory of the servers' rule to continue with. `clocks`: what the parameters of each worker contain.
    """
    old = each.replica
    each.generation += 1
    replica = session.replica(f"{each.name}#{each.generation}")
    values = replica.declare(_tables(each.model, each.options), each.wishes, memory, clocks)
    each.hooks.move_to(replica, values)
    each.hooks.buffers = SharedBuffers(each.model, each.options.buffers, replica, values)
    each.hooks.loads.forget()
    session.drop(old)


def _agree_on_load(session: Session, each: Distributed) -> None:
    """Continue with the same values on all workers, after this worker's program has loaded others."""
    old, gradients = each.replica, each.replica.mode is Mode.GRADIENTS
    notice = f"worker {session.rank} has loaded values into model {each.name!r} and waits until every worker has"
    kind, mine = f"load_state_dict of model {each.name!r}", each.hooks.loads.digest() if gradients else b""
    gathered = session.share(kind, b"%d %s" % (session.rank, mine), f"{notice}; call load_state_dict() on every worker")
    said = {int(rank): digest for rank, _, digest in (value.partition(b" ") for value in gathered)}
    _say_who_left(session, each, said)
    if not gradients:
        redistribute(session, each, old.recall())
        each.replica.go_on_with({}, old.earlier + old.iteration)
    elif len(set(said.values())) > 1:
        problem = "load_state_dict() loaded different values on the workers; load equal values on every worker"
        raise UsageError("model", f"{each.name!r}: {problem}")


def _say_who_left(session: Session, each: Distributed, loaded: Collection[int]) -> None:
    """Name the workers that have left the run since this worker loaded values, and so do not have these values."""
    gone = sorted(set(each.hooks.loads.members).difference(loaded))
    if gone and session.rank == min(loaded):
        workers = f"worker{'s' * (len(gone) > 1)} {', '.join(map(str, gone))}"
        say(
            f"syncline: worker {session.rank} has loaded values into model {each.name!r} and goes on with them without "
            f"{workers}, no longer in the run; call load_state_dict() on every worker before it closes its session"
        )


def _tables(model: nn.Module, options: Options) -> dict[str, Values]:
    return {**first_values(model), **first_buffers(model, options.buffers)}


def _add_hooks(
    replica: Replica, values: dict[str, Values], model: nn.Module, optimizers: list[Optimizer], options: Options
) -> ModeHooks:
    slots = slots_of(model, replica.places(), values)
    _load_first_values(replica, slots, options.stage)
    hooks = _hooks_for(replica, slots, optimizers, options)
    hooks.buffers = SharedBuffers(model, options.buffers, replica, values)
    if options.overlap == "forward":
        hooks.keep(wait_in_forward(model, hooks))
    hooks.scaled = options.scaler is not None
    hooks.keep([_watch(part, hooks) for part in model.modules()])
    return hooks


def _watch(part: nn.Module, hooks: ModeHooks) -> Any:
    return part.register_load_state_dict_pre_hook(hooks.loads)  # type: ignore[no-untyped-call]


def _check_settings(replica: Replica, optimizers: list[Optimizer], options: Options) -> None:
    mode = replica.mode
    check_mode(optimizers, mode)
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


def _hooks_for(replica: Replica, slots: list[Slot], optimizers: list[Optimizer], options: Options) -> ModeHooks:
    on_nan = replica.settings["on_nan"]
    if replica.mode is Mode.GRADIENTS:
        own = [each for each in optimizers if not isinstance(each, StandIn)]  # without one, every exchange is a step
        return Gradients(replica, slots, own, on_nan, bool(options.overlap))
    if replica.mode is Mode.CHANGES:
        return Changes(replica, slots, optimizers, on_nan, options.overlap == "forward")
    return ByRule(replica, slots, optimizers[0], on_nan, options.overlap, options.clip, options.scaler is not None)
