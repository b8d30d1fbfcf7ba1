"""Adam, as in torch.optim."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from syncline.errors import UsageError
from syncline.layout import LARGEST, Values
from syncline.rules.protocol import Gradient, Memory

_add, _multiply, _subtract, _divide, _sqrt = np.add, np.multiply, np.subtract, np.divide, np.sqrt


@dataclass(frozen=True)
class Adam(Gradient):
    """m = beta1 m + (1 - beta1) g;  s = beta2 s + (1 - beta2) g^2;  w -= alpha m' / (sqrt(s') + eps).

    m' = m / (1 - beta1^t) and s' = s / (1 - beta2^t), where t counts the updates (Kingma and Ba 2015). t is stored for
    each value, like m and s, so that buckets can be split, moved or merged from a checkpoint and keep their counts.
    beta1 and beta2 are in [0, 1), eps > 0. Staleness has no effect.
    """

    name = "adam"
    example = "adam:0.001"
    lr: float
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, value in (("beta1", self.beta1), ("beta2", self.beta2)):
            if not 0 <= value < 1:
                raise UsageError("adam", f"{field} must be in [0, 1), not {value}")
        if not float(np.finfo(np.float32).tiny) <= self.eps <= LARGEST:
            raise UsageError("adam", f"eps must be above 0 and finite in float32, not {self.eps}")

    def start(self, params: Values) -> Memory:
        return {name: np.zeros_like(params) for name in ("m", "s", "t")}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        m, s, t = memory["m"], memory["s"], memory["t"]
        alpha = self.lr if lr is None else lr
        _multiply(update, 1 - self.beta1, work)
        _multiply(m, self.beta1, m)
        _add(m, work, m)
        _multiply(update, update, work)
        _multiply(work, 1 - self.beta2, work)
        _multiply(s, self.beta2, s)
        _add(s, work, s)
        _add(t, 1.0, t)
        if not t.size:
            return
        least, most = float(t.min()), float(t.max())
        if least == most:  # always, unless buckets with different counts were merged
            root, rate = (1 - self.beta2**least) ** -0.5, alpha / (1 - self.beta1**least)
        else:
            root, rate = self._corrections(t, alpha)
        _sqrt(s, work)
        _multiply(work, root, work)
        _add(work, self.eps, work)
        _divide(m, work, work)
        _multiply(work, rate, work)
        _subtract(params, work, params)

    def _corrections(self, t: Values, alpha: float) -> tuple[Values, Values]:
        """The same two factors for each value, if the counts differ."""
        counts = t.astype(np.float64)
        root, rate = (1 - self.beta2**counts) ** -0.5, alpha / (1 - self.beta1**counts)
        return root.astype(np.float32), rate.astype(np.float32)
