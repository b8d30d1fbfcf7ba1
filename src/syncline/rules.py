"""Rules: how an update changes the parameters. Elementwise and in place; a rule's memory is an explicit value.

`alpha`, the learning rate, is a rule's first argument and is overridden by one that is pushed. tau = max(1, staleness).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from syncline.errors import UsageError
from syncline.layout import Values
from syncline.parts import Part

LARGEST = float(np.finfo(np.float32).max)

Memory = dict[str, Values]
"""What a rule remembers of one bucket, each array as long as the bucket."""


@runtime_checkable
class Rule(Protocol):
    """Two functions: what to remember at the start, and one application."""

    @property
    def of_gradients(self) -> bool:
        """True: updates are gradients, applied whole. False: changes, shared among the live workers on arrival."""
        ...

    @property
    def keeps(self) -> bool:
        """True: `params` are parameters. False: they are the last round's result, nothing once a round was empty."""
        ...

    def start(self, params: Values) -> Memory:
        """The memory before the first update."""
        ...

    def apply(self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None) -> None:
        """Change `params` and `memory` in place by one update; `update` is not written."""
        ...


class _Gradient(Part):
    of_gradients = True
    keeps = True
    lr: float

    def __post_init__(self) -> None:
        if not 0 < self.lr <= LARGEST:
            raise UsageError(self.name, f"the learning rate must be above 0 and finite in float32, not {self.lr}")

    def start(self, params: Values) -> Memory:
        return {}


@dataclass(frozen=True)
class Mean(Part):
    """The parameters *are* the round's mean: for `gradients` mode, where the workers optimise."""

    name = "mean"
    of_gradients = True
    keeps = False

    def start(self, params: Values) -> Memory:
        return {}

    def apply(self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None) -> None:
        params[:] = update


@dataclass(frozen=True)
class Add(Part):
    """w += change: for `changes` mode, where the workers' own optimizers made the change."""

    name = "add"
    of_gradients = False
    keeps = True

    def start(self, params: Values) -> Memory:
        return {}

    def apply(self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None) -> None:
        params += update


@dataclass(frozen=True)
class Sgd(_Gradient):
    """w -= alpha g."""

    name = "sgd"
    example = "sgd:0.1"
    lr: float

    def apply(self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None) -> None:
        params -= np.float32(self.lr if lr is None else lr) * update


@dataclass(frozen=True)
class Momentum(_Gradient):
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

    def apply(self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None) -> None:
        m = memory["m"]
        m *= np.float32(self.mu)
        m += update
        params -= np.float32(self.lr if lr is None else lr) * m


@dataclass(frozen=True)
class Sasgd(_Gradient):
    """w -= (alpha / tau) g: an update counts the less, the staler it is."""

    name = "sasgd"
    example = "sasgd:0.1"
    lr: float

    def apply(self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None) -> None:
        params -= np.float32((self.lr if lr is None else lr) / max(1, staleness)) * update


def optimises(rule: Rule) -> bool:
    """Does it turn gradients into parameters, so that somebody can train by it?"""
    return rule.of_gradients and rule.keeps


RULES: tuple[type[Part], ...] = (Mean, Add, Sgd, Momentum, Sasgd)
