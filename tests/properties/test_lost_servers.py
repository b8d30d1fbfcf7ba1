"""Servers die: what any live worker has read is not lost, nothing is applied twice, and all make progress."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from random_scripts import (
    CHANGING,
    COMING,
    KILLING,
    MORTAL,
    MOVING,
    STEADY,
    UNSURE,
    gates,
    under_each_model,
    under_two_models,
)
from syncline.placement import Elastic, Placement, Uniform

blocks = st.integers(1, 3)
placements: st.SearchStrategy[Placement | None] = st.sampled_from([None, Elastic(), Uniform()])
mortal = st.just(True)

test_servers_die = under_each_model(20, STEADY, KILLING, patience=None, mortal=mortal)
test_servers_and_workers_die = under_each_model(
    20, STEADY, UNSURE, MORTAL, COMING, KILLING, blocks=blocks, mortal=mortal
)

EVERYTHING = (STEADY, STEADY, UNSURE, MORTAL, COMING, CHANGING, MOVING, KILLING)
WITH = {"workers": st.integers(1, 4), "gate": gates, "blocks": blocks, "placement": placements, "mortal": mortal}

test_everything_at_once = under_two_models(150, *EVERYTHING, **WITH)
test_everything_at_once_for_long = pytest.mark.slow(under_two_models(6000, *EVERYTHING, **WITH))
