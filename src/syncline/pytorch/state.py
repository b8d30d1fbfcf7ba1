"""Saving and loading the state of a run, as plain tensors and values (`torch.load(..., weights_only=True)` works).

All workers load together: each model is declared again with the loaded parameters, so that the servers get them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from syncline.engines.worker.replica import Clocks
from syncline.engines.worker.saved_tables import SCHEMA, all_clocks, check_schema, remembered, say_if_workers_differ
from syncline.errors import RunError, UsageError
from syncline.layout import Values
from syncline.pytorch import buffers
from syncline.pytorch.distribute import Distributed, redistribute
from syncline.pytorch.sampler import SharedSampler
from syncline.pytorch.shared_buffers import table_of
from syncline.pytorch.slots import named
from syncline.strategies.mode import Mode

if TYPE_CHECKING:
    from syncline.pytorch.session import Session


def state_of(session: Session, models: Mapping[str, Distributed], samplers: list[SharedSampler]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "workers": session.size,
        "models": {name: _model_state(each) for name, each in models.items()},
        "samplers": [sampler.state_dict() for sampler in samplers],
    }


def _model_state(each: Distributed) -> dict[str, Any]:
    rule, arrived, clocks = _settled(each)
    return {
        "parameters": {name: _with(parameter, arrived.get(name)) for name, _, _, parameter in named(each.model)},
        "buffers": {
            name: _with(buffer, arrived.get(table_of(name))) for name, buffer in buffers.named(each.model).items()
        },
        "optimizer": _optimizer_states(each.optimizers),
        "rule": {name: torch.from_numpy(values) for name, values in rule.items()},
        "codec": {name: torch.from_numpy(values) for name, values in each.replica.residuals().items()},
        "steps": each.hooks.steps,
        "iteration": each.replica.earlier + each.replica.iteration,
        "clocks": dict(clocks),
        "settings": dict(each.replica.settings),
    }


def _optimizer_states(optimizers: Sequence[Optimizer]) -> Any:
    """The state of the only optimizer, or a list with the states of several."""
    states = [copied(each.state_dict()) for each in optimizers]
    return states[0] if len(states) == 1 else states


def _with(tensor: Tensor, arrived: Values | None) -> Tensor:
    """A copy of a parameter or buffer, together with what has arrived from other workers and is not in it yet."""
    found = tensor.detach().cpu().clone()
    if arrived is None:
        return found
    both = found.float() + torch.from_numpy(arrived)
    return both.to(found.dtype) if found.is_floating_point() else both.round().to(found.dtype)


def _settled(each: Distributed) -> tuple[dict[str, Values], dict[str, Values], Clocks]:
    """Wait for what is in flight; read what the servers' rule remembers and, without servers, what others have done.

    Values that the program has loaded, for example the mean of earlier ones, are saved as they are.

    In mode `gradients` the workers hold everything. So if the run has failed, the state of the last complete step can
    still be saved.
    """
    try:
        each.hooks.wait()
        return each.replica.recall(), *(({}, {}) if each.hooks.loads.pending else each.replica.collect())
    except RunError:
        if each.replica.mode is not Mode.GRADIENTS:
            raise
        return {}, {}, {}


def copied(value: Any) -> Any:
    """A deep copy of tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(copied(each) for each in value)
    return value


def load_state(
    session: Session,
    models: dict[str, Distributed],
    samplers: list[SharedSampler],
    state: Mapping[str, Any],
) -> None:
    check_schema(state)
    if "models" not in state:
        raise UsageError("state", "has no models; it was saved by a program that trains tables")
    for name, each in models.items():
        if name not in state["models"]:
            raise UsageError("state", f"has no model {name!r}; its models are {', '.join(state['models'])}")
        _check_parameters(each, state["models"][name])
    for name, each in models.items():
        saved = state["models"][name]
        _load(each, saved)
        clocks = all_clocks(session, each.replica, saved)
        redistribute(session, each, remembered(each.replica, saved, "rule"), clocks)
        each.replica.go_on_with(remembered(each.replica, saved, "codec"), int(saved["iteration"]))
        each.hooks.steps = int(saved["steps"])
    for sampler, saved in zip(samplers, state["samplers"], strict=False):
        sampler.load_state_dict(saved)
    say_if_workers_differ(session, state)


def _check_parameters(each: Distributed, saved: Mapping[str, Any]) -> None:
    mine = {name: tuple(parameter.shape) for name, _, _, parameter in named(each.model)}
    theirs = {name: tuple(value.shape) for name, value in saved["parameters"].items()}
    for name in {**mine, **theirs}:
        if mine.get(name) != theirs.get(name):
            here, there = mine.get(name, "nothing"), theirs.get(name, "nothing")
            raise UsageError(
                "state", f"parameter {name!r} of model {each.name!r}: the model has {here}, the state has {there}"
            )


def _load(each: Distributed, saved: Mapping[str, Any]) -> None:
    with torch.no_grad():
        for name, _, _, parameter in named(each.model):
            parameter.copy_(saved["parameters"][name])
        for name, buffer in buffers.named(each.model).items():
            if name in saved["buffers"]:
                buffer.copy_(saved["buffers"][name])
    states = saved["optimizer"]
    for optimizer, state in zip(each.optimizers, states if isinstance(states, list) else [states], strict=True):
        optimizer.load_state_dict(state)
