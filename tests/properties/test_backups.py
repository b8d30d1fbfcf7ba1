"""Servers with backups die: nothing that was answered is lost, nothing is applied twice, and all make progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backed_schedule import BackedSchedule, Remember
from random_scripts import (
    CHANGING,
    COMING,
    KILLING,
    MODELS,
    MORTAL,
    MOVING,
    STEADY,
    UNSURE,
    Kind,
    gates,
    models,
    releases,
    runs,
    scripts,
    seeds,
    windows,
)
from scheduler import Action, Setup
from syncline.placement import Elastic, Placement, Uniform
from syncline.sync import SyncModel

blocks = st.integers(1, 3)
placements: st.SearchStrategy[Placement | None] = st.sampled_from([None, Elastic(), Uniform()])


def play(script: list[Action], first: SyncModel, others: tuple[SyncModel, ...], spaced: bool, **setup: Any) -> None:
    known = Setup((first, *others), rule=Remember(), mortal=True, **setup)
    BackedSchedule(known, spaced=spaced).play(script)


def under_each_model(examples: int, *kinds: Kind, servers: int, spaced: bool, **drawn: Any) -> Callable[..., None]:
    @pytest.mark.parametrize("model", MODELS, ids=repr)
    @runs(examples)
    @given(script=scripts(*kinds), release=releases, seed=seeds, window=windows, **drawn)
    def test(model: SyncModel, script: list[Action], **setup: Any) -> None:
        play(script, model, (model,) * (servers - 1), spaced, **setup)

    return test


def under_several_models(examples: int, *kinds: Kind, spaced: bool, **drawn: Any) -> Callable[..., None]:
    several = st.lists(models, min_size=1, max_size=2).map(tuple)

    @runs(examples)
    @given(script=scripts(*kinds), first=models, others=several, release=releases, seed=seeds, window=windows, **drawn)
    def test(script: list[Action], first: SyncModel, others: tuple[SyncModel, ...], **setup: Any) -> None:
        play(script, first, others, spaced, **setup)

    return test


test_servers_die = under_each_model(15, STEADY, KILLING, servers=2, spaced=True, patience=st.none())
test_one_after_another = under_each_model(15, STEADY, KILLING, servers=3, spaced=True, gate=gates)
test_several_at_once = under_each_model(15, STEADY, KILLING, servers=3, spaced=False, patience=st.none())

EVERYTHING = (STEADY, STEADY, UNSURE, MORTAL, COMING, CHANGING, MOVING, KILLING)
WITH = {"workers": st.integers(1, 4), "gate": gates, "blocks": blocks, "placement": placements}

test_everything = under_several_models(150, *EVERYTHING, spaced=True, **WITH)
test_everything_at_once = under_several_models(100, *EVERYTHING, spaced=False, **WITH)
test_everything_for_long = pytest.mark.slow(under_several_models(6000, *EVERYTHING, spaced=True, **WITH))
test_everything_at_once_for_long = pytest.mark.slow(under_several_models(6000, *EVERYTHING, spaced=False, **WITH))
