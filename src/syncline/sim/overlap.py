"""Overlap of computation and communication: when in a step a bucket's update is ready, and when it is read.

A step is a forward pass, which takes a third of its seconds, and a backward pass, which does twice the multiplications
and takes the rest. Each table has the same share of both passes. Forward goes from the first table to the last,
backward from the last to the first. Forward reads a bucket when it reaches the bucket's first table. The bucket's
update is ready when backward has finished that table. So one number gives both times: the share of all tables before
that one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from itertools import accumulate, groupby
from typing import Protocol, runtime_checkable

from syncline.layout import Bucket, Layout, Values
from syncline.sim.problem import Problem

FORWARD_PART = 1 / 3
"""The share of a step's seconds that the forward pass takes."""

BACKWARD_PART = 2 / 3


class Overlap(StrEnum):
    """What a worker computes while updates and answers are in flight."""

    NONE = "none"
    """Nothing: the worker sends all updates after the backward pass."""
    BACKWARD = "backward"
    """The rest of the backward pass: the worker sends an update as soon as it is ready."""
    FORWARD = "forward"
    """The next forward pass as well: a table waits only for its own parameters and for those before it."""


@runtime_checkable
class HasShares(Protocol):
    """A problem that knows the share of a pass that each of its tables takes."""

    @property
    def shares(self) -> Sequence[float]:
        """One number per table; the sum is 1."""
        ...


class Stage(Enum):
    """What a worker is computing now."""

    NOTHING = auto()
    FORWARD = auto()
    BACKWARD = auto()


@dataclass(slots=True, eq=False)
class PassState:
    """How far a worker has got in its step."""

    stage: Stage = Stage.NOTHING
    seconds: float | None = None
    """The duration of the whole step; None: the step has not begun."""
    whole: bool = False
    """All buckets of the previous iteration are answered."""
    done: float = 0.0
    """The share of the forward pass that is done."""
    target: float = 0.0
    """The share of the forward pass up to which the worker now computes; there it continues, waits or ends."""
    fresh: int = 0
    """How many buckets, counted from the first, are answered without a gap."""
    answered: list[bool] = field(default_factory=list)
    """For each bucket: whether all its pieces are answered."""
    turned: float = 0.0
    """When the backward pass began, plus the time for which the worker was frozen since."""
    given: int = 0
    """How many departures of this backward pass have happened."""
    updates: list[Values] = field(default_factory=list)


@dataclass(frozen=True)
class Departure:
    """The buckets (with their places, last first) whose updates are ready after this share of the backward pass."""

    share: float
    buckets: tuple[tuple[int, Bucket], ...]


def shares_of(problem: Problem) -> list[float]:
    """Each table's share of a pass; proportional to its size if the problem does not give shares."""
    if isinstance(problem, HasShares):
        return list(problem.shares)
    return [table.size / problem.layout.size for table in problem.layout.tables]


def starts(layout: Layout, shares: Sequence[float], buckets: Sequence[Bucket]) -> list[float]:
    """For each bucket: the share of the forward pass before its first table. The numbers never decrease."""
    tables = [table.start for table in layout.tables]
    before = [0.0, *(min(share, 1.0) for share in accumulate(shares))]
    return [before[bisect_right(tables, bucket.start) - 1] for bucket in buckets]


def departures(found: Sequence[float], buckets: Sequence[Bucket]) -> list[Departure]:
    """Which buckets' updates are ready when in a backward pass, given the buckets' `starts`."""
    backwards = [(1.0 - found[place], (place, buckets[place])) for place in reversed(range(len(buckets)))]
    return [
        Departure(share, tuple(each for _, each in group)) for share, group in groupby(backwards, lambda each: each[0])
    ]
