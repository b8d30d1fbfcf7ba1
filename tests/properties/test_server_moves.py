"""Servers join and leave: no update is lost or applied twice, all make progress, and bsp stays bit-identical."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from random_scripts import (
    CHANGING,
    COMING,
    MORTAL,
    MOVING,
    STEADY,
    UNSURE,
    blocks,
    gates,
    placements,
    runs,
    under_each_model,
    under_two_models,
    with_copies,
)
from rough_model import links, run, seconds
from scheduler import Arrive, Grow, Repeat, Shrink, Switch, Work
from syncline.gates import Always
from syncline.placement import Balanced, Elastic, RoundRobin, Uniform
from syncline.rules import Momentum, Rule
from syncline.sim import Cluster, Scenario
from syncline.sim.compute import Trace
from syncline.sim.faults import AddServer, Fault, RemoveServer
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Bsp, Drop, Psp, Release, Ssp

test_any_order = under_each_model(15, STEADY, MOVING, patience=None, blocks=blocks)
test_all_that_can_befall_a_worker = under_each_model(15, STEADY, UNSURE, MORTAL, COMING, MOVING, blocks=blocks)

EVERYTHING = (STEADY, STEADY, UNSURE, MORTAL, COMING, CHANGING, MOVING, MOVING)
WITH = {"workers": st.integers(1, 4), "gate": gates, "blocks": blocks, "placement": placements}

REST = {"release": Release.LAZY, "seed": 0, "window": None, "gate": Always(), "blocks": 1, "placement": None}
AGAIN = (Shrink(0), Arrive(0), Work(0, 0), Grow(), *[Arrive(0)] * 4, Repeat(0))
"""A server says `Moved` twice, and the worker has already sent the push on."""
CLOSED = (Arrive(0), Work(0, 0), Arrive(0), Switch(0, Psp(1, 0), None))
"""A model closes a round without all workers; the next model does not wait for that round."""

test_everything_at_once = example(script=AGAIN, first=Bsp(), second=Bsp(), workers=1, **REST)(
    example(script=CLOSED, first=Drop(1), second=Bsp(), workers=3, **REST)(under_two_models(100, *EVERYTHING, **WITH))
)
test_everything_at_once_for_long = pytest.mark.slow(under_two_models(6000, *EVERYTHING, **WITH))

COPIES = (STEADY, UNSURE, MORTAL, COMING, CHANGING, MOVING)
test_what_workers_have_read_is_known = with_copies(60, *COPIES, blocks=blocks)
test_what_workers_have_read_is_known_for_long = pytest.mark.slow(with_copies(3000, *COPIES, blocks=blocks))


# Whole runs in the simulator.


@st.composite
def disturbances(draw: st.DrawFn, servers: int, most: int) -> tuple[Fault, ...]:
    there, following, found = set(range(servers)), servers, []
    for at in sorted(draw(st.lists(st.floats(0, 8), min_size=1, max_size=6))):
        if len(there) < most and (len(there) == 1 or draw(st.booleans())):
            there.add(following)
            following += 1
            found.append(AddServer(at))
        else:
            gone = draw(st.sampled_from(sorted(there)))
            there.discard(gone)
            found.append(RemoveServer(at, gone))
    return tuple(found)


@st.composite
def synchronous(draw: st.DrawFn) -> tuple[Scenario, Rule]:
    workers, iterations, servers = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    model = draw(st.sampled_from([Bsp(), Ssp(0)]))
    mode = draw(st.sampled_from(Mode))
    chosen, rule = settle_mode(mode, Momentum(0.1) if mode is Mode.RULE else None, [model])
    placement = draw(st.sampled_from([Elastic(), Elastic(), Uniform(), Balanced(), RoundRobin()]))
    strategy = ServerStrategy(
        (model,) * servers,
        draw(st.sampled_from(Release)),
        chosen,
        rule,
        placement=placement,
        bucket_values=draw(st.sampled_from([3, 10, 1000])),
    )
    rows = draw(st.lists(st.lists(seconds, min_size=6, max_size=6), min_size=workers, max_size=workers))
    cluster = Cluster(workers, Trace(tuple(map(tuple, rows))), draw(links), draw(st.sampled_from([None, 500.0])))
    faults = draw(disturbances(servers, 4))
    return Scenario(cluster, strategy, iterations, faults=faults), draw(
        st.sampled_from([Momentum(0.1), Momentum(0.05)])
    )


def check_undisturbed(case: tuple[Scenario, Rule]) -> None:
    """The final parameters are those of a run in which no server came or went, to the bit."""
    scenario, optimizer = case
    calm = Scenario(scenario.cluster, scenario.strategy, scenario.iterations)
    disturbed, undisturbed = run(scenario, optimizer), run(calm, optimizer)
    assert disturbed.model_vector().tobytes() == undisturbed.model_vector().tobytes()
    assert disturbed.replica_gap == 0
    assert disturbed.train_progress == scenario.iterations


@runs(150)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_an_undisturbed_run_to_the_bit(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(case)


@pytest.mark.slow
@runs(6000)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_an_undisturbed_run_for_long(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(case)
