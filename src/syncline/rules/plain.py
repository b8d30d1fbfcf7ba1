"""Rules that ignore staleness and keep at most one array of state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.errors import UsageError
from syncline.layout import Values
from syncline.parts import Part
from syncline.rules.protocol import Gradient, Memory

_multiply, _subtract = np.multiply, np.subtract  # looking up a name in numpy is slow


@dataclass(frozen=True)
class Mean(Part):
    """w = the mean of the round's updates: for mode `gradients`, in which the workers run the optimizer."""

    name = "mean"
    offered = False
    of_gradients = True
    keeps = False

    def start(self, params: Values) -> Memory:
        return {}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        params[:] = update


@dataclass(frozen=True)
class Add(Part):
    """w += change: for mode `changes`, in which the workers' own optimizers compute the change."""

    name = "add"
    offered = False
    of_gradients = False
    keeps = True

    def start(self, params: Values) -> Memory:
        return {}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        params += update


@dataclass(frozen=True)
class Sgd(Gradient):
    """w -= alpha g."""

    name = "sgd"
    example = "sgd:0.1"
    lr: float

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        _multiply(update, self.lr if lr is None else lr, work)
        _subtract(params, work, params)


@dataclass(frozen=True)
class Momentum(Gradient):
    """m = mu m + g; w -= alpha m."""

    name = "momentum"
    example = "momentum:0.1,0.9"
    lr: float
    mu: float = 0.9

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mu < 1:
            raise UsageError("momentum", f"mu must be in [0, 1), not {self.mu}")

    def start(self, params: Values) -> Memory:
        return {"m": np.zeros_like(params)}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        m = memory["m"]
        m *= self.mu
        m += update
        _multiply(m, self.lr if lr is None else lr, work)
        _subtract(params, work, params)
