"""Sync models. A sync model decides for each bucket when the server answers a worker's pull and when a round closes.

V is the first iteration that a bucket has not closed; i is the iteration that a worker has finished. The server answers
a pull when the pull condition holds. It closes iteration V when the push condition holds.

    model            pull condition                 push condition                     updates are applied
    bsp              i < V                          every member has pushed V          at the close
    asp              always                         same                               on arrival
    ssp(s)           i < V + s                      same                               on arrival (ssp(0) is bsp)
    dsps(lo, hi)     i < V + s, s adapted           same                               on arrival
    drop(k)          i < V                          V has k pushes, or every member's  at the close
    pssp(s, p)       i < V + s, or r >= p           every member has pushed V          on arrival
    pssp(s, alpha)   the same with p = alpha / (1 + e^(s - k)), k = i - V
    psp(sample, s)   each sampled worker has        same                               on arrival
                     pushed i - s

`r` is a random number in [0, 1), drawn once per (worker, iteration): it is the same for every bucket and shard. So is
the sample of psp.

A pull that may not be answered waits until V advances (see `Release`), unless the model sets `asks_again`: then the
bucket asks the model about this pull again, at every push or after a time.

A model of your own is a frozen dataclass with `may_answer` and `may_close`. The suite in `syncline.testing` checks it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from math import ceil, exp, isfinite
from typing import Literal, Protocol, runtime_checkable

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.messages import Member
from syncline.parts import Part
from syncline.units import whole


class Release(StrEnum):
    """When the server answers a delayed pull.

    `lazy`: once every worker has finished that iteration. `soft`: when V next advances.
    """

    LAZY = "lazy"
    SOFT = "soft"


class State(Protocol):
    """The state of a bucket, as its sync model sees it."""

    @property
    def v(self) -> int:
        """The first iteration that this bucket has not closed."""
        ...

    @property
    def bound(self) -> int:
        """The current staleness bound, for a model that adapts it."""
        ...

    @property
    def missing(self) -> int:
        """How many live members have not pushed iteration V yet."""
        ...

    @property
    def members(self) -> Mapping[int, Member]:
        """The live members, by worker number."""
        ...

    @property
    def fastest(self) -> int:
        """The highest iteration that a live member has pushed; -1 before the first push."""
        ...

    @property
    def slowest(self) -> int:
        """The lowest of the live members' last pushed iterations; -1 before the first push."""
        ...

    @property
    def waited(self) -> float:
        """How many seconds the pull has waited, for a model that asks again; 0 at the first time."""
        ...

    def last_pushed(self, worker: int) -> int:
        """The last iteration that this live member has pushed; one less than its first iteration if it has not."""
        ...

    @property
    def significance(self) -> float:
        """|g| / |w| of the update that came with the pull; 1 if |w| = 0."""
        ...

    def pushed(self, i: int) -> Collection[tuple[int, int]]:
        """The (worker, incarnation) pairs whose push for iteration i >= V was accepted, even if it was empty."""
        ...

    def step_seconds(self) -> Collection[float]:
        """Each live member's mean seconds from an answer to the next push, over its last 8 steps."""
        ...


@runtime_checkable
class SyncModel(Protocol):
    """A part that answers two questions about a bucket; it has no state.

    With `at_close = True` the server keeps the updates of a round and applies them together when the round closes.
    Otherwise it applies each update on arrival.

    With `asks_again = "push"` the bucket asks `may_answer` about every waiting pull again after each push and each
    change of the members, and answers the pull the first time that the model allows it. With `asks_again = 0.5` it also
    asks after every 0.5 seconds. `release` then has no effect.
    """

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        """Return True if the server may answer the pull of `worker`, which has finished iteration i, now."""
        ...

    def may_close(self, state: State) -> bool:
        """Return True if the server may close iteration V now.

        While V has no push and a member is missing, the server never closes V, whatever this returns.
        """
        ...


def applies_at_close(model: SyncModel) -> bool:
    """Return True if the model applies updates when the round closes; the default is on arrival."""
    return bool(getattr(model, "at_close", False))


ON_PUSH = "push"

Again = float | Literal["push"] | None
"""When a bucket asks again about a waiting pull: at every push, also after so many seconds, or never."""


def asks_again(model: SyncModel) -> Again:
    """When to ask the model again about a pull that it did not allow; the default is never."""
    again: object = getattr(model, "asks_again", None)
    if again is None:
        return None
    if again == ON_PUSH:
        return "push"
    if isinstance(again, bool) or not isinstance(again, (int, float)) or not (again > 0 and isfinite(again)):
        problem = f"must be {ON_PUSH!r}, a number of seconds above 0, or None, not {again!r}"
        raise UsageError("sync", f"{type(model).__qualname__}.asks_again {problem}")
    return float(again)


@runtime_checkable
class Adaptive(Protocol):
    """A model that computes `state.bound` again after each close."""

    def first_bound(self) -> int: ...

    def next_bound(self, state: State) -> int: ...


class _Everyone(Part):
    """The push condition of most models: every member has pushed V."""

    at_close = False

    def may_close(self, state: State) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Bsp(_Everyone):
    """Bulk synchronous: every worker waits for all others, and the server applies a round's updates together."""

    name = "bsp"
    at_close = True

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v


