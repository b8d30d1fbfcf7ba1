"""`buffers="mean"` and `"leader"`: workers exchange buffers together with the parameters, as tables of the same model.

1. A worker sends the change of a buffer since all workers last had the same value. An unchanged buffer costs no bytes.
2. `mean`: the changes of all workers have the same weight. `leader`: only the live worker with the lowest number sends
   its change. It multiplies the change so that the result is the change itself after the servers' division by the
   number of workers.
3. Mode `gradients`: the answer is the mean change of the round. An extra table with one value tells by how much the
   leader's change was divided, also if workers have died. Mode `changes`: the answer is the shared buffer. If the death
   of a worker changed the divisor, the leader's next change corrects the error.
4. Integer buffers are rounded. Boolean and complex buffers stay local.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from syncline.engines.worker.replica import Replica
from syncline.layout import Values
from syncline.pytorch.buffers import named
from syncline.strategies.mode import Mode

LOCAL, MEAN, LEADER = "local", "mean", "leader"
KINDS = (LOCAL, MEAN, LEADER)

_MARK = "buffer "
_WEIGHT = "buffers' weight"


@dataclass(eq=False, slots=True)
class _Shared:
    """One buffer: the last common value (`base`), and its update and value in the lane's memory."""

    table: str
    buffer: Tensor
    base: Tensor
    update: Tensor
    value: Tensor


def table_of(buffer: str) -> str:
    """The name of the table of a buffer that is exchanged."""
    return _MARK + buffer


def first_buffers(model: nn.Module, kind: str) -> dict[str, Values]:
    """The tables for the buffers of this model; none if they stay local."""
    if kind == LOCAL:
        return {}
    tables = {_MARK + name: each.detach().to("cpu", torch.float32).numpy() for name, each in _shareable(model).items()}
    if kind == LEADER and tables:
        tables[_WEIGHT] = torch.zeros(1).numpy()
    return tables


def _shareable(model: nn.Module) -> dict[str, Tensor]:
    return {name: each for name, each in named(model).items() if each.dtype is not torch.bool and not each.is_complex()}


class SharedBuffers:
    """The buffers of one model that are exchanged together with its parameters; none if they stay local."""

    def __init__(self, model: nn.Module, kind: str, replica: Replica, values: dict[str, Values]) -> None:
        self._kind = kind
        self._replica = replica
        self._weight: Tensor | None = None
        self._shared: list[_Shared] = []
        if kind == LOCAL:
            return
        places = replica.places()
        if _WEIGHT in places:
            self._weight = torch.from_numpy(places[_WEIGHT])
            self._weight_back = torch.from_numpy(values[_WEIGHT])
        for name, buffer in _shareable(model).items():
            table = _MARK + name
            update, value = torch.from_numpy(places[table]), torch.from_numpy(values[table])
            self._shared.append(_Shared(table, buffer, value.clone(), update, value))
            _write(buffer, value)  # also for a joiner

    @torch.no_grad()
    def give(self) -> None:
        """Send the changes of this worker's buffers."""
        members = self._replica.link.members
        if not self._shared or (self._kind == LEADER and members and members[0] != self._replica.rank):
            return
        gradients = self._replica.mode is Mode.GRADIENTS
        times = 1 if self._kind == MEAN or gradients else max(1, len(members))
        if self._weight is not None and gradients:
            self._give(_WEIGHT, self._weight, torch.ones(1))
        for each in self._shared:
            change = each.buffer.to("cpu", torch.float32) - each.base
            if bool(change.any()):
                self._give(each.table, each.update, change.mul_(times))

    def _give(self, table: str, place: Tensor, change: Tensor) -> None:
        place.copy_(change)
        self._replica.give(table)

    @torch.no_grad()
    def take(self) -> None:
        """Copy the answers into the buffers."""
        if not self._shared:
            return
        fresh = self._mean_change() if self._replica.mode is Mode.GRADIENTS else (lambda each: each.value)
        for each in self._shared:
            each.base.copy_(fresh(each))
            _write(each.buffer, each.base)

    def _mean_change(self) -> Callable[[_Shared], Tensor]:
        """A function that computes the new value of a buffer from the mean of its changes."""
        share = 1.0 if self._weight is None else float(self._weight_back)
        return lambda each: each.base + each.value / share if share else each.base


def _write(buffer: Tensor, values: Tensor) -> None:
    with torch.no_grad():
        buffer.copy_(values if buffer.is_floating_point() else values.round())
