"""The interface of a gate: two questions about an update (`Offer`), and what the worker knows when it asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Bucket, Values

ACCUMULATE, REAPPLY = "accumulate", "reapply"
"""What happens to an update that is not sent: the worker adds it to the next one, or the server applies the worker's
last update again."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a worker knows of one bucket when an iteration begins."""

    table: int
    """The start, in the model vector, of the table in which the bucket begins."""
    mean: float | None
    """The last mean that the server reported for its rule (fasgd: of v); None before the first report."""
    size: float | None
    """The root mean square of the bucket's last update; None before the first, or if the gate has no `measures`."""
    age: int
    """How many iterations old the worker's copy would be after this iteration without a fetch."""
    pushed: int
    """The most bytes that an update takes on the wire; only for a gate with `measures`."""
    pulled: int
    """The most bytes that the parameters take on the wire; only for a gate with `measures`."""


@dataclass(frozen=True)
class Outlook:
    """What a worker knows of the whole model when an iteration begins; all offers of an iteration share it."""

    standings: Mapping[Bucket, Standing]
    turn: int
    """How many iterations the worker has begun, including this one."""
    sent: int
    """Bytes of the updates that the worker sent in earlier iterations, counted as in `Standing.pushed`."""
    fetched: int
    """Bytes of the worker's fetches in earlier iterations, counted as in `Standing.pulled`."""
    _found: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, key: object, find: Callable[[], Found]) -> Found:
        """The result of `find`, which is called once per iteration and key."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]  # type: ignore[no-any-return]

    @cached_property
    def mean(self) -> float:
        """The mean of what the rule reports, over the whole model; 1 before the first report."""
        return _mean(self.standings)

    @cached_property
    def table_means(self) -> Mapping[int, float]:
        """The same mean for each table, over the buckets that begin in it, by the start of the table."""
        tables: dict[int, dict[Bucket, Standing]] = {}
        for bucket, standing in self.standings.items():
            tables.setdefault(standing.table, {})[bucket] = standing
        return {start: _mean(there) for start, there in tables.items()}


def _mean(standings: Mapping[Bucket, Standing]) -> float:
    """The mean over these buckets, weighted by their sizes."""
    total = sum(bucket.size * (1.0 if each.mean is None else each.mean) for bucket, each in standings.items())
    return total / sum(bucket.size for bucket in standings)


@dataclass(frozen=True)
class Offer:
    """The update of one bucket in one iteration of one worker; the gate decides whether to send it."""

    worker: int
    i: int
    bucket: Bucket
    age: int
    """How many iterations old the worker's copy would be without a fetch; 1 if it has just fetched."""
    fresh: Values | None
    """This iteration's update; None if there is none."""
    held: Values | None
    """The sum of the updates that were held back; None if none was."""
    params: Values | None
    """The worker's copy of the parameters; None if it is not known."""
    draw: Draw
    look: Callable[[], Outlook] = field(repr=False)

    @property
    def outlook(self) -> Outlook:
        """What the worker knows of the whole model."""
        return self.look()

    @cached_property
    def update(self) -> Values | None:
        """What the worker would send: this update plus those that were held back; None if there is nothing."""
        if self.held is None or self.fresh is None:
            return self.fresh if self.held is None else self.held
        total: Values = self.held + self.fresh
        return total


@runtime_checkable
class Gate(Protocol):
    """A part that decides about an offer: whether to send the update, and whether to fetch parameters.

    The worker may ask more than once about the same offer, and the gate must answer the same. Take randomness from
    `offer.draw` only. A gate may set these class attributes:

    - `skips_fetches = False`: it fetches in every iteration, so mode `gradients` can use it
    - `per_table = True`: no bucket may contain values of two tables
    - `on_skip = "reapply"`: the server applies the worker's last update again if the gate skips a push
    - `needs_mean = True`: it needs a rule that reports a mean
    - `needs_params = True`: it needs the worker's parameters
    - `measures = True`: it needs `Standing.size`, `pushed` and `pulled`
    """

    def sends(self, offer: Offer) -> bool: ...

    def fetches(self, offer: Offer) -> bool: ...


def check_on_skip(gate: str, word: str) -> None:
    if word not in (ACCUMULATE, REAPPLY):
        raise UsageError(gate, f"on_skip must be {ACCUMULATE} or {REAPPLY}, not {word!r}")
