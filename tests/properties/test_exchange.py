"""Properties of the exchange strategy over random numbers of workers, ranges, sizes, schedules, joins and losses.

The invariants stand in `exchange_schedule.py`: every value of every update reaches every live worker exactly once, the
bound holds, nothing is applied inside a step, all workers come to their end, and what is reported of dead workers is
what the replicas contain.
"""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from exchange_schedule import Case, ExchangeSchedule
from syncline.codecs import Int8, OneBit, TopK
from syncline.draw import Draw
from syncline.nodes.exchange.window import WindowSums
from syncline.sim import Cluster, Crash, Join, Leave, Links, Lognormal, MadeUp, Outcome, Restart, Scenario, World
from syncline.sim.compute import Trace
from syncline.strategies.exchange.strategy import ExchangeStrategy

COMMON = {
    "seed": st.integers(0, 1 << 32),
    "workers": st.integers(2, 5),
    "parts": st.integers(1, 9),
    "tau": st.integers(0, 3),
    "size": st.integers(1, 40),
    "steps": st.integers(0, 12),
    "busy": st.sampled_from([0.0, 0.3, 0.7, 0.95]),
    "buffered": st.booleans(),
}

FEW = st.integers(0, 3)


@settings(max_examples=100)
@given(case=st.builds(Case, **COMMON))
def test_every_value_reaches_every_worker_exactly_once(case: Case) -> None:
    ExchangeSchedule(case).play()


@settings(max_examples=100)
@given(case=st.builds(Case, **COMMON, crashes=FEW, leaves=FEW))
def test_deaths_and_leaves(case: Case) -> None:
    ExchangeSchedule(case).play()


@settings(max_examples=250)
@given(case=st.builds(Case, **COMMON, crashes=FEW, joins=FEW, leaves=FEW, changes=FEW))
def test_all_that_can_happen(case: Case) -> None:
    ExchangeSchedule(case).play()


@pytest.mark.slow
@settings(max_examples=5000)
@given(case=st.builds(Case, **COMMON, crashes=FEW, joins=FEW, leaves=FEW, changes=FEW))
def test_all_that_can_happen_for_long(case: Case) -> None:
    ExchangeSchedule(case).play()


SAVES = st.integers(1, 4)


@settings(max_examples=150)
@given(case=st.builds(Case, **COMMON, saves=SAVES, crashes=FEW, joins=FEW, leaves=FEW, changes=FEW))
def test_a_checkpoint_contains_whole_updates_and_a_new_run_goes_on_with_it(case: Case) -> None:
    ExchangeSchedule(case).play()


@settings(max_examples=50)
@given(case=st.builds(Case, **COMMON, saves=SAVES, codec=st.just(TopK(0.3)), joins=FEW, leaves=FEW, changes=FEW))
def test_what_a_codec_has_left_is_part_of_what_is_saved(case: Case) -> None:
    ExchangeSchedule(case).play()


@settings(max_examples=100)
@given(case=st.builds(Case, **COMMON, whole=st.just(False), joins=FEW, leaves=FEW, changes=FEW))
def test_float32_agrees_to_rounding(case: Case) -> None:
    ExchangeSchedule(case).play()


@settings(max_examples=100)
@given(case=st.builds(Case, **COMMON, codec=st.just(TopK(0.3)), joins=FEW, leaves=FEW, changes=FEW))
def test_what_a_sparse_codec_leaves_is_sent_in_the_end(case: Case) -> None:
    ExchangeSchedule(case).play()


@settings(max_examples=100)
@given(
    case=st.builds(
        Case, **COMMON, codec=st.sampled_from([Int8(), OneBit()]), whole=st.just(False), joins=FEW, changes=FEW
    )
)
def test_what_a_rounding_codec_leaves_is_sent_in_the_end(case: Case) -> None:
    ExchangeSchedule(case).play()


# Window sums.


