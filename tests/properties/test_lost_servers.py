"""Servers die: what any live worker has read is not lost, nothing is applied twice, and all make progress."""

from __future__ import annotations

import pytest
from hypothesis import given
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
    runs,
    under_each_model,
    under_two_models,
)
from rough_model import links, run, seconds
from syncline.placement import Elastic, Placement, RoundRobin, Uniform
from syncline.rules import Momentum, Rule, Sgd
from syncline.sim import AddServer, Cluster, CrashServer, RemoveServer, Scenario
from syncline.sim.compute import Trace
from syncline.sim.faults import Fault
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Bsp, Release, Ssp

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


# Whole runs in the simulator.


@st.composite
def crashes(draw: st.DrawFn, servers: int) -> tuple[Fault, ...]:
    """Servers die, join and leave; there is always one left."""
    there, following, found = set(range(servers)), servers, []
    for at in sorted(draw(st.lists(st.floats(0, 8), min_size=1, max_size=5))):
        what = draw(st.sampled_from(["die", "die", "return", "return", "add", "leave"]))
        if what == "add":
            there.add(following)
            following += 1
            found.append(AddServer(at))
            continue
        which = draw(st.sampled_from(sorted(there)))
        if what == "return" or len(there) == 1:
            found.append(CrashServer(at, which, duration=draw(st.sampled_from([0.01, 0.3, 2.0]))))
        elif what == "die":
            there.discard(which)
            found.append(CrashServer(at, which, draw(st.sampled_from([0.0, 0.1, 1.0]))))
        else:
            there.discard(which)
            found.append(RemoveServer(at, which))
    return tuple(found)


def check_undisturbed(scenario: Scenario, optimizer: Rule) -> None:
    """The final parameters are those of a run in which no server died, to the bit."""
    calm = Scenario(scenario.cluster, scenario.strategy, scenario.iterations)
    disturbed, undisturbed = run(scenario, optimizer), run(calm, optimizer)
    assert disturbed.model_vector().tobytes() == undisturbed.model_vector().tobytes()
    assert disturbed.replica_gap == 0
    assert disturbed.train_progress == scenario.iterations
    assert not (disturbed.restored or {}).get("lost_updates")


@st.composite
def synchronous(draw: st.DrawFn) -> tuple[Scenario, Rule]:
    workers, iterations, servers = draw(st.integers(1, 4)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    model, mode = draw(st.sampled_from([Bsp(), Ssp(0)])), draw(st.sampled_from(Mode))
    chosen, rule = settle_mode(mode, Sgd(0.1) if mode is Mode.RULE else None, [model])
    strategy = ServerStrategy(
        (model,) * servers,
        draw(st.sampled_from(Release)),
        chosen,
        rule,
        placement=draw(st.sampled_from([Elastic(), Uniform(), RoundRobin()])),
        bucket_values=draw(st.sampled_from([3, 10, 1000])),
    )
    rows = draw(st.lists(st.lists(seconds, min_size=6, max_size=6), min_size=workers, max_size=workers))
    cluster = Cluster(workers, Trace(tuple(map(tuple, rows))), draw(links), draw(st.sampled_from([None, 500.0])))
    scenario = Scenario(cluster, strategy, iterations, faults=draw(crashes(servers)))
    return scenario, draw(st.sampled_from([Momentum(0.1), Momentum(0.05)]))


@runs(100)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_a_run_without_deaths_to_the_bit(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(*case)


@pytest.mark.slow
@runs(6000)
@given(synchronous())
def test_under_bsp_the_model_is_that_of_a_run_without_deaths_for_long(case: tuple[Scenario, Rule]) -> None:
    check_undisturbed(*case)
