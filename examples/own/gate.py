"""A gate that sends an update once it is large enough.

syncline train --sync asp --gate own.gate.Large:0.01
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Large:
    """Sends a bucket once its accumulated update exceeds a limit, and fetches when it sends."""

    limit: float

    def sends(self, offer):
        return offer.update is not None and float(np.abs(offer.update).max()) > self.limit

    def fetches(self, offer):
        return self.sends(offer)