@dataclass(frozen=True)
class Asp(_Everyone):
    """Asynchronous: no worker waits."""

    name = "asp"

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return True


@dataclass(frozen=True)
class Ssp(_Everyone):
    """Stale synchronous: no worker is more than s iterations ahead of the slowest."""

    name = "ssp"
    example = "ssp:3"
    s: int

    def __post_init__(self) -> None:
        whole(self.s, "ssp", name="s")

    @property
    def at_close(self) -> bool:  # type: ignore[override]
        return self.s == 0

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v + self.s


@dataclass(frozen=True)
class Dsps(_Everyone):
    """Ssp with an adaptive bound in [lo, hi]: the slowest worker's step time divided by the fastest worker's."""

    name = "dsps"
    example = "dsps:1,4"
    lo: int
    hi: int

    def __post_init__(self) -> None:
        whole(self.lo, "dsps", name="lo")
        whole(self.hi, "dsps", max(self.lo, 1), name="hi")

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
    """Synchronous, but a round closes after its first k pushes; the server drops later pushes for it."""

    name = "drop"
    example = "drop:6"
    k: int
    at_close = True

    def __post_init__(self) -> None:
        whole(self.k, "drop", 1, name="k")

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v

    def may_close(self, state: State) -> bool:
        return len(state.pushed(state.v)) >= self.k or state.missing == 0


@dataclass(frozen=True)
class Pssp(_Everyone):
    """Ssp in which a worker beyond the bound waits only with probability p.

    Constant: `p`. Dynamic: p = alpha / (1 + e^(s - k)), where k = i - V and alpha is a number or `significance`.
    """

    name = "pssp"
    example = "pssp:s=3,p=0.5"
    s: int
    p: float | None = None
    alpha: float | Literal["significance"] | None = None

    def __post_init__(self) -> None:
        whole(self.s, "pssp", name="s")
        if (self.p is None) == (self.alpha is None):
            raise UsageError("pssp", "give either p (constant) or alpha (dynamic), e.g. pssp:s=3,p=0.5")
        if self.p is not None and not 0 <= self.p <= 1:
            raise UsageError("pssp", f"p must be a probability in [0, 1], not {self.p}")
        if self.alpha not in (None, "significance") and not 0 <= self.alpha <= 2:  # type: ignore[operator]
            above = f"; from 2 on nobody passes the bound, as under ssp:{self.s}"
            raise UsageError("pssp", f"alpha must be a number >= 0 and <= 2 or 'significance', not {self.alpha}{above}")

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return i < state.v + self.s or draw.uniform("pssp", worker, i) >= self.probability(state, i - state.v)

    def probability(self, state: State, k: int) -> float:
        """The probability that a worker k iterations ahead of V has to wait."""
        if self.p is not None:
            return self.p
        alpha = state.significance if self.alpha == "significance" else float(self.alpha or 0)
        return min(max(alpha / (1 + exp(min(self.s - k, 700))), 0.0), 1.0)


@dataclass(frozen=True)
class Psp(_Everyone):
    """Probabilistic synchronous: a worker waits only until a few random others are at most s iterations behind it.

    The pull of a worker that has finished iteration i is answered once each of `sample` other live members has pushed
    iteration i - s (Wang, Catterall and Mortier 2017). The sample is uniform, without replacement, and drawn once per
    (worker, iteration); it is drawn again if the members change. The lead over workers outside the sample has no bound.
    But in every iteration, each of n members is in the sample with probability q = sample / (n - 1). So a worker is
    answered s + k or more iterations ahead of a given member with a probability of at most (1 - q)^k. If `sample` is at
    least n - 1, the bound is that of ssp(s).
    """

    name = "psp"
    example = "psp:sample=10,s=3"
    asks_again = ON_PUSH
    sample: int
    s: int

    def __post_init__(self) -> None:
        whole(self.sample, "psp", 1, name="sample")
        whole(self.s, "psp", name="s")

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        least = i - self.s
        if least < state.v:  # that round is closed
            return True
        return all(state.last_pushed(peer) >= least for peer in self.sampled(state.members, worker, i, draw))

    def sampled(self, members: Collection[int], worker: int, i: int, draw: Draw) -> Collection[int]:
        """The workers that this member waits for after iteration i."""
        order = list(members)
        me = order.index(worker)
        if len(order) - 1 <= self.sample:
            return order[:me] + order[me + 1 :]
        return [order[place + (place >= me)] for place in _places(draw, len(order) - 1, self.sample, worker, i)]


@lru_cache(maxsize=1 << 14)  # the model is asked about the same pull again and again
def _places(draw: Draw, count: int, sample: int, worker: int, i: int) -> tuple[int, ...]:
    """`sample` different numbers below `count` (Floyd's algorithm)."""
    chosen: set[int] = set()
    for last, r in enumerate(draw.uniforms(sample, "psp", worker, i), count - sample):
        place = int(r * (last + 1))
        chosen.add(last if place in chosen else place)
    return tuple(sorted(chosen))


_NOISE = 1e-9
"""Measured times of equal steps differ by rounding; a ratio this close to a whole number counts as that number."""


SYNC_MODELS: tuple[type[Part], ...] = (Bsp, Asp, Ssp, Dsps, Drop, Pssp, Psp)
