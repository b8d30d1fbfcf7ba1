"""Properties over random schedules: nothing lost, nothing twice, nobody too far ahead, always progress.

The invariants themselves stand in `scheduler.py`; a failure here prints the script that breaks one of them.
"""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler import (
    Action,
    Arrive,
    Crash,
    Declare,
    Enlist,
    Freeze,
    Lose,
    Quit,
    Repeat,
    Restart,
    Rush,
    Schedule,
    Setup,
    Switch,
    Tick,
    Wake,
    Work,
)
from syncline.gates import Always, Every
from syncline.sync import Asp, Bsp, Drop, Dsps, Pssp, Release, Ssp, SyncModel

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
)

worker = st.integers(0, 5)
which = st.integers(0, 40)
seeds = st.integers(0, 3)
releases = st.sampled_from(Release)
models = st.sampled_from(MODELS)

STEADY: tuple[st.SearchStrategy[Action], ...] = (
    *[st.builds(Arrive, which)] * 4,
    *[st.builds(Work, worker, which)] * 4,
    st.builds(Rush, worker, st.integers(1, 9)),
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

each_model = pytest.mark.parametrize("model", MODELS, ids=repr)


def scripts(*kinds: tuple[st.SearchStrategy[Action], ...]) -> st.SearchStrategy[list[Action]]:
    """Scripts long enough to matter (a flat list would have about five actions), and some things that go together."""
    actions = [*STEADY, *(action for kind in kinds for action in kind)]
    passages = [st.lists(weighted(actions), min_size=4, max_size=20)] * 4
    if MORTAL in kinds:
        passages += [
            st.builds(lambda w, keep: [Crash(w, keep), Declare(w), Restart(w)], worker, st.integers(0, 255)),
            st.builds(lambda w, n: [Freeze(w), Declare(w), Restart(w), Rush(w, n), Wake(w)], worker, st.integers(0, 9)),
        ]
    return st.lists(weighted(passages), max_size=10).map(lambda chosen: [action for each in chosen for action in each])


def weighted(choices: list[st.SearchStrategy[T]]) -> st.SearchStrategy[T]:
    """One of the choices; one that stands there twice is twice as likely (`one_of` would drop the second)."""
    return st.sampled_from(choices).flatmap(lambda choice: choice)


def runs(examples: int) -> settings:
    return settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])


@each_model
@runs(30)
@given(script=scripts(STEADY), release=releases, seed=seeds)
def test_any_order(model: SyncModel, script: list[Action], release: Release, seed: int) -> None:
    Schedule(Setup((model, model), release, patience=None, seed=seed)).play(script)


@each_model
@runs(30)
@given(script=scripts(STEADY, UNSURE), release=releases, seed=seeds)
def test_repeats_and_losses(model: SyncModel, script: list[Action], release: Release, seed: int) -> None:
    Schedule(Setup((model, model), release, seed=seed)).play(script)


@each_model
@runs(60)
@given(script=scripts(STEADY, UNSURE, MORTAL), release=releases, seed=seeds)
def test_deaths_freezes_and_restarts(model: SyncModel, script: list[Action], release: Release, seed: int) -> None:
    Schedule(Setup((model, model), release, seed=seed)).play(script)


@each_model
@runs(60)
@given(script=scripts(STEADY, UNSURE, MORTAL, COMING), release=releases, seed=seeds)
def test_all_that_can_befall_a_worker(model: SyncModel, script: list[Action], release: Release, seed: int) -> None:
    Schedule(Setup((model, model), release, seed=seed)).play(script)


@runs(150)
@given(script=scripts(STEADY, UNSURE, CHANGING), first=models, second=models, release=releases, seed=seeds)
def test_changes_of_model(
    script: list[Action], first: SyncModel, second: SyncModel, release: Release, seed: int
) -> None:
    Schedule(Setup((first, second), release, seed=seed)).play(script)


@runs(150)
@given(script=scripts(STEADY, MORTAL, COMING), first=models, second=models, release=releases, seed=seeds)
def test_each_shard_has_its_own_model(
    script: list[Action], first: SyncModel, second: SyncModel, release: Release, seed: int
) -> None:
    Schedule(Setup((first, second), release, patience=None, seed=seed)).play(script)


everything = given(
    script=scripts(STEADY, STEADY, UNSURE, MORTAL, COMING, CHANGING),
    first=models,
    second=models,
    release=releases,
    workers=st.integers(1, 4),
    gate=st.sampled_from([Always(), Every(push=2), Every(fetch=2), Every(push=2, fetch=3)]),
    seed=seeds,
)


def play_everything(
    script: list[Action],
    first: SyncModel,
    second: SyncModel,
    release: Release,
    workers: int,
    gate: Always | Every,
    seed: int,
) -> None:
    Schedule(Setup((first, second), release, workers, gate=gate, seed=seed)).play(script)


test_everything_at_once = runs(300)(everything(play_everything))
test_everything_at_once_for_long = pytest.mark.slow(runs(6000)(everything(play_everything)))
