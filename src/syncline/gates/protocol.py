"""What a gate is: two questions about an offer, and what a worker knows when it asks them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, TypeVar, runtime_checkable

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.layout import Bucket, Values

ACCUMULATE, REAPPLY = "accumulate", "reapply"
"""What becomes of an update that is not sent: it is added to the next one, or the server applies the last one again."""

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Standing:
    """What a worker knows of one bucket when an iteration begins."""

    table: int
    """Where the table begins in which the bucket begins."""
    mean: float | None
    """Of what the servers' rule reports (fasgd: v), as last heard; None: nothing was."""
    size: float | None
    """The root mean square of the bucket's last update, for a gate that `measures`; None: there was none."""
    age: int
    """How many iterations old what the worker holds would be after this one, if it did not fetch."""
    pushed: int
    """Bytes of an update on the wire, at most; for a gate that `measures`."""
    pulled: int
    """Bytes of its parameters, the same."""


@dataclass(frozen=True)
class Outlook:
    """What a worker knows of the whole model when an iteration begins: the same for each of its offers."""

    standings: Mapping[Bucket, Standing]
    turn: int
    """How many iterations it has begun, with this one."""
    sent: int
    """Bytes that its updates took before this one, counted like that."""
    fetched: int
    """Bytes that its fetches took, the same."""
    _found: dict[object, Any] = field(default_factory=dict, repr=False, compare=False)

    def once(self, key: object, find: Callable[[], Found]) -> Found:
        """What `find` gives, asked once for all offers of the iteration."""
        if key not in self._found:
            self._found[key] = find()
        return self._found[key]  # type: ignore[no-any-return]

    @cached_property
    def mean(self) -> float:
        """Of what the rule reports, over the whole model; 1 before anything was heard."""
        return _mean(self.standings)

    @cached_property
    def table_means(self) -> Mapping[int, float]:
        """The same over the buckets that begin in one table, by where that begins."""
        tables: dict[int, dict[Bucket, Standing]] = {}
        for bucket, standing in self.standings.items():
            tables.setdefault(standing.table, {})[bucket] = standing
        return {start: _mean(there) for start, there in tables.items()}


def _mean(standings: Mapping[Bucket, Standing]) -> float:
    """Weighted by size."""
    total = sum(bucket.size * (1.0 if each.mean is None else each.mean) for bucket, each in standings.items())
    return total / sum(bucket.size for bucket in standings)


@dataclass(frozen=True)
class Offer:
    """One bucket's update at one iteration of one worker, about to be sent or not."""

    worker: int
    i: int
    bucket: Bucket
    age: int
    """How many iterations old what the worker holds would be, if it did not fetch: 1, if it has just fetched."""
    fresh: Values | None
    """This iteration's update; None: there is none."""
    held: Values | None
    """What was held back before; None: nothing."""
    params: Values | None
    """The parameters that the worker holds; None: it does not know."""
    draw: Draw
    look: Callable[[], Outlook] = field(repr=False)

    @property
    def outlook(self) -> Outlook:
        """What the worker knows of the whole model."""
        return self.look()

    @cached_property
    def update(self) -> Values | None:
        """What is to be sent, with all that was held back before; None: nothing."""
        if self.held is None or self.fresh is None:
            return self.fresh if self.held is None else self.held
        total: Values = self.held + self.fresh
        return total


@runtime_checkable
class Gate(Protocol):
    """A part that answers two questions about an offer: is it worth sending, is fetching worth it?

    It is asked more than once about the same offer, and must answer the same: randomness comes from `offer.draw`.
    A gate may have: `skips_fetches = False`, if it always fetches, so that it can be used in mode `gradients`;
    `per_table = True`, so that no bucket has values of two tables; `on_skip = "reapply"`; `needs_mean = True`, if it is
    nothing without what a rule reports; `needs_params = True`, if it is nothing without the worker's parameters;
    `measures = True`, if it asks for sizes and bytes.
    """

    def sends(self, offer: Offer) -> bool: ...

    def fetches(self, offer: Offer) -> bool: ...


def check_on_skip(gate: str, word: str) -> None:
    if word not in (ACCUMULATE, REAPPLY):
        raise UsageError(gate, f"on_skip is {ACCUMULATE} or {REAPPLY}, not {word!r}")
