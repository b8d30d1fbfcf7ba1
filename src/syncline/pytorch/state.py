"""Saving and loading the state of a run, as plain tensors and values (`torch.load(..., weights_only=True)` works).

All workers load together: each model is declared again with the loaded parameters, so that the servers get them too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from syncline.engines.process import say
from syncline.errors import RunError, UsageError
from syncline.layout import Values
from syncline.pytorch import buffers
from syncline.pytorch.distribute import Distributed, redistribute
from syncline.pytorch.sampler import SharedSampler
from syncline.pytorch.slots import named
from syncline.strategies.mode import Mode

if TYPE_CHECKING:
    from syncline.pytorch.session import Session

SCHEMA = 1


def state_of(session: Session, models: Mapping[str, Distributed], samplers: list[SharedSampler]) -> dict[str, Any]:
    return {
        "schema": SCHEMA,
        "workers": session.size,
        "models": {name: _model_state(each) for name, each in models.items()},
        "samplers": [sampler.state_dict() for sampler in samplers],
    }


def _model_state(each: Distributed) -> dict[str, Any]:
    rule = _rule_state(each)
    return {
        "parameters": {name: parameter.detach().cpu().clone() for name, _, _, parameter in named(each.model)},
        "buffers": {name: buffer.detach().cpu().clone() for name, buffer in buffers.named(each.model).items()},
        "optimizer": _optimizer_states(each.optimizers),
        "rule": {name: torch.from_numpy(values) for name, values in rule.items()},
        "codec": {name: torch.from_numpy(values) for name, values in each.replica.residuals().items()},
        "steps": each.hooks.steps,
        "iteration": each.replica.earlier + each.replica.iteration,
        "settings": dict(each.replica.settings),
    }


def _optimizer_states(optimizers: Sequence[Optimizer]) -> Any:
    """The state of the only optimizer, or a list with the states of several."""
    states = [_copied(each.state_dict()) for each in optimizers]
    return states[0] if len(states) == 1 else states


def _rule_state(each: Distributed) -> dict[str, Values]:
    """Wait for what is in flight, and read what the servers' rule remembers.

    In mode `gradients` the workers hold everything. So if the run has failed, the state of the last complete step can
    still be saved.
    """
    try:
        each.hooks.wait()
        return each.replica.recall()
    except RunError:
        if each.replica.mode is not Mode.GRADIENTS:
            raise
        return {}


def _copied(value: Any) -> Any:
    """A deep copy of tensors in nested dicts, lists and tuples."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(each) for each in value)
    return value


def load_state(
    session: Session,
    models: dict[str, Distributed],
    samplers: list[SharedSampler],
    state: Mapping[str, Any],
) -> None:
    if state.get("schema") != SCHEMA:
        raise UsageError("state", f"has schema {state.get('schema')!r}; this version of Syncline reads schema {SCHEMA}")
    for name, each in models.items():
        if name not in state["models"]:
            raise UsageError("state", f"has no model {name!r}; its models are {', '.join(state['models'])}")
        _check_parameters(each, state["models"][name])
    for name, each in models.items():
        saved = state["models"][name]
        _load(each, saved)
        redistribute(session, each, _remembered(each, saved, "rule"))
        each.replica.go_on_with(_remembered(each, saved, "codec"), int(saved["iteration"]))
        each.hooks.steps = int(saved["steps"])
    for sampler, saved in zip(samplers, state["samplers"], strict=False):
        sampler.load_state_dict(saved)
    if state["workers"] != session.size and session.is_leader:
        say(f"syncline: {state['workers']} workers saved this state; {session.size} workers continue from it")


def _remembered(each: Distributed, saved: Mapping[str, Any], part: str) -> dict[str, Values]:
    """The saved memory of the servers' rule or of this worker's codec; empty if the setting has changed since."""
    same = saved["settings"].get(part) == each.replica.settings.get(part)
    return {name: values.numpy() for name, values in saved[part].items()} if same else {}


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
