"""Sync models: may this worker be answered, and may the round close?

The law of each model (V: the first iteration that a bucket has not closed; i: the iteration a worker has finished):

    model            pull condition                 push condition                     updates are applied
    bsp              i < V                          nobody is missing in V             at the close
    asp              always                         same                               on arrival
    ssp(s)           i < V + s                      same                               on arrival (ssp(0) is bsp)
    dsps(lo, hi)     i < V + s, s adapted           same                               on arrival
    drop(k)          i < V                          V has k pushes, or nobody missing  at the close
    pssp(s, p)       i < V + s, or r >= p           nobody is missing in V             on arrival
    pssp(s, alpha)   the same with p = alpha / (1 + e^(s - k)), k = i - V

`r` is drawn once per (worker, iteration), the same for every bucket and shard.

A model of your own is a frozen dataclass with `may_answer` and `may_close`; `syncline.testing` checks it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, exp
from typing import Literal, Protocol, runtime_checkable

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.messages import Member
from syncline.parts import Part


class Release(StrEnum):
    """When a parked pull is answered: `lazy`, once all have finished its iteration; `soft`, when V next advances."""

    LAZY = "lazy"
    SOFT = "soft"


class State(Protocol):
    """What a bucket shows to its sync model."""

    @property
    def v(self) -> int:
        """The first iteration that this bucket has not closed."""
        ...

    @property
    def bound(self) -> int:
        """The staleness bound in force, for a model that adapts it."""
        ...

    @property
    def missing(self) -> int:
        """How many live members have still to push iteration V."""
        ...

    @property
    def members(self) -> Mapping[int, Member]:
        """The live members, by worker number."""
        ...

    @property
    def fastest(self) -> int:
        """The highest iteration that a live member has pushed; -1 before the first."""
        ...

    @property
    def slowest(self) -> int:
        """The lowest of the iterations that the live members have pushed last; -1 before the first."""
        ...

    @property
    def significance(self) -> float:
        """|g| / |w| of the update under judgement, 1 where |w| = 0."""
        ...

    def pushed(self, i: int) -> Collection[tuple[int, int]]:
        """The (worker, incarnation) whose push for i >= V was taken, empty or not."""
        ...

    def step_seconds(self) -> Collection[float]:
        """Each live member's mean seconds from an answer to the next push, over its last 8 steps."""
        ...


@runtime_checkable
class SyncModel(Protocol):
    """A part that answers two questions; it has no state of its own.

    With `at_close = True` a round's updates are kept and applied together when it closes; else they are applied on
    arrival.
    """

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        """May the pull of `worker`, which has finished iteration i, be answered now?"""
        ...

    def may_close(self, state: State) -> bool:
        """May iteration V be closed now? (It never is while it has no push and somebody is missing.)"""
        ...


def applies_at_close(model: SyncModel) -> bool:
    """Does the model keep a round's updates? One that does not say so does not."""
    return bool(getattr(model, "at_close", False))


@runtime_checkable
class Adaptive(Protocol):
    """A model that sets `state.bound` anew after each close."""

    def first_bound(self) -> int: ...

    def next_bound(self, state: State) -> int: ...


class _Everyone(Part):
    """The push condition of most models: nobody is missing."""

    at_close = False

    def may_close(self, state: State) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Bsp(_Everyone):
    """Bulk synchronous: everyone waits for everyone, and a round is applied as one."""

    name = "bsp"
    at_close = True

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v


@dataclass(frozen=True)
class Asp(_Everyone):
    """Asynchronous: nobody waits."""

    name = "asp"

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return True


@dataclass(frozen=True)
class Ssp(_Everyone):
    """Stale synchronous: nobody is more than s iterations ahead of the slowest."""

    name = "ssp"
    example = "ssp:3"
    s: int

    def __post_init__(self) -> None:
        _at_least("ssp", "s", self.s, 0)

    @property
    def at_close(self) -> bool:  # type: ignore[override]
        return self.s == 0

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v + self.s


@dataclass(frozen=True)
class Dsps(_Everyone):
    """Ssp whose bound follows the ratio of the slowest to the fastest worker, between lo and hi."""

    name = "dsps"
    example = "dsps:1,4"
    lo: int
    hi: int

    def __post_init__(self) -> None:
        _at_least("dsps", "lo", self.lo, 0)
        _at_least("dsps", "hi", self.hi, max(self.lo, 1))

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v + state.bound

    def first_bound(self) -> int:
        return self.lo

    def next_bound(self, state: State) -> int:
        steps = state.step_seconds()
        if not steps:
            return state.bound
        slowest, fastest = max(steps), min(steps)
        if slowest == fastest:
            ratio = 1.0
        elif slowest >= self.hi * fastest:
            return self.hi
        else:
            ratio = slowest / fastest
        return min(max(ceil(ratio - _NOISE), self.lo), self.hi)


@dataclass(frozen=True)
class Drop(Part):
    """Synchronous, but a round closes with its first k pushes; what comes later for it is dropped."""

    name = "drop"
    example = "drop:6"
    k: int
    at_close = True

    def __post_init__(self) -> None:
        _at_least("drop", "k", self.k, 1)

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v

    def may_close(self, state: State) -> bool:
        return len(state.pushed(state.v)) >= self.k or state.missing == 0


@dataclass(frozen=True)
class Pssp(_Everyone):
    """Ssp that stops a worker past its bound only with a probability.

    Constant: `p`. Dynamic: p = alpha / (1 + e^(s - k)), where k = i - V and alpha is a number or `significance`.
    """

    name = "pssp"
    example = "pssp:s=3,p=0.5"
    s: int
    p: float | None = None
    alpha: float | Literal["significance"] | None = None

    def __post_init__(self) -> None:
        _at_least("pssp", "s", self.s, 0)
        if (self.p is None) == (self.alpha is None):
            raise UsageError("pssp", "give either p (constant) or alpha (dynamic), e.g. pssp:s=3,p=0.5")
        if self.p is not None and not 0 <= self.p <= 1:
            raise UsageError("pssp", f"p is a probability in [0, 1], not {self.p}")
        if self.alpha not in (None, "significance") and not self.alpha >= 0:  # type: ignore[operator]
            raise UsageError("pssp", f"alpha is a number >= 0 or 'significance', not {self.alpha}")

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v + self.s or draw.uniform("pssp", worker, i) >= self.probability(state, i - state.v)

    def probability(self, state: State, k: int) -> float:
        """How likely a worker k iterations ahead of V has to wait."""
        if self.p is not None:
            return self.p
        alpha = state.significance if self.alpha == "significance" else float(self.alpha or 0)
        return min(max(alpha / (1 + exp(min(self.s - k, 700))), 0.0), 1.0)


_NOISE = 1e-9
"""Equal steps differ by rounding; that must not count as a slower worker."""


def _at_least(model: str, field: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(model, f"{field} must be at least {least}, not {value}")


SYNC_MODELS: tuple[type[Part], ...] = (Bsp, Asp, Ssp, Dsps, Drop, Pssp)
