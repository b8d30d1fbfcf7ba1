"""Send an update once it is large enough relative to the parameters."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite

import numpy as np

from syncline.errors import UsageError
from syncline.gates.protocol import Offer
from syncline.parts import Part


@dataclass(frozen=True)
class Significance(Part):
    """Send a table once |update| > t |w|; until then its updates add up.

    | | is the Euclidean norm over the table, or over each bucket if the table is split. w is the worker's copy of the
    parameters; if it is all 0, every update is significant. The worker fetches in every iteration. t >= 0; t = 0 is
    `always`.
    """

    name = "significance"
    example = "significance:0.01"
    skips_fetches = False
    needs_params = True
    t: float

    def __post_init__(self) -> None:
        if not (self.t >= 0 and isfinite(self.t)):
            raise UsageError("significance", f"t must be at least 0 and finite, not {self.t}")

    @property
    def per_table(self) -> bool:
        return self.t > 0

    def sends(self, offer: Offer) -> bool:
        if not self.t or offer.params is None:
            return True
        update, size = offer.update, float(np.linalg.norm(offer.params))
        return update is None or not size or float(np.linalg.norm(update)) > self.t * size

    def fetches(self, offer: Offer) -> bool:
        return True
