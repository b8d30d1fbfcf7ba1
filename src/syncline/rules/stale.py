"""Rules that give stale updates less weight. tau = max(1, staleness)."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, isfinite

import numpy as np

from syncline.errors import UsageError
from syncline.layout import LARGEST, Values
from syncline.rules.protocol import Gradient, Memory

_add, _multiply, _subtract, _divide = np.add, np.multiply, np.subtract, np.divide
_maximum, _least, _sqrt = np.maximum, np.minimum.reduce, np.sqrt


@dataclass(frozen=True)
class Sasgd(Gradient):
    """w -= (alpha / tau) g (Zhang et al. 2015)."""

    name = "sasgd"
    example = "sasgd:0.1"
    lr: float

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        _multiply(update, (self.lr if lr is None else lr) / max(1, staleness), work)
        _subtract(params, work, params)


@dataclass(frozen=True)
class Exponential(Gradient):
    """w -= alpha e^(-rho tau) g (Chan and Lane 2014); rho >= 0, and 0 is `sgd`."""

    name = "exponential"
    example = "exponential:0.1,rho=0.1"
    lr: float
    rho: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.rho >= 0 and isfinite(self.rho)):
            raise UsageError("exponential", f"rho must be at least 0 and finite, not {self.rho}")

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        _multiply(update, (self.lr if lr is None else lr) * exp(-self.rho * max(1, staleness)), work)
        _subtract(params, work, params)


@dataclass(frozen=True)
class Fasgd(Gradient):
    """w -= (alpha / tau) g / v, where v is a moving average of the standard deviation of each value's gradient.

    n = gamma n + (1 - gamma) g^2;  b = gamma b + (1 - gamma) g;  v = beta v + (1 - beta) sqrt(max(n - b^2, 0) + eps).
    n and b start at 0, v at 1. gamma and beta are in [0, 1], eps > 0. Equation 6 of the FASGD paper prints the inverse
    of the root, but its text asks for the deviation itself. With the inverse, the paper's learning rate does not train.
    With gamma = beta = 1, v stays 1 and the result is bit-identical to `sasgd`.
    """

    name = "fasgd"
    example = "fasgd:0.005"
    reports = "v"
    lr: float
    gamma: float = 0.99
    beta: float = 0.99
    eps: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, value in (("gamma", self.gamma), ("beta", self.beta)):
            if not 0 <= value <= 1:
                raise UsageError("fasgd", f"{field} must be in [0, 1], not {value}")
        if not float(np.finfo(np.float32).tiny) <= self.eps <= LARGEST:
            raise UsageError("fasgd", f"eps must be above 0 and finite in float32, not {self.eps}")

    def start(self, params: Values) -> Memory:
        return {"n": np.zeros_like(params), "b": np.zeros_like(params), "v": np.ones_like(params)}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        n, b, v = memory["n"], memory["b"], memory["v"]
        gamma, beta = self.gamma, self.beta
        _multiply(update, 1 - gamma, work)
        _multiply(b, gamma, b)
        _add(b, work, b)
        _multiply(work, update, work)
        _multiply(n, gamma, n)
        _add(n, work, n)
        _multiply(b, b, work)
        _subtract(n, work, work)
        if work.size and _least(work) < 0:  # rounding can make a small variance negative; a test is faster than a clip
            _maximum(work, 0.0, out=work)
        _add(work, self.eps, work)
        _sqrt(work, work)
        _multiply(work, 1 - beta, work)
        _multiply(v, beta, v)
        _add(v, work, v)
        _multiply(update, (self.lr if lr is None else lr) / max(1, staleness), work)
        _divide(work, v, work)
        _subtract(params, work, params)
