"""Rules that compare the parameters with those that the worker read. They need a copy for each worker (`Need.READ`)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.errors import UsageError
from syncline.layout import LARGEST, Values
from syncline.rules.needs import Need, UpdateOrigin, read_by_worker
from syncline.rules.protocol import Gradient, Memory

_add, _multiply, _subtract, _divide, _sqrt, _abs = np.add, np.multiply, np.subtract, np.divide, np.sqrt, np.abs
_LEAST = float(np.finfo(np.float32).tiny)


@dataclass(frozen=True)
class DcAsgd(Gradient):
    """w -= alpha (g + lam g^2 (w - read)), all elementwise; `read` is what the worker computed g from.

    Delay-compensated ASGD (Zheng et al. 2017): g^2 stands for the diagonal of the Hessian, so that the bracket is a
    first-order estimate of the gradient at w. This is the paper's DC-ASGD-c. With `m` it is DC-ASGD-a, in which lam
    adapts to each value: lam / sqrt(s + eps) instead of lam, with s = m s + (1 - m) g^2. lam >= 0, m in [0, 1),
    eps > 0. The paper uses lam = 0.04 for c; lam = 2, m = 0.95 and eps = 1e-7 for a. lam = 0 is `sgd`.
    """

    name = "dc-asgd"
    example = "dc-asgd:0.1"
    needs = (Need.READ,)
    lr: float
    lam: float = 0.04
    m: float | None = None
    eps: float = 1e-7

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.lam <= LARGEST:
            raise UsageError("dc-asgd", f"lam must be at least 0 and finite in float32, not {self.lam}")
        if self.m is not None and not 0 <= self.m < 1:
            raise UsageError("dc-asgd", f"m must be in [0, 1), not {self.m}")
        if not _LEAST <= self.eps <= LARGEST:
            raise UsageError("dc-asgd", f"eps must be above 0 and finite in float32, not {self.eps}")

    def start(self, params: Values) -> Memory:
        return {} if self.m is None else {"s": np.zeros_like(params)}

    def apply(
        self,
        params: Values,
        update: Values,
        memory: Memory,
        staleness: int,
        lr: float | None,
        work: Values,
        seen: UpdateOrigin | None = None,
    ) -> None:
        moved = params - read_by_worker(seen)
        if self.m is not None:
            s = memory["s"]
            _multiply(update, update, work)
            _multiply(work, 1 - self.m, work)
            _multiply(s, self.m, s)
            _add(s, work, s)
            _add(s, self.eps, work)
            _sqrt(work, work)
            _divide(moved, work, moved)
        _multiply(moved, self.lam, moved)
        _multiply(update, update, work)
        _multiply(work, moved, work)
        _add(work, update, work)
        _multiply(work, self.lr if lr is None else lr, work)
        _subtract(params, work, params)


@dataclass(frozen=True)
class GapAware(Gradient):
    """w -= alpha g / (1 + |w - read| / C), all elementwise; `read` is what the worker computed g from.

    Gap-aware (Barkai, Hakimi and Schuster 2020): a gradient counts for less, the further the parameters have moved
    since its worker read them. C is the usual size of one step: C = alpha sqrt(a / (1 - gamma^t)) + eps, where
    a = gamma a + (1 - gamma) g^2 and t counts the updates. gamma in [0, 1), eps > 0. If nothing has moved, it is `sgd`.
    t is stored for each value, as in `adam`.
    """

    name = "gap-aware"
    example = "gap-aware:0.1"
    needs = (Need.READ,)
    lr: float
    gamma: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.gamma < 1:
            raise UsageError("gap-aware", f"gamma must be in [0, 1), not {self.gamma}")
        if not _LEAST <= self.eps <= LARGEST:
            raise UsageError("gap-aware", f"eps must be above 0 and finite in float32, not {self.eps}")

    def start(self, params: Values) -> Memory:
        return {name: np.zeros_like(params) for name in ("a", "t")}

    def apply(
        self,
        params: Values,
        update: Values,
        memory: Memory,
        staleness: int,
        lr: float | None,
        work: Values,
        seen: UpdateOrigin | None = None,
    ) -> None:
        a, t = memory["a"], memory["t"]
        alpha = self.lr if lr is None else lr
        penalty = params - read_by_worker(seen)
        _abs(penalty, penalty)
        _multiply(update, update, work)
        _multiply(work, 1 - self.gamma, work)
        _multiply(a, self.gamma, a)
        _add(a, work, a)
        _add(t, 1.0, t)
        if not t.size:
            return
        _sqrt(a, work)
        _multiply(work, self._rate(t, alpha), work)
        _add(work, self.eps, work)
        _divide(penalty, work, penalty)
        _add(penalty, 1.0, penalty)
        _divide(update, penalty, work)
        _multiply(work, alpha, work)
        _subtract(params, work, params)

    def _rate(self, t: Values, alpha: float) -> float | Values:
        """alpha / sqrt(1 - gamma^t); one number, unless buckets with different counts were merged."""
        least, most = float(t.min()), float(t.max())
        if least == most:
            return float(alpha * (1 - self.gamma**least) ** -0.5)
        rates: Values = (alpha * (1 - self.gamma ** t.astype(np.float64)) ** -0.5).astype(np.float32)
        return rates
