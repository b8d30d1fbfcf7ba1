"""`buffers="mean"` and `"leader"`: buffers travel beside the parameters, as tables of the same model.

1. What is sent is the change since all last had the same values; a buffer that has not changed costs no bytes.
2. `mean`: everyone's change counts alike. `leader`: only the change of the live worker with the lowest number counts;
   it is sent so that the shards' division by the number of workers gives the change itself.
3. Mode `gradients`: what comes back is the mean change of the round; a table of one value says by how much the leader's
   was divided, whoever has died. Mode `changes`: what comes back is the shared buffer; if a death made the division
   another one than was foreseen, the leader's next change makes it good.
4. Buffers of whole numbers are rounded; of truth values and complex numbers everyone keeps its own.
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
    """One buffer: the common value that its change is counted from, and its two places in the lane's memory."""

    table: str
    buffer: Tensor
    base: Tensor
    update: Tensor
    value: Tensor


def first_buffers(model: nn.Module, kind: str) -> dict[str, Values]:
    """The tables that the buffers of this model make, none of them if they stay local."""
    if kind == LOCAL:
        return {}
    tables = {_MARK + name: each.detach().to("cpu", torch.float32).numpy() for name, each in _shareable(model).items()}
    if kind == LEADER and tables:
        tables[_WEIGHT] = torch.zeros(1).numpy()
    return tables


def _shareable(model: nn.Module) -> dict[str, Tensor]:
    return {name: each for name, each in named(model).items() if each.dtype is not torch.bool and not each.is_complex()}


class SharedBuffers:
    """The buffers of one model, exchanged with its parameters; none, if they stay local."""

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
        """Send what has changed here."""
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
        """Take over what came back."""
        if not self._shared:
            return
        fresh = self._mean_change() if self._replica.mode is Mode.GRADIENTS else (lambda each: each.value)
        for each in self._shared:
            each.base.copy_(fresh(each))
            _write(each.buffer, each.base)

    def _mean_change(self) -> Callable[[_Shared], Tensor]:
        """The new value of a buffer from the mean of its changes."""
        share = 1.0 if self._weight is None else float(self._weight_back)
        return lambda each: each.base + each.value / share if share else each.base


def _write(buffer: Tensor, values: Tensor) -> None:
    with torch.no_grad():
        buffer.copy_(values if buffer.is_floating_point() else values.round())
