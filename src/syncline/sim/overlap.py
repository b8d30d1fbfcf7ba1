"""Computing beside sending: what of a step a bucket's update has to wait for, and what has to wait for its answer.

A step is a forward pass, for a third of its seconds, and a backward pass, which has twice the multiplications. Each
table has a share of either. Forward goes from the first table to the last, and backward returns. A bucket is read when
forward comes to its first table, and its update is there when backward has left that table: so one number, the share of
all tables before it, says both.
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
"""Of a step's seconds."""

BACKWARD_PART = 2 / 3


class Overlap(StrEnum):
    """What goes on while updates and answers are under way."""

    NONE = "none"
    """Nothing: all updates leave after the backward pass."""
    BACKWARD = "backward"
    """The rest of the backward pass: an update leaves as soon as it is there."""
    FORWARD = "forward"
    """The next forward pass as well: a table waits only for its own parameters, and those before it."""


@runtime_checkable
class HasShares(Protocol):
    """A problem that knows which share of a pass each of its tables has."""

    @property
    def shares(self) -> Sequence[float]:
        """Together 1."""
        ...


class Stage(Enum):
    """What a worker computes at present."""

    NOTHING = auto()
    FORWARD = auto()
    BACKWARD = auto()


@dataclass(slots=True, eq=False)
class PassState:
    """How far a worker is in its step."""

    stage: Stage = Stage.NOTHING
    seconds: float | None = None
    """Of the whole step; None: it has not begun."""
    whole: bool = False
    """The iteration before is answered, in all buckets."""
    done: float = 0.0
    """The share of the forward pass that is behind it."""
    target: float = 0.0
    """The share at which forward goes on, or waits, or ends."""
    fresh: int = 0
    """So many buckets, counted from the first, are answered."""
    answered: list[bool] = field(default_factory=list)
    """Of each bucket: is it answered, in all its pieces?"""
    turned: float = 0.0
    """When the backward pass began; later, if it was held up since."""
    given: int = 0
    """How many departures there were, of this backward pass."""
    updates: list[Values] = field(default_factory=list)


@dataclass(frozen=True)
class Departure:
    """The buckets (and their places) whose updates are there when so much of the backward pass is done, last first."""

    share: float
    buckets: tuple[tuple[int, Bucket], ...]


def shares_of(problem: Problem) -> list[float]:
    """Of each table, in a pass in either direction; by their sizes, if the problem knows no better."""
    if isinstance(problem, HasShares):
        return list(problem.shares)
    return [table.size / problem.layout.size for table in problem.layout.tables]


def starts(layout: Layout, shares: Sequence[float], buckets: Sequence[Bucket]) -> list[float]:
    """Of each bucket: the share of the forward pass before its first table; in order of the buckets, never falling."""
    tables = [table.start for table in layout.tables]
    before = [0.0, *(min(share, 1.0) for share in accumulate(shares))]
    return [before[bisect_right(tables, bucket.start) - 1] for bucket in buckets]


def departures(found: Sequence[float], buckets: Sequence[Bucket]) -> list[Departure]:
    """What leaves when in a backward pass, given the buckets' `starts`."""
    backwards = [(1.0 - found[place], (place, buckets[place])) for place in reversed(range(len(buckets)))]
    return [
        Departure(share, tuple(each for _, each in group)) for share, group in groupby(backwards, lambda each: each[0])
    ]
