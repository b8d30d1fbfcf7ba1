"""Rules with one mistake each, as a user could make it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

import numpy as np

from mistakes import wrong


@dataclass(frozen=True)
class Plain:
    """w -= alpha g: right."""

    lr: float = 0.1
    of_gradients = True
    keeps = True

    def start(self, params: Any) -> Any:
        return {}

    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= (self.lr if lr is None else lr) * update

    def rate(self, lr: float | None) -> float:
        return self.lr if lr is None else lr


@dataclass(frozen=True)
class Heavy(Plain):
    """With momentum: right."""

    def start(self, params: Any) -> Any:
        return {"m": np.zeros_like(params)}

    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        memory["m"] *= 0.9
        memory["m"] += update
        params -= np.float32(self.rate(lr)) * memory["m"]


@wrong("rule", "`apply` did not change `params`; write params -= ...")
@dataclass(frozen=True)
class Rebinds(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params = params - self.rate(lr) * update


@wrong("rule", "`apply` returned ndarray; it must change `params` in place")
@dataclass(frozen=True)
class Returns(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        return params - self.rate(lr) * update


@wrong("rule", "'m' of the state must be float32, not float64")
@dataclass(frozen=True)
class Double(Heavy):
    def start(self, params: Any) -> Any:
        return {"m": np.zeros(len(params))}


@wrong("rule", "'t' of the state must have 0 values, as many as the parameters")
@dataclass(frozen=True)
class Short(Heavy):
    def start(self, params: Any) -> Any:
        return {"m": np.zeros_like(params), "t": np.zeros(1, np.float32)}


@wrong("rule", "'t' of the state must be an array, not 0")
@dataclass(frozen=True)
class Scalar(Heavy):
    def start(self, params: Any) -> Any:
        return {"m": np.zeros_like(params), "t": 0}


@wrong("rule", "`start` must return a dict of arrays, not NoneType")
@dataclass(frozen=True)
class Forgets(Plain):
    def start(self, params: Any) -> Any:
        return None


@wrong("rule", "shares its memory with another array; `start` must copy")
@dataclass(frozen=True)
class Aliases(Heavy):
    def start(self, params: Any) -> Any:
        return {"m": params}


@wrong("rule", "`apply` changed the update; write to `work` instead")
@dataclass(frozen=True)
class Writes(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        update *= self.rate(lr)
        params -= update


@wrong("rule", "`apply` changed the update")
@dataclass(frozen=True)
class Zeroes(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= self.rate(lr) * update
        update[:] = 0


@wrong("rule", "it uses the shared generator of `random`")
@dataclass(frozen=True)
class Dice(Plain):
    """Draws a random number and ignores it; only the state of the generator shows it."""

    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= (self.rate(lr) + 0 * random.random()) * update


@wrong("rule", "the same updates gave another result the second time")
@dataclass(frozen=True)
class Noise(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= self.rate(lr) * update + 0.01 * np.random.standard_normal(params.size)


@wrong("rule", "the same updates gave another result the second time")
@dataclass(frozen=True)
class Counts(Plain):
    """Decays its rate by a counter of the class, so by all buckets together."""

    steps: ClassVar[Iterable[int]] = count(1)

    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= self.rate(lr) / next(iter(self.steps)) * update


@wrong("rule", "another bucket in between, or other content of `work`, changed the result")
@dataclass(frozen=True)
class Leaks(Plain):
    """Takes `work` for zeros."""

    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        work += self.rate(lr) * update
        params -= work


@wrong("rule", "`apply` replaced 'm' of the state")
@dataclass(frozen=True)
class Replaces(Heavy):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        memory["m"] = 0.9 * memory["m"] + update
        params -= self.rate(lr) * memory["m"]


@wrong("rule", "`apply` added or removed 'v' of the state")
@dataclass(frozen=True)
class Adds(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        memory["v"] = update**2
        params -= self.rate(lr) * update


@wrong("rule", "block by block it gave another result than on the whole bucket; `apply` must work value by value, or")
@dataclass(frozen=True)
class BlockNorm(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= self.rate(lr) / np.linalg.norm(update).clip(1e-9) * update


@wrong("rule", "finite parameters and updates gave NaN or infinity")
@dataclass(frozen=True)
class DividesByZero(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= self.rate(lr) * update / np.abs(update)


@wrong("rule", "`apply` ignores a learning rate of 0; write `self.lr if lr is None else lr`")
@dataclass(frozen=True)
class OrLr(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= (lr or self.lr) * update


@wrong("rule", "`apply` ignores the learning rate that comes with a push")
@dataclass(frozen=True)
class OwnLr(Plain):
    def apply(self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any) -> Any:
        params -= self.lr * update


@wrong("rule", "it reports 'v', which `start` does not return")
@dataclass(frozen=True)
class Misreports(Plain):
    reports = "v"


@wrong("rule", "Ungraded.of_gradients must be True or False, not 1 of type int")
@dataclass(frozen=True)
class Ungraded(Plain):
    of_gradients = 1  # type: ignore[assignment]


@wrong("rule", "a rule cannot need 'gradient'; it can need worker, read")
@dataclass(frozen=True)
class Needy(Plain):
    needs = ("gradient",)


@wrong("rule", "`apply` changed what the worker has read")
@dataclass(frozen=True)
class WritesRead(Plain):
    needs = ("read",)

    def apply(
        self, params: Any, update: Any, memory: Any, staleness: int, lr: float | None, work: Any, seen: Any = 0
    ) -> Any:
        seen.read[:] = params
        params -= self.rate(lr) * update


@wrong("rule", r"`apply` raised TypeError: ")
@dataclass(frozen=True)
class SixOnly(Plain):
    """Asks for something and does not take it."""

    needs = ("read",)


@wrong("rule", "must be hashable: use dataclass(frozen=True)")
@dataclass
class Mutable:
    lr: float = 0.1
    of_gradients = True
    keeps = True
    start = Plain.start
    apply = Plain.apply
