"""Random scripts for `scheduler.py`, by kind of action, and the tests that play them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from own_parts import Impatient, Recall
from scheduler import (
    Action,
    Arrive,
    Bury,
    Crash,
    Declare,
    Enlist,
    Freeze,
    Grow,
    Kill,
    Lose,
    Quit,
    Repeat,
    Restart,
    Revive,
    Ring,
    Rush,
    Schedule,
    Setup,
    Shrink,
    Switch,
    Tick,
    Wake,
    Work,
)
from syncline.gates import Always, Bandwidth, Budget, Cached, Every, Gate, Significance
from syncline.placement import Elastic, Placement, Uniform
from syncline.sync import Asp, Bsp, Drop, Dsps, Psp, Pssp, Release, Ssp, SyncModel, applies_at_close

T = TypeVar("T")

MODELS: tuple[SyncModel, ...] = (
    Bsp(),
    Asp(),
    Ssp(0),
    Ssp(1),
    Ssp(3),
    Dsps(1, 4),
    Dsps(0, 2),
    Drop(1),
    Drop(2),
    Pssp(1, p=0.5),
    Pssp(2, p=1.0),
    Pssp(1, alpha=0.8),
    Pssp(1, alpha="significance"),
    Psp(1, 0),
    Impatient(1, 40.0),
)

GATES: tuple[Gate, ...] = (
    Always(),
    Every(push=2),
    Every(fetch=2),
    Every(push=2, fetch=3),
    Cached(2),
    Bandwidth(push=1.0, fetch=1.0),
    Bandwidth(push=1.0, fetch=3.0, per="table"),
    Significance(0.5),
    Budget(200),
    Budget(100, of="fetch"),
)

worker = st.integers(0, 5)
which = st.integers(0, 40)
seeds = st.integers(0, 3)
releases = st.sampled_from(Release)
models = st.sampled_from(MODELS)
gates = st.sampled_from(GATES)
windows = st.sampled_from([None, 1, 200])
blocks = st.integers(1, 3)
placements: st.SearchStrategy[Placement | None] = st.sampled_from([None, Elastic(), Uniform()])
"""Of one bucket at a time, or of about two buckets."""

STEADY: tuple[st.SearchStrategy[Action], ...] = (
    *[st.builds(Arrive, which)] * 4,
    *[st.builds(Work, worker, which)] * 4,
    st.builds(Rush, worker, st.integers(1, 9)),
    st.builds(Ring, which),
)
UNSURE: tuple[st.SearchStrategy[Action], ...] = (
    *[st.builds(Repeat, which)] * 2,
    st.builds(Lose, which),
    st.builds(Tick, worker),
)
MORTAL: tuple[st.SearchStrategy[Action], ...] = (
    st.builds(Crash, worker, st.integers(0, 255)),
    st.builds(Freeze, worker),
    st.builds(Wake, worker),
    *[st.builds(Declare, worker)] * 2,
    st.builds(Restart, worker),
)
COMING: tuple[st.SearchStrategy[Action], ...] = (
    st.builds(Enlist),
    st.builds(Quit, worker),
)
CHANGING: tuple[st.SearchStrategy[Action], ...] = (st.builds(Switch, st.integers(0, 1), models, st.none() | releases),)
MOVING: tuple[st.SearchStrategy[Action], ...] = (st.builds(Grow), st.builds(Shrink, st.integers(0, 4)))


KILLING: tuple[st.SearchStrategy[Action], ...] = (
    st.builds(Kill, st.integers(0, 4), st.integers(0, 255)),
    *[st.builds(Bury, st.integers(0, 4))] * 2,
    *[st.builds(Revive, st.integers(0, 4))] * 2,
)


def scripts(*kinds: tuple[st.SearchStrategy[Action], ...]) -> st.SearchStrategy[list[Action]]:
    """Scripts long enough to matter (a flat list would have about five actions), and some things that go together."""
    actions = [*STEADY, *(action for kind in kinds for action in kind)]
    passages = [st.lists(weighted(actions), min_size=4, max_size=20)] * 4
    if MORTAL in kinds:
        passages += [
            st.builds(lambda w, keep: [Crash(w, keep), Declare(w), Restart(w)], worker, st.integers(0, 255)),
            st.builds(lambda w, n: [Freeze(w), Declare(w), Restart(w), Rush(w, n), Wake(w)], worker, st.integers(0, 9)),
        ]
    if KILLING in kinds:
        ends = st.builds(Bury, st.just(0)) | st.builds(Revive, st.just(0))
        passages += [
            st.builds(lambda k, keep, end: [Kill(k, keep), end], st.integers(0, 4), st.integers(0, 255), ends),
            st.builds(
                lambda k, keep, end, w, n: [Kill(k, keep), end, Rush(w, n), Kill(k + 1, 0), end],
                *(st.integers(0, 4), st.integers(0, 255), ends, worker, st.integers(0, 4)),
            ),
        ] * 2
    return st.lists(weighted(passages), max_size=10).map(lambda chosen: [action for each in chosen for action in each])


def weighted(choices: list[st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of the choices; one that stands there twice is twice as likely (`one_of` would drop the second)."""
    return st.sampled_from(choices).flatmap(lambda choice: choice)


def runs(examples: int) -> settings:
    return settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])


# Tests. `drawn`: what else of a setup varies.

Kind = tuple[st.SearchStrategy[Action], ...]


def under_each_model(
    examples: int, *kinds: Kind, patience: float | None = 1.0, **drawn: st.SearchStrategy[Any]
) -> Callable[..., None]:
    """A test that plays scripts of these kinds on two shards of the same model, for each model."""

    @pytest.mark.parametrize("model", MODELS, ids=repr)
    @runs(examples)
    @given(script=scripts(*kinds), release=releases, seed=seeds, window=windows, **drawn)
    def test(model: SyncModel, script: list[Action], **setup: Any) -> None:
        Schedule(Setup((model, model), patience=patience, **setup)).play(script)

    return test


def with_copies(examples: int, *kinds: Kind, **drawn: st.SearchStrategy[Any]) -> Callable[..., None]:
    """A test that plays scripts of these kinds with a rule that needs what each worker has read."""
    on_arrival = st.sampled_from([model for model in MODELS if not applies_at_close(model)])

    @runs(examples)
    @given(script=scripts(*kinds), model=on_arrival, release=releases, seed=seeds, window=windows, **drawn)
    def test(script: list[Action], model: SyncModel, **setup: Any) -> None:
        changes = [each for each in script if not isinstance(each, Switch) or not applies_at_close(each.model)]
        Schedule(Setup((model, model), rule=Recall(), **setup)).play(changes)

    return test


def under_two_models(
    examples: int, *kinds: Kind, patience: float | None = 1.0, **drawn: st.SearchStrategy[Any]
) -> Callable[..., None]:
    """A test that plays scripts of these kinds on two shards, each with a model of its own."""

    @runs(examples)
    @given(script=scripts(*kinds), first=models, second=models, release=releases, seed=seeds, window=windows, **drawn)
    def test(script: list[Action], first: SyncModel, second: SyncModel, **setup: Any) -> None:
        Schedule(Setup((first, second), patience=patience, **setup)).play(script)

    return test
