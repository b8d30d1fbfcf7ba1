"""Servers crash in simulated runs: scripts by name, in each mode."""

from __future__ import annotations

import pytest

from rough_model import run
from syncline.errors import RunError, UsageError
from syncline.placement import Elastic
from syncline.rules import Momentum, Sgd
from syncline.sim import (
    AddServer,
    Cluster,
    Crash,
    CrashServer,
    Join,
    Leave,
    Outcome,
    RemoveServer,
    Scenario,
    Switch,
)
from syncline.sim.compute import Trace
from syncline.sim.faults import Fault
from syncline.sim.network import Links
from syncline.strategies.server.strategy import Mode, ServerStrategy
from syncline.strategies.tree.strategy import TreeStrategy

ITERATIONS = 6
SLOW = Links(bandwidth=100.0, latency=0.1)
"""A bucket of ten values takes 0.4 seconds."""


def play(
    *faults: Fault, mode: Mode, servers: int = 2, workers: int = 3, sync: str = "bsp", gate: str = "always"
) -> Outcome:
    rule = Sgd(0.1) if mode is Mode.RULE else None
    strategy = ServerStrategy((sync,) * servers, mode=mode, rule=rule, gate=gate, placement=Elastic(), bucket_values=10)
    steps = tuple(tuple(0.5 + 0.25 * ((worker + i) % 3) for i in range(20)) for worker in range(8))
    cluster = Cluster(workers, Trace(steps), SLOW)
    return run(Scenario(cluster, strategy, ITERATIONS, faults=faults), Momentum(0.05))


modes = pytest.mark.parametrize("mode", Mode, ids=str)
times = pytest.mark.parametrize("at", [0.0, 0.7, 1.55, 2.9, 4.2, 6.05])


def check_same(outcome: Outcome, calm: Outcome) -> None:
    assert outcome.model_vector().tobytes() == calm.model_vector().tobytes()
    assert outcome.train_progress == ITERATIONS
    assert outcome.report["restored_buckets"] > 0
    assert outcome.report["lost_updates"] == 0


@modes
@times
def test_a_server_dies_and_the_other_takes_over(mode: Mode, at: float) -> None:
    check_same(play(CrashServer(at, 1, detect=0.2), mode=mode), play(mode=mode))


@modes
@times
def test_the_only_server_dies_and_comes_back(mode: Mode, at: float) -> None:
    check_same(play(CrashServer(at, 0, duration=0.5), mode=mode, servers=1), play(mode=mode, servers=1))


@modes
@times
def test_two_servers_die_the_second_during_the_recovery_of_the_first(mode: Mode, at: float) -> None:
    faults = (CrashServer(at, 0), CrashServer(at + 0.15, 1))
    check_same(play(*faults, mode=mode, servers=3), play(mode=mode, servers=3))


@modes
@times
def test_a_server_dies_in_the_middle_of_a_move(mode: Mode, at: float) -> None:
    faults = (
        AddServer(at),
        RemoveServer(at + 0.05, 0),
        CrashServer(at + 0.2, 1),
        CrashServer(at + 0.4, 2, duration=0.3),
    )
    check_same(play(*faults, mode=mode), play(mode=mode))


@times
def test_the_worker_that_seeds_dies_while_it_seeds(at: float) -> None:
    """Whoever was asked dies; without it, the others continue from the next copy."""
    for worker in range(3):
        outcome = play(CrashServer(at, 0), Crash(at + 0.25, worker), mode=Mode.CHANGES, sync="asp")
        assert outcome.train_progress == ITERATIONS
        assert outcome.report["restored_buckets"] > 0


@times
def test_a_server_dies_while_workers_join_and_leave(at: float) -> None:
    faults = (Join(at, 3), Leave(at + 0.05, 0), CrashServer(at + 0.1, 0), CrashServer(at + 1.0, 1, duration=0.2))
    outcome = play(*faults, mode=Mode.CHANGES, sync="ssp:1")
    assert outcome.train_progress == ITERATIONS
    assert outcome.replica_gap >= 0


@times
def test_a_server_dies_after_a_change_of_model(at: float) -> None:
    faults = (
        Switch(at, "asp"),
        CrashServer(at + 0.1, 0, duration=0.4),
        Switch(at + 1.0, "bsp"),
        CrashServer(at + 1.2, 1),
    )
    assert play(*faults, mode=Mode.CHANGES).train_progress == ITERATIONS


def test_answers_without_parameters_are_counted_as_lost() -> None:
    outcome = play(CrashServer(3.0, 0), mode=Mode.CHANGES, sync="asp", gate="every:fetch=4")
    assert outcome.report["lost_updates"] > 0
    assert any("answered without parameters" in note for note in outcome.notes)


def test_without_a_live_worker_nothing_can_be_restored() -> None:
    faults = (Crash(1.0, 0, detect=0.1), CrashServer(1.05, 0, duration=0.1), Join(1.5, 1))
    with pytest.raises(RunError, match="no live worker has a complete copy"):
        play(*faults, mode=Mode.CHANGES, workers=1, servers=1)


def test_a_tree_has_other_faults() -> None:
    scenario = Scenario(Cluster(2, Trace(((1.0,),) * 2)), TreeStrategy(), 1, faults=(CrashServer(0.0, 0),))
    with pytest.raises(UsageError, match="use crash_node or lose_node"):
        scenario.check()