@given(
    parts=st.integers(1, 9),
    lags=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    count=st.integers(1, 40),
    seed=st.integers(0, 99),
)
def test_a_window_knows_every_sum_that_a_peer_can_need(parts: int, lags: list[int], count: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    updates = [random.integers(-9, 9, 5).astype(np.float32) for _ in range(count)]
    window, sent = WindowSums(5, parts), [0] * len(lags)
    for clock, update in enumerate(updates, 1):
        if window.is_due:
            window.tidy({each + 1 for each in sent})
        window.add(update.copy())
        for peer, lag in enumerate(lags):
            if clock - sent[peer] > lag:
                found = window.total(sent[peer] + 1, clock, slice(1, 4))
                assert np.array_equal(found, sum(updates[sent[peer] : clock])[1:4])  # type: ignore[index]
                sent[peer] = clock
    assert window.arrays <= 3 * parts + 2 * (max(lags) + 1) + 4


# Virtual time.


def simulated(strategy: ExchangeStrategy, compute: object, steps: int, *faults: object, **machines: object) -> Outcome:
    workers = len(compute.rows) if isinstance(compute, Trace) else 4
    cluster = Cluster(workers, compute, **machines)  # type: ignore[arg-type]
    return World(Scenario(cluster, strategy, steps, 3, tuple(faults)), MadeUp(3000, Draw(3))).run()  # type: ignore[arg-type]


def by_formula(times: list[list[float]], lead: int) -> tuple[float, float]:
    """When the last worker ends its last step, and how long all wait together.

    Step k of a worker starts at the end of its step k - 1, or of the others' step k - lead if that is later.
    """
    ends = [[0.0] * len(row) for row in times]
    waiting = 0.0
    for k in range(len(times[0])):
        for worker, row in enumerate(times):
            before = ends[worker][k - 1] if k else 0.0
            others = [end[k - lead] for other, end in enumerate(ends) if other != worker] if k >= lead else []
            start = max([before, *others])
            waiting += start - before
            ends[worker][k] = start + row[k]
    return max(row[-1] for row in ends), waiting


seconds = st.one_of(st.sampled_from([0.0, 0.5, 1.0]), st.floats(0.0, 2.0))


@settings(max_examples=100)
@given(data=st.data(), workers=st.integers(2, 6), parts=st.integers(1, 7), tau=st.integers(0, 3))
def test_on_a_free_network_steps_start_when_the_formula_says(
    data: st.DataObject, workers: int, parts: int, tau: int
) -> None:
    steps = data.draw(st.integers(1, 20))
    row = st.lists(seconds, min_size=steps, max_size=steps)
    times = data.draw(st.lists(row, min_size=workers, max_size=workers))
    outcome = simulated(ExchangeStrategy(parts, tau), Trace(tuple(map(tuple, times))), steps)
    assert (outcome.virtual_seconds, outcome.waiting_seconds) == pytest.approx(by_formula(times, parts + tau))
    assert outcome.iterations_done == outcome.updates == workers * steps
    assert outcome.train_progress == steps


FAULTS = st.lists(
    st.one_of(
        st.builds(Crash, st.floats(0.0, 1.5), st.integers(0, 3), st.floats(0.0, 0.3)),
        st.builds(Restart, st.floats(0.3, 1.5), st.integers(0, 3)),
        st.builds(Leave, st.floats(0.0, 1.5), st.integers(0, 2)),
    ),
    max_size=2,
)


@settings(max_examples=100)
@given(
    faults=FAULTS,
    join=st.one_of(st.none(), st.floats(0.0, 1.5)),
    strategy=st.builds(ExchangeStrategy, st.one_of(st.integers(1, 6), st.just("auto")), st.integers(0, 2)),
    bandwidth=st.sampled_from([None, 5e3, 1e5, 1e7]),
)
@example([Crash(1.5, 0, 0.0), Restart(1.0, 0)], None, ExchangeStrategy("auto", 0), 5e3)  # it never gets a replica
def test_simulated_runs_end_whatever_happens(
    faults: list[object], join: float | None, strategy: ExchangeStrategy, bandwidth: float | None
) -> None:
    """Worker 3 stays: otherwise no worker might be left."""
    faults = [each for each in faults if getattr(each, "worker", 0) != 3]
    if join is not None:
        faults.append(Join(join, 4))
    links = None if bandwidth is None else Links(bandwidth, 0.001)
    outcome = simulated(strategy, Lognormal(0.1, 0.5), 15, *faults, links=links)
    assert outcome.train_progress == 15
    again = simulated(strategy, Lognormal(0.1, 0.5), 15, *faults, links=links)
    assert again.trace_sha256 == outcome.trace_sha256


# Staleness.


@given(workers=st.integers(2, 5), parts=st.integers(1, 6), tau=st.integers(0, 2), steps=st.integers(1, 20))
def test_every_range_of_every_update_has_a_staleness(workers: int, parts: int, tau: int, steps: int) -> None:
    """On a free network an update is at most p - 1 updates old when it is sent, and applied after the next step."""
    scenario = Scenario(Cluster(workers, Lognormal(0.1, 0.5)), ExchangeStrategy(parts, tau), steps, 3)
    outcome = World(scenario, MadeUp(3000, Draw(3))).run()
    assert sum(outcome.staleness.values()) == workers * (workers - 1) * steps * parts
    assert max(outcome.staleness) <= 2 * parts + tau
    if parts == 1 and tau == 0:
        assert set(outcome.staleness) == {0}
