"""The state of one model in a checkpoint of the run: what all workers share, and what each has of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from syncline.engines.process import say
from syncline.engines.saving.state_files import Unsaveable, packed
from syncline.engines.worker.replica import Clocks
from syncline.engines.worker.resumed_state import ResumedState
from syncline.layout import Values
from syncline.pytorch import buffers
from syncline.pytorch.schedulers import restore_schedulers, scheduler_states
from syncline.pytorch.shared_buffers import table_of
from syncline.pytorch.slots import named, plain
from syncline.strategies.mode import Mode

if TYPE_CHECKING:
    from syncline.pytorch.distribute import Distributed


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """What the bare model's state_dict() has."""
    return {plain(name): each for name, each in model.state_dict().items() if isinstance(each, Tensor)}


def model_arrays(each: Distributed) -> tuple[dict[str, Tensor], Clocks]:
    """Copies of the model's parameters and buffers, and which updates they contain, if workers exchange them."""
    arrived, clocks = ({}, {}) if each.hooks.loads.pending else each.replica.collect()
    found = {name: tensor.detach().cpu().clone() for name, tensor in tensors_of(each.model).items()}
    values: dict[str, Values] = arrived
    if each.replica.strategy.replicas_differ:
        values = each.replica.view_of(each.replica.recall_parameters())
    for name, _, _, parameter in named(each.model):
        _put(found, name, parameter, values.get(name), adds=bool(arrived))
    for name, buffer in buffers.named(each.model).items():
        _put(found, name, buffer, values.get(table_of(name)), adds=bool(arrived))
    return found, clocks


def _put(found: dict[str, Tensor], name: str, tensor: Tensor, values: Values | None, *, adds: bool) -> None:
    """Replace a tensor by these values, or add them to it."""
    if values is None or name not in found:
        return
    new = torch.from_numpy(values)
    new = found[name].float() + new if adds else new
    found[name] = new.to(tensor.dtype) if tensor.is_floating_point() else new.round().to(tensor.dtype)


def exact_values(name: str, each: Distributed, arrays: Mapping[str, Tensor]) -> dict[str, Values]:
    """The servers' float32 values of parameters that the model has in another type."""
    if each.replica.mode is Mode.GRADIENTS or each.replica.strategy.replicas_differ:
        return {}
    tables = each.replica.arrays
    return {
        f"{name}/values/{key}": tables[key].copy()
        for key, _, _, parameter in named(each.model)
        if parameter.dtype is not torch.float32 and key in arrays
    }


def own_state(each: Distributed) -> dict[str, Any]:
    replica = each.replica
    found: dict[str, Any] = {
        "optimizers": [_optimizer_state(optimizer) for optimizer in each.optimizers],
        "schedulers": [_saveable(scheduler_states(optimizer)) for optimizer in each.optimizers],
        "buffers": {name: buffer.detach().cpu().clone() for name, buffer in buffers.named(each.model).items()},
        "codec": replica.residuals(),
        "gate": replica.gate_state(),
        "steps": each.hooks.steps,
    }
    if replica.strategy.replicas_differ:
        found["values"] = replica.link.memory.params.copy()
    return found


def _optimizer_state(optimizer: Optimizer) -> Any:
    from syncline.pytorch.state import copied

    return copied(optimizer.state_dict())


def _saveable(schedulers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The states that can be written; a scheduler that cannot be is named."""
    found = []
    for each in schedulers:
        try:
            packed(each, {})
            found.append(each)
        except Unsaveable as error:
            say(f"syncline: the checkpoint is without the state of a {each['kind']}, which has {error}")
    return found


def load_tensors(model: nn.Module, arrays: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, tensor in tensors_of(model).items():
            tensor.copy_(arrays[name])


def restore_own_state(each: Distributed, resumed: ResumedState, name: str, iteration: int) -> None:
    """Restore what only this worker has of a model."""
    saved = resumed.own["models"].get(name)
    replica = each.replica
    replica.go_on_with({}, iteration)
    if saved is None:
        return
    each.hooks.steps = int(saved["steps"])
    if len(saved["optimizers"]) == len(each.optimizers):
        for optimizer, state in zip(each.optimizers, saved["optimizers"], strict=True):
            optimizer.load_state_dict(state)
            optimizer._opt_called = True  # type: ignore[attr-defined]  # else torch warns of schedulers that step first
    if not resumed.is_own:
        return
    if each.options.buffers == "local":
        with torch.no_grad():
            for key, buffer in buffers.named(each.model).items():
                if key in saved["buffers"]:
                    buffer.copy_(saved["buffers"][key])
    if resumed.is_same(replica, name, "codec"):
        residuals = {key: values.numpy() for key, values in saved["codec"].items()}
        replica.go_on_with(residuals, iteration)
    if resumed.is_same(replica, name, "gate") and saved["gate"]:
        replica.restore_gate(saved["gate"])
        if "values" in saved and resumed.is_same(replica, name, "reply_codec"):
            replica.link.memory.params[:] = np.asarray(saved["values"])
            for slot in each.hooks.slots:
                each.hooks.take_over(slot)


def restore_rates(optimizers: list[Optimizer], saved: Mapping[str, Any]) -> None:
    """Restore the schedulers, and the settings of the parameter groups, which schedulers change."""
    for optimizer, state, schedulers in zip(optimizers, saved["optimizers"], saved["schedulers"], strict=False):
        restore_schedulers(optimizer, schedulers)
        for group, before in zip(optimizer.param_groups, state["param_groups"], strict=False):
            group.update({key: value for key, value in before.items() if key != "params"})
