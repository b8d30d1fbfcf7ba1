"""A rule that uses only the sign of each gradient.

syncline train --rule own.rule.SignSgd:0.002
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class SignSgd:
    """w -= alpha sign(g)."""

    lr: float
    of_gradients = True
    keeps = True

    def start(self, params):
        return {}

    def apply(self, params, update, memory, staleness, lr, work):
        np.sign(update, out=work)
        work *= self.lr if lr is None else lr
        params -= work
