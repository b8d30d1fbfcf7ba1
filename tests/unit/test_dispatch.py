"""FRED's dispatch: who is drawn, how often, and never one that waits."""

from __future__ import annotations

from collections import Counter
from io import StringIO
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.sim import Cluster, MadeUp, Outcome, Scenario, World
from syncline.sim.dispatch import Dispatch, InTurn, Pool, UniformDispatch, Weighted
from syncline.sim.trace import TraceLog
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.strategies.table import strategy_class
from syncline.sync import Asp, Bsp, Drop, Pssp, Release, Ssp, SyncModel

RULES: list[Dispatch] = [UniformDispatch(), InTurn(), Weighted(after=0.5), Weighted(slow=2, weight=0.1)]
MODELS: list[SyncModel] = [Bsp(), Asp(), Ssp(2), Drop(3), Pssp(1, p=0.5)]


def run(
    rule: Dispatch, model: SyncModel, clients: int = 5, iterations: int = 20, seed: int = 0, release: str = "lazy"
) -> tuple[Outcome, list[list[str]]]:
    """The outcome, and the messages of the trace."""
    mode, settled = settle_mode(None, None, (model,))
    strategy = ServerStrategy((model,), Release(release), mode, settled)
    scenario = Scenario(Cluster(clients), strategy, iterations, seed, dispatch=rule)
    file = StringIO()
    outcome = World(scenario, MadeUp(100, Draw(seed)), trace=TraceLog(file)).run()
    return outcome, [line.split(",") for line in file.getvalue().splitlines()[1:]]


def drawn(messages: list[list[str]]) -> list[int]:
    """The clients in the order in which they were drawn: a push each."""
    return [int(source.removeprefix("worker")) for _, source, _, kind, _, _ in messages if kind == "push"]


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_turn_each_second_and_as_many_as_asked_for(rule: Dispatch, model: SyncModel) -> None:
    outcome, messages = run(rule, model)
    assert len(drawn(messages)) == 5 * 20
    assert [float(time) for time, _, _, kind, _, _ in messages if kind == "push"] == list(range(1, 101))
    assert outcome.updates + outcome.dropped_updates == 100


@pytest.mark.parametrize("release", ["lazy", "soft"])
@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_client_that_waits_is_never_drawn(rule: Dispatch, model: SyncModel, release: str) -> None:
    _, messages = run(rule, model, release=release)
    waiting: set[str] = set()
    for _, source, to, kind, _, _ in messages:
        if kind == "push":
            assert source not in waiting
            waiting.add(source)
        else:
            waiting.discard(to)


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_under_bsp_a_round_draws_everyone_once(rule: Dispatch) -> None:
    outcome, messages = run(rule, Bsp())
    order = drawn(messages)
    assert all(sorted(order[start : start + 5]) == list(range(5)) for start in range(0, 100, 5))
    assert outcome.train_progress == 20
    assert outcome.delayed_pulls == 20 * 4
    assert outcome.replica_gap == 0


@pytest.mark.parametrize("model", MODELS, ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_seed_has_one_trace(rule: Dispatch, model: SyncModel) -> None:
    assert len({run(rule, model, seed=3)[0].trace_sha256 for _ in range(3)}) == 1


def test_another_seed_draws_others() -> None:
    assert drawn(run(UniformDispatch(), Asp(), seed=1)[1]) != drawn(run(UniformDispatch(), Asp(), seed=2)[1])


def test_round_robin() -> None:
    assert drawn(run(InTurn(), Asp())[1]) == list(range(5)) * 20


def test_uniform_draws_all_about_equally() -> None:
    counts = Counter(drawn(run(UniformDispatch(), Asp(), clients=10, iterations=400)[1]))
    assert sum(counts.values()) == 4000
    spread = 5 * (4000 * 0.1 * 0.9) ** 0.5
    assert all(abs(counts[client] - 400) < spread for client in range(10))


def test_uniform_draws_independently() -> None:
    """A client follows itself as often as any other."""
    order = drawn(run(UniformDispatch(), Asp(), clients=10, iterations=400)[1])
    repeats = sum(one == other for one, other in pairwise(order))
    assert abs(repeats - 400) < 5 * (4000 * 0.1 * 0.9) ** 0.5


def test_weighted_draws_a_client_less_often_after_it_was_drawn() -> None:
    """after = 0.5: a client that is drawn often becomes unlikely, so that counts stay close together."""
    uniform, weighted = (
        np.bincount(drawn(run(rule, Asp(), clients=10, iterations=400)[1]))
        for rule in (UniformDispatch(), Weighted(after=0.5))
    )
    assert weighted.sum() == 4000
    assert weighted.max() - weighted.min() <= 15
    assert weighted.std() < uniform.std() / 2


def test_weighted_with_after_1_is_uniform_in_the_long_run() -> None:
    counts = Counter(drawn(run(Weighted(), Asp(), clients=10, iterations=400)[1]))
    assert all(abs(counts[client] - 400) < 5 * (4000 * 0.1 * 0.9) ** 0.5 for client in range(10))


def test_slow_clients_are_drawn_by_their_weight() -> None:
    # 8 clients of weight 1 and the last 2 of weight 0.5: those are drawn 4000 * 0.5 / 9 = 222 times each.
    counts = Counter(drawn(run(Weighted(slow=2, weight=0.5), Asp(), clients=10, iterations=400)[1]))
    spread = 5 * 4000**0.5 / 3
    assert all(abs(counts[client] - 4000 / 9) < spread for client in range(8))
    assert all(abs(counts[client] - 2000 / 9) < spread for client in (8, 9))


def test_weights_beyond_floating_point_do_not_run_out() -> None:
    for after in (1e-30, 1e30):
        assert len(drawn(run(Weighted(after=after), Asp(), clients=3, iterations=100)[1])) == 300


@given(
    st.integers(1, 8),
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=30),
    st.integers(0, 7),
)
def test_a_pool_is_a_set(clients: int, moves: list[tuple[bool, int]], start: int) -> None:
    pool, model = Pool(clients), set(range(clients))
    for adding, number in moves:
        client = number % clients
        if adding:
            pool.add(client)
            model.add(client)
        elif client in model:
            pool.remove(client)
            model.remove(client)
        assert len(pool) == len(model)
        assert {pool[place] for place in range(len(pool))} == model
        assert set(np.flatnonzero(pool.mask).tolist()) == model
    if model:
        first = start % clients
        assert pool.at_or_after(first) == min(model, key=lambda client: (client - first) % clients)


@pytest.mark.parametrize("strategy", ["exchange", "tree"])
def test_strategies_whose_nodes_send_by_the_clock_are_refused(strategy: str) -> None:
    settled = strategy_class(strategy).of({}).fitted(4)
    with pytest.raises(UsageError, match="has no clock") as refused:
        Scenario(Cluster(4), settled, 10, dispatch=InTurn()).check()
    assert refused.value.option == "dispatch"
