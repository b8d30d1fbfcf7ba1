"""B-FASGD: the larger the standard deviation of the gradients, the more a worker sends and fetches."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Literal

from syncline.errors import UsageError
from syncline.gates.protocol import Offer, check_on_skip
from syncline.parts import Part


@dataclass(frozen=True)
class Bandwidth(Part):
    """Transmit if r < 1 / (1 + c / (vbar + eps)) (equation 9 of the FASGD paper).

    `push` is c for updates, `fetch` is c for fetches. c >= 0: 0 always transmits, and a larger c transmits less. r is
    uniform in [0, 1). vbar is the mean of fasgd's v that the servers last reported, and 1 before the first report.
    `per=model`: one r per worker and iteration, and vbar of the whole model when the iteration begins, so that the
    worker transmits the whole model or nothing. `per=table`: one r per table, and vbar of that table.
    """

    name = "bandwidth"
    example = "bandwidth:fetch=0.02"
    needs_mean = True
    push: float = 0.0
    fetch: float = 0.0
    on_skip: Literal["accumulate"] | Literal["reapply"] = "accumulate"
    per: Literal["model"] | Literal["table"] = "model"
    eps: float = 1e-4

    def __post_init__(self) -> None:
        for field, value in (("push", self.push), ("fetch", self.fetch)):
            if not (value >= 0 and isfinite(value)):
                raise UsageError("bandwidth", f"{field} must be at least 0 and finite, not {value}")
        if not (self.eps > 0 and isfinite(self.eps)):
            raise UsageError("bandwidth", f"eps must be above 0 and finite, not {self.eps}")
        if self.per not in ("model", "table"):
            raise UsageError("bandwidth", f"per must be model or table, not {self.per!r}")
        check_on_skip(self.name, self.on_skip)

    @property
    def skips_fetches(self) -> bool:
        return self.fetch > 0

    @property
    def per_table(self) -> bool:
        return self.per == "table" and bool(self.push or self.fetch)

    def sends(self, offer: Offer) -> bool:
        return self._transmits(offer, "push", self.push)

    def fetches(self, offer: Offer) -> bool:
        return self._transmits(offer, "fetch", self.fetch)

    def _transmits(self, offer: Offer, what: str, c: float) -> bool:
        if not c:
            return True
        outlook, keys = offer.outlook, (offer.worker, offer.i)
        if self.per == "model":
            return outlook.once(what, lambda: offer.draw.uniform(what, *keys) < self._chance(c, outlook.mean))
        table = outlook.standings[offer.bucket].table
        mean = outlook.table_means[table]
        return outlook.once((what, table), lambda: offer.draw.uniform(what, *keys, table) < self._chance(c, mean))

    def _chance(self, c: float, mean: float) -> float:
        return 1 / (1 + c / (mean + self.eps))
