"""Properties over random schedules: nothing lost, nothing twice, nobody too far ahead, always progress.

The invariants themselves stand in `ledger.py` and `scheduler.py`; a failure prints the script that breaks one of them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from random_scripts import (
    CHANGING,
    COMING,
    GATES,
    MODELS,
    MORTAL,
    STEADY,
    UNSURE,
    gates,
    models,
    releases,
    runs,
    scripts,
    seeds,
)
from scheduler import Action, Schedule, Setup
from syncline.gates import Gate
from syncline.sync import Release, Ssp, SyncModel

each_model = pytest.mark.parametrize("model", MODELS, ids=repr)


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


@pytest.mark.parametrize("gate", GATES, ids=str)
@runs(20)
@given(script=scripts(STEADY, UNSURE, MORTAL), s=st.integers(0, 3), release=releases, seed=seeds)
def test_under_ssp_no_gate_lets_a_worker_pass_its_bound(
    gate: Gate, script: list[Action], s: int, release: Release, seed: int
) -> None:
    """The ledger looks at the lead of every answer, whether it brings parameters or not."""
    Schedule(Setup((Ssp(s), Ssp(s)), release, gate=gate, seed=seed)).play(script)


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
    gate=gates,
    seed=seeds,
)


def play_everything(
    script: list[Action],
    first: SyncModel,
    second: SyncModel,
    release: Release,
    workers: int,
    gate: Gate,
    seed: int,
) -> None:
    Schedule(Setup((first, second), release, workers, gate=gate, seed=seed)).play(script)


test_everything_at_once = runs(300)(everything(play_everything))
test_everything_at_once_for_long = pytest.mark.slow(runs(6000)(everything(play_everything)))
