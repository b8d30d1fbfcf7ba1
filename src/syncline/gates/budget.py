"""A byte budget per iteration, spent on the buckets that are most likely to be stale.

The FASGD paper leaves this to future work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from syncline.errors import UsageError
from syncline.gates.protocol import Offer, Outlook, Standing
from syncline.layout import Bucket
from syncline.parts import Part
from syncline.units import MOST_BYTES, Size


@dataclass(frozen=True)
class Budget(Part):
    """Each worker may spend `bytes` per iteration on updates and fetches.

    1. The worker chooses among buckets: tables, or pieces of large tables.
    2. The priority of a bucket is (d + eps) * age. d says how fast the bucket becomes stale: the mean of fasgd's v, or,
       if the servers' rule reports nothing, the root mean square of the bucket's last update, or 1 while neither is
       known. age is how many iterations old the worker's copy would be without a fetch.
    3. When an iteration begins, the worker takes buckets in order of priority while the budget lasts. It sends and
       fetches those buckets. The updates of the others add up.
    4. Unspent bytes are kept for later iterations, so that a bucket of any size is affordable at some point. Priority
       grows with age, so every bucket is taken at some point.

    With `of=fetch` the worker sends every update, and the budget is for fetches alone, since the paper finds it better
    to save on fetches. On average a worker spends at most `bytes` per iteration, and in one iteration at most `bytes`
    plus one bucket.
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
        if not 1 <= self.bytes <= MOST_BYTES:
            limit = f"at least 1 and at most {MOST_BYTES:,}"
            raise UsageError("budget", f"bytes must be {limit}, not {self.bytes}; write it like 1MB")
        if self.of not in ("both", "fetch"):
            raise UsageError("budget", f"of must be both or fetch, not {self.of!r}")
        if not 0 < self.eps < float("inf"):
            raise UsageError("budget", f"eps must be above 0 and finite, not {self.eps}")

    def sends(self, offer: Offer) -> bool:
        return self.of == "fetch" or self.fetches(offer)

    def fetches(self, offer: Offer) -> bool:
        outlook = offer.outlook
        return offer.bucket in outlook.once("budget", lambda: self._taken(outlook))

    def _taken(self, outlook: Outlook) -> frozenset[Bucket]:
        """The buckets that the worker sends or fetches in this iteration."""
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
