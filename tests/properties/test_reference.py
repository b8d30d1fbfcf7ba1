"""The simulator agrees with the reference, and sync models agree with each other where they must."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reference import Figures, Model, simulate
from syncline.draw import Draw
from syncline.sim import Cluster, MadeUp, Scenario, World
from syncline.sim.compute import Trace
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Drop, Dsps, Psp, Pssp, Release, Ssp, SyncModel

Rows = tuple[tuple[float, ...], ...]

PARTS: dict[str, Any] = {"bsp": Bsp, "asp": Asp, "ssp": Ssp, "dsps": Dsps, "drop": Drop, "pssp": Pssp}
ONE_BUCKET, THREE_BUCKETS = 1_000, 600_000
FEW = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ties = st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.0, 5.0])
positive = st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0])
reals = st.floats(0.01, 10.0, allow_nan=False)
releases = st.sampled_from(["lazy", "soft"])


def tables(
    times: st.SearchStrategy[float],
    workers: tuple[int, int] = (1, 5),
    iterations: tuple[int, int] = (1, 8),
) -> st.SearchStrategy[Rows]:
    """Random numbers of workers and of iterations, between these limits."""
    shapes = st.tuples(st.integers(*workers), st.integers(*iterations))
    return shapes.flatmap(lambda shape: st.tuples(*[st.tuples(*[times] * shape[1])] * shape[0]))


def models(workers: int, kinds: tuple[str, ...] = tuple(PARTS)) -> st.SearchStrategy[Model]:
    bound = st.integers(0, 3)
    one: dict[str, st.SearchStrategy[Model]] = {
        "bsp": st.just(("bsp",)),
        "asp": st.just(("asp",)),
        "ssp": st.tuples(st.just("ssp"), bound),
        "dsps": st.tuples(bound, bound).map(lambda pair: ("dsps", min(pair), max(*pair, 1))),
        "drop": st.tuples(st.just("drop"), st.integers(1, workers)),
        "pssp": st.tuples(st.just("pssp"), bound, st.sampled_from([0, 1])),
    }
    return st.one_of(*[one[kind] for kind in kinds])


@st.composite
def cases(draw: st.DrawFn, times: st.SearchStrategy[float], servers: int = 3) -> tuple[Rows, tuple[Model, ...], str]:
    rows = draw(tables(times))
    several = draw(st.lists(models(len(rows)), min_size=1, max_size=servers))
    return rows, tuple(several), draw(releases)


def outcome_of(rows: Rows, chosen: tuple[SyncModel, ...], release: str = "lazy", parameters: int = ONE_BUCKET) -> Any:
    mode, rule = settle_mode(None, None, chosen)
    strategy = ServerStrategy(chosen, Release(release), mode, rule)
    scenario = Scenario(Cluster(len(rows), Trace(rows)), strategy, len(rows[0]))
    return World(scenario, MadeUp(parameters, Draw(0))).run()


def part(model: Model) -> SyncModel:
    name, *values = model
    return PARTS[name](*values)


def figures_of(rows: Rows, chosen: tuple[Model, ...], release: str, parameters: int = ONE_BUCKET) -> Figures:
    outcome = outcome_of(rows, tuple(part(model) for model in chosen), release, parameters)
    return Figures(
        outcome.virtual_seconds,
        outcome.delayed_pulls,
        outcome.waiting_seconds,
        outcome.dropped_updates,
        outcome.updates,
        outcome.train_progress,
    )


def assert_same(measured: Figures, expected: Figures) -> None:
    assert measured == Figures(
        pytest.approx(expected.virtual_seconds, rel=1e-9, abs=1e-12),
        expected.delayed_pulls,
        pytest.approx(expected.waiting_seconds, rel=1e-9, abs=1e-9),
        expected.dropped_updates,
        expected.updates,
        expected.train_progress,
    )


@FEW
@given(cases(ties))
def test_the_simulator_agrees_with_the_reference_where_events_tie(case: tuple[Rows, tuple[Model, ...], str]) -> None:
    assert_same(figures_of(*case), simulate(*case))


@FEW
@given(cases(positive))
def test_the_simulator_agrees_with_the_reference_without_zeros(case: tuple[Rows, tuple[Model, ...], str]) -> None:
    assert_same(figures_of(*case), simulate(*case))


@FEW
@given(cases(reals))
def test_the_simulator_agrees_with_the_reference_on_any_times(case: tuple[Rows, tuple[Model, ...], str]) -> None:
    assert_same(figures_of(*case), simulate(*case))


@FEW
@given(tables(positive, (2, 3), (11, 16)), st.integers(0, 2), st.integers(2, 5), releases)
def test_the_simulator_agrees_with_the_reference_on_a_bound_that_forgets(
    rows: Rows, lo: int, hi: int, release: str
) -> None:
    """More steps than the 8 that dsps remembers."""
    chosen = (("dsps", lo, hi),)
    assert_same(figures_of(rows, chosen, release), simulate(rows, chosen, release))


@settings(FEW, max_examples=100)
@given(cases(ties, servers=2))
def test_the_number_of_buckets_does_not_matter(case: tuple[Rows, tuple[Model, ...], str]) -> None:
    assert_same(figures_of(*case, THREE_BUCKETS), simulate(*case))


def trace_of(rows: Rows, model: SyncModel, release: str, parameters: int = ONE_BUCKET) -> str:
    return outcome_of(rows, (model,), release, parameters).trace_sha256


anything = st.one_of(tables(ties), tables(reals))


@settings(FEW, max_examples=100)
@given(anything, releases, st.integers(0, 3))
def test_pssp_with_p_1_is_ssp(rows: Rows, release: str, s: int) -> None:
    assert trace_of(rows, Pssp(s, p=1), release) == trace_of(rows, Ssp(s), release)


@settings(FEW, max_examples=100)
@given(anything, releases, st.integers(0, 3))
def test_pssp_with_p_0_is_asp(rows: Rows, release: str, s: int) -> None:
    assert trace_of(rows, Pssp(s, p=0), release) == trace_of(rows, Asp(), release)


@settings(FEW, max_examples=100)
@given(anything, releases, st.integers(1, 3))
def test_psp_that_samples_everybody_is_ssp_with_soft_release(rows: Rows, release: str, s: int) -> None:
    assert trace_of(rows, Psp(len(rows), s), release) == trace_of(rows, Ssp(s), "soft")


@settings(FEW, max_examples=100)
@given(anything, releases)
def test_ssp_with_bound_0_is_bsp(rows: Rows, release: str) -> None:
    assert trace_of(rows, Ssp(0), release) == trace_of(rows, Bsp(), release)


@settings(FEW, max_examples=100)
@given(anything, releases)
def test_drop_of_nobody_is_bsp(rows: Rows, release: str) -> None:
    assert trace_of(rows, Drop(len(rows)), release) == trace_of(rows, Bsp(), release)


@settings(FEW, max_examples=30)
@given(cases(st.one_of(ties, reals)))
def test_a_scenario_has_one_trace(case: tuple[Rows, tuple[Model, ...], str]) -> None:
    rows, chosen, release = case
    parts = tuple(part(model) for model in chosen)
    assert len({outcome_of(rows, parts, release).trace_sha256 for _ in range(10)}) == 1
