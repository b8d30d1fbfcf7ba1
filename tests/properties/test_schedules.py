"""Properties over random schedules: no update is lost or applied twice, no worker is too far ahead, all make progress.

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
    MORTAL,
    STEADY,
    UNSURE,
    gates,
    releases,
    runs,
    scripts,
    seeds,
    under_each_model,
    under_two_models,
)
from scheduler import Action, Schedule, Setup
from syncline.gates import Gate
from syncline.sync import Release, Ssp

test_any_order = under_each_model(30, STEADY, patience=None)
test_repeats_and_losses = under_each_model(30, STEADY, UNSURE)
test_deaths_freezes_and_restarts = under_each_model(40, STEADY, UNSURE, MORTAL)
test_all_that_can_befall_a_worker = under_each_model(40, STEADY, UNSURE, MORTAL, COMING)
test_all_that_can_befall_a_worker_for_long = pytest.mark.slow(under_each_model(600, STEADY, UNSURE, MORTAL, COMING))
test_changes_of_model = under_two_models(150, STEADY, UNSURE, CHANGING)
test_each_shard_has_its_own_model = under_two_models(150, STEADY, MORTAL, COMING, patience=None)

EVERYTHING = (STEADY, STEADY, UNSURE, MORTAL, COMING, CHANGING)
WITH = {"workers": st.integers(1, 4), "gate": gates}


@pytest.mark.parametrize("gate", GATES, ids=str)
@runs(20)
@given(script=scripts(STEADY, UNSURE, MORTAL), s=st.integers(0, 3), release=releases, seed=seeds)
def test_under_ssp_no_gate_lets_a_worker_pass_its_bound(
    gate: Gate, script: list[Action], s: int, release: Release, seed: int
) -> None:
    """The ledger looks at the lead of every answer, whether it brings parameters or not."""
    Schedule(Setup((Ssp(s), Ssp(s)), release, gate=gate, seed=seed)).play(script)


test_everything_at_once = under_two_models(300, *EVERYTHING, **WITH)
test_everything_at_once_for_long = pytest.mark.slow(under_two_models(6000, *EVERYTHING, **WITH))
