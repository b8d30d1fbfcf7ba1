"""Whole simulations with random times, links, models and accidents: they end, and their figures make sense."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncline.draw import Draw
from syncline.errors import RunError
from syncline.layout import Layout
from syncline.placement import Elastic
from syncline.sim import Cluster, Outcome, Scenario, World
from syncline.sim.compute import Trace
from syncline.sim.faults import AddServer, Crash, Fault, Freeze, Join, Leave, RemoveServer, Restart, Slow, Switch
from syncline.sim.network import Links
from syncline.sim.overlap import Overlap
from syncline.sim.problem import Layers
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Drop, Dsps, Pssp, Release, Ssp, SyncModel

seconds = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0]) | st.floats(0, 2, allow_subnormal=False)
links = st.none() | st.builds(
    Links, st.sampled_from([100.0, 1e4, 1e6]), st.sampled_from([0.0, 0.1]), st.sampled_from([None, None, 7, 1000])
)


def models(workers: int, mode: Mode) -> st.SearchStrategy[SyncModel]:
    if mode is Mode.GRADIENTS:
        return st.sampled_from([Bsp(), Ssp(0)])
    return st.one_of(
        st.sampled_from([Bsp(), Asp(), Dsps(0, 2), Dsps(1, 4), Pssp(1, alpha=0.8)]),
        st.builds(Ssp, st.integers(0, 4)),
        st.builds(Drop, st.integers(1, workers)),
        st.builds(Pssp, st.integers(0, 3), st.floats(0, 1)),
    )


def faults(workers: int, mode: Mode) -> st.SearchStrategy[Fault]:
    at, worker = st.floats(0, 10), st.integers(0, workers - 1)
    return st.one_of(
        st.builds(Crash, at, worker, st.sampled_from([0.0, 1.0, 3.0])),
        st.builds(Restart, at, worker),
        st.builds(Freeze, at, worker, st.floats(0.1, 4), st.sampled_from([None, 0.0, 1.0])),
        st.builds(Slow, at, worker, st.floats(0.1, 3), st.sampled_from([None, 2.0])),
        st.builds(Leave, at, worker),
        st.builds(Switch, at, models(workers, mode), st.none(), st.none() | st.sampled_from(Release)),
    )


@st.composite
def moves(draw: st.DrawFn, servers: int, may_add: bool) -> list[Fault]:
    """Servers that come and go, of which there are never more than five."""
    there, following, found = set(range(servers)), servers, []
    for at in sorted(draw(st.lists(st.floats(0, 10), max_size=6))):
        if may_add and len(there) < 5 and draw(st.booleans()):
            there.add(following)
            following += 1
            found.append(AddServer(at))
        elif len(there) > 1:
            gone = draw(st.sampled_from(sorted(there)))
            there.discard(gone)
            found.append(RemoveServer(at, gone))
    return found


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    workers, iterations = draw(st.integers(1, 5)), draw(st.integers(1, 8))
    mode = draw(st.sampled_from([Mode.CHANGES, Mode.CHANGES, Mode.GRADIENTS]))
    chosen = tuple(draw(st.lists(models(workers, mode), min_size=1, max_size=3)))
    accidents = draw(st.lists(faults(workers, mode), max_size=6))
    if draw(st.booleans()):
        accidents.append(Join(draw(st.floats(0, 10)), workers))
    accidents += draw(moves(len(chosen), all(model == chosen[0] for model in chosen)))
    rows = draw(st.lists(st.lists(seconds, min_size=8, max_size=8), min_size=workers + 1, max_size=workers + 1))
    settled, rule = settle_mode(mode, None, chosen)
    strategy = ServerStrategy(
        chosen,
        draw(st.sampled_from(Release)),
        settled,
        rule,
        placement=Elastic(draw(st.sampled_from([1, 1, 3]))),
        bucket_values=draw(st.sampled_from([4, 10, 1000])),
        window=draw(st.sampled_from([None, 1, 8])),
    )
    cable = draw(links)
    colocated = cable is not None and draw(st.booleans())
    apply = draw(st.sampled_from([None, 500.0]))
    handling = draw(st.sampled_from([0.0, 0.0, 0.05]))
    cluster = Cluster(workers, Trace(tuple(map(tuple, rows))), cable, apply, colocated, handling)
    overlap = draw(st.sampled_from([Overlap.NONE, *Overlap]))
    return Scenario(cluster, strategy, iterations, draw(st.integers(0, 99)), tuple(accidents), overlap=overlap)


TABLES = Layout.of([("first", (3,)), ("second", (2, 5)), ("third", (12,))])


def run(scenario: Scenario) -> Outcome:
    return World(scenario, Layers(TABLES, (0.5, 0.0, 0.5), Draw(scenario.seed))).run()


def check(scenario: Scenario) -> None:
    """A run succeeds unless all processes that hold the model are gone; it never stalls."""
    try:
        outcome = run(scenario)
    except RunError as error:
        if "no worker is left" in str(error) or "no live worker has them" in str(error):
            return
        raise
    assert outcome.waiting_seconds >= 0
    assert 0 <= outcome.train_progress <= scenario.iterations
    servers = scenario.strategy.servers + sum(isinstance(fault, AddServer) for fault in scenario.faults)
    assert outcome.updates <= scenario.worker_numbers * scenario.iterations * servers * 4
    if scenario.strategy.mode is Mode.GRADIENTS:
        assert outcome.replica_gap == 0
    assert run(scenario).trace_sha256 == outcome.trace_sha256


def runs(examples: int) -> settings:
    return settings(deadline=None, max_examples=examples, suppress_health_check=[HealthCheck.too_slow])


@runs(200)
@given(scenarios())
def test_whole_runs(scenario: Scenario) -> None:
    check(scenario)


@pytest.mark.slow
@runs(6000)
@given(scenarios())
def test_whole_runs_for_long(scenario: Scenario) -> None:
    check(scenario)
