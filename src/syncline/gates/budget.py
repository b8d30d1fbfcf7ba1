"""A budget of bytes, spent on what is most likely to be stale (what the FASGD paper leaves to future work)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncline.errors import UsageError
from syncline.gates.protocol import Offer, Outlook, Standing
from syncline.layout import Bucket
from syncline.parts import Part
from syncline.units import Size


@dataclass(frozen=True)
class Budget(Part):
    """Each worker may spend so many bytes an iteration, on updates and on fetches.

    What it chooses among are buckets: tables, or pieces of large ones. A bucket's claim is (d + eps) * age. d is how
    fast it becomes stale: the mean of fasgd's v; where the servers' rule reports nothing, the root mean square of the
    bucket's last update; 1 before either is known. Age: how many iterations old what the worker holds of it would be
    without a fetch. When an iteration begins, buckets are taken in order of their claims, as long as they can be paid
    for: what was not spent is left for later iterations, so that none is too large for its turn. A bucket that is taken
    is sent and fetched; the others' updates add up. Since a claim grows with age, everyone's turn comes.

    `of=fetch`: every update is sent, and the budget is for fetches, which the paper finds to be the better to spare.
    In the long run at most `bytes` an iteration are spent, in one iteration at most that and one bucket more.
    """

    name = "budget"
    example = "budget:1MB"
    skips_fetches = True
    measures = True
    per_table = True
    bytes: Size
    of: Literal["both"] | Literal["fetch"] = "both"
    eps: float = 1e-4

    def __post_init__(self) -> None:
        if self.bytes < 1:
            raise UsageError("budget", f"bytes must be at least 1, not {self.bytes}; write it like 1MB")
        if self.of not in ("both", "fetch"):
            raise UsageError("budget", f"of is both or fetch, not {self.of!r}")
        if not 0 < self.eps < float("inf"):
            raise UsageError("budget", f"eps must be above 0 and finite, not {self.eps}")

    def sends(self, offer: Offer) -> bool:
        return self.of == "fetch" or self.fetches(offer)

    def fetches(self, offer: Offer) -> bool:
        outlook = offer.outlook
        return offer.bucket in outlook.once("budget", lambda: self._taken(outlook))

    def _taken(self, outlook: Outlook) -> frozenset[Bucket]:
        """What is paid for in this iteration."""
        both = self.of == "both"
        left = self.bytes * outlook.turn - outlook.fetched - (outlook.sent if both else 0)
        taken = []
        for bucket, standing in sorted(outlook.standings.items(), key=lambda each: (-self._claim(each[1]), each[0])):
            left -= standing.pulled + (standing.pushed if both else 0)
            if left < 0:
                break
            taken.append(bucket)
        return frozenset(taken)

    def _claim(self, standing: Standing) -> float:
        known = standing.mean if standing.mean is not None else standing.size
        return ((1.0 if known is None else known) + self.eps) * standing.age
