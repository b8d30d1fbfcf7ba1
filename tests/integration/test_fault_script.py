"""Scripted faults in the simulator: the other workers continue, and the results can be worked out by hand."""

from __future__ import annotations

import pytest

from own_parts import Deaf
from syncline.draw import Draw
from syncline.errors import RunError, Stalled
from syncline.rules import Momentum, Rule, Sgd
from syncline.sim import Cluster, MadeUp, Outcome, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.faults import Crash, Fault, Freeze, Join, Leave, Restart, Slow, Switch
from syncline.sim.network import Links
from syncline.strategies.server.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Drop, Dsps, Pssp, Release, Ssp, SyncModel

ONE_SECOND = Lognormal(1.0)
"""Every step takes one second."""


def run(
    *faults: Fault,
    model: SyncModel | None = None,
    mode: Mode | None = Mode.CHANGES,
    rule: Rule | None = None,
    links: Links | None = None,
    workers: int = 3,
    iterations: int = 6,
    servers: int = 1,
    release: Release = Release.LAZY,
) -> Outcome:
    models = (model or Bsp(),) * servers
    settled, shard_rule = settle_mode(mode, rule, models)
    strategy = ServerStrategy(models, release, settled, shard_rule)
    scenario = Scenario(Cluster(workers, ONE_SECOND, links), strategy, iterations, faults=faults)
    return World(scenario, MadeUp(1000, Draw(0))).run()


def test_a_crash_known_at_once_costs_nothing() -> None:
    outcome = run(Crash(2.5, 1))
    assert outcome.virtual_seconds == 6
    assert outcome.updates == 2 + 2 * 6
    assert outcome.train_progress == 6


def test_the_others_wait_until_a_crash_is_detected() -> None:
    # Workers 0 and 2 push iteration 2 at 3 s and are parked until 4.5 s; from there they need 3 s more.
    outcome = run(Crash(2.5, 1, detect=2.0))
    assert outcome.virtual_seconds == 4.5 + 3
    assert outcome.waiting_seconds == 2 * 1.5
    assert outcome.updates == 2 + 2 * 6


@pytest.mark.parametrize("mode", [Mode.GRADIENTS, Mode.CHANGES])
@pytest.mark.parametrize("servers", [1, 3])
def test_a_restarted_worker_joins_at_the_next_iteration(mode: Mode, servers: int) -> None:
    # Dead from 1.5 s; back at 3.5 s, when V is 3: its first iteration is 4, and it starts when round 3 closes at 4 s.
    outcome = run(Crash(1.5, 1), Restart(3.5, 1), mode=mode, servers=servers)
    assert outcome.virtual_seconds == 6
    assert outcome.updates == servers * (1 + 2 + 2 * 6)
    assert outcome.replica_gap == 0


@pytest.mark.parametrize("mode", [Mode.GRADIENTS, Mode.CHANGES])
def test_a_new_worker_joins(mode: Mode) -> None:
    outcome = run(Join(2.5, 3), mode=mode)
    assert outcome.virtual_seconds == 6
    assert outcome.updates == 3 * 6 + 3
    assert outcome.replica_gap == 0


def test_a_joiner_that_comes_after_everything_has_nothing_to_do() -> None:
    assert run(Join(5.5, 3)).updates == 18
    assert run(Leave(0.5, 0), Leave(0.5, 1), Slow(0, 2, 3.0), Join(2.5, 3)).train_progress == 6


def test_a_frozen_worker_that_was_declared_dead_is_gone_when_it_wakes() -> None:
    # Frozen from 2.5 s to 6.5 s, declared dead at 3.5 s: the others lose half a second.
    outcome = run(Freeze(2.5, 1, duration=4.0, detect=1.0))
    assert outcome.virtual_seconds == 6.5
    assert outcome.updates == 2 + 2 * 6


def test_a_frozen_worker_that_nobody_declares_dead_is_only_late() -> None:
    outcome = run(Freeze(2.5, 1, duration=4.0))
    assert outcome.virtual_seconds == 10
    assert outcome.updates == 18


def test_a_worker_that_leaves_finishes_its_step() -> None:
    outcome = run(Leave(2.5, 1))
    assert outcome.virtual_seconds == 6
    assert outcome.updates == 3 + 2 * 6


def test_a_worker_that_slows_down() -> None:
    # Steps that begin at 2 s and at 4 s take two seconds instead of one.
    outcome = run(Slow(2.0, 1, 2.0, duration=3.0))
    assert outcome.virtual_seconds == 8


def test_a_change_of_model_while_running() -> None:
    slow = Slow(0.0, 1, 3.0)
    assert run(slow, model=Bsp()).virtual_seconds == 18
    assert run(slow, Switch(4.0, Drop(2)), model=Bsp()).virtual_seconds < 18
    assert run(slow, Switch(4.0, Asp()), model=Ssp(1)).train_progress == 6


def test_a_run_without_workers_is_an_error_that_says_so() -> None:
    with pytest.raises(RunError, match="no worker is left"):
        run(Crash(1.5, 0), Crash(1.5, 1), Crash(2.5, 2))


def test_parameters_that_live_in_the_workers_can_be_lost() -> None:
    with pytest.raises(RunError, match="no live worker has them"):
        run(*(Crash(1.5, worker) for worker in range(3)), Restart(3.0, 0), mode=Mode.GRADIENTS)
    outcome = run(*(Crash(1.5, worker) for worker in range(3)), Restart(3.0, 0), mode=Mode.CHANGES)
    assert outcome.train_progress == 6


def test_a_stall_names_who_waits() -> None:
    with pytest.raises(Stalled, match="still waiting: worker 0 at iteration 2"):
        run(Slow(0.0, 1, 9.0), model=Deaf(2))


@pytest.mark.parametrize("model", [Bsp(), Ssp(2), Asp(), Drop(2)], ids=str)
@pytest.mark.parametrize("links", [None, Links(1e6, 0.001)], ids=["free", "linked"])
@pytest.mark.parametrize("servers", [1, 2])
def test_a_run_with_many_faults_succeeds(model: SyncModel, links: Links | None, servers: int) -> None:
    faults = (
        Crash(1.2, 0, detect=0.3),
        Restart(2.7, 0),
        Freeze(3.1, 1, duration=2.0, detect=0.7),
        Join(3.3, 4),
        Leave(4.4, 2),
        Restart(6.0, 1),
        Switch(6.6, Ssp(1)),
        Crash(7.1, 4),
    )
    for mode, rule in ((Mode.CHANGES, None), (Mode.RULE, Momentum(0.1))):
        outcome = run(
            *faults, model=model, mode=mode, rule=rule, links=links, workers=4, iterations=12, servers=servers
        )
        assert outcome.train_progress == 12


def test_a_fault_after_the_end_is_noted() -> None:
    assert "no effect" in run(Crash(100.0, 1)).notes[0]


def test_a_worker_that_dies_again_before_it_has_joined_delays_nobody() -> None:
    outcome = run(Restart(1.2, 0), Crash(1.5, 0), links=Links(1e9, 0.5), workers=2)
    assert outcome.train_progress == 6


def test_a_donor_that_dies_is_replaced_by_another() -> None:
    # The replica waits in the donor's queue when the donor dies.
    for at in (3.375, 3.5, 4.0, 4.25):
        faults = (Restart(0.0, 1), Crash(at, 0))
        outcome = run(*faults, mode=Mode.GRADIENTS, links=Links(1000.0, 0.0), iterations=3)
        assert outcome.train_progress == 3


def test_a_worker_that_leaves_at_the_very_end_is_no_error() -> None:
    outcome = run(Slow(0.0, 1, 1.2), Leave(2.5, 0), model=Asp(), links=Links(1e9, 0.5), workers=2, iterations=2)
    assert outcome.updates == 4


def test_a_freeze_at_the_start_and_freezes_that_overlap() -> None:
    assert run(Freeze(0.0, 0, 5.0), workers=1, iterations=2).virtual_seconds == 7
    # Frozen from 0.5 to 6.5: the first of two steps ends at 7.
    assert run(Freeze(0.5, 0, 5.0), Freeze(1.5, 0, 5.0), workers=1, iterations=2).virtual_seconds == 8


def test_the_end_of_an_earlier_slow_does_not_end_a_later_one() -> None:
    # Two steps of 2 s, then 4 s each for good: 4 + 8 * 4.
    outcome = run(Slow(0.0, 0, 2.0, duration=5.0), Slow(3.0, 0, 4.0), workers=1, iterations=10)
    assert outcome.virtual_seconds == 4 + 8 * 4


def test_waiting_is_never_negative_when_a_crash_ends_the_run() -> None:
    late = (Crash(20.0, 1, detect=50.0), Crash(21.0, 2, detect=50.0))
    outcome = run(Slow(0.0, 1, 1.5), Slow(0.0, 2, 100.0), *late, model=Ssp(1))
    assert outcome.waiting_seconds >= 0


def test_a_change_to_the_same_model_changes_nothing() -> None:
    model = Pssp(1, p=0.5)
    slow = Slow(0.0, 1, 5.0)
    for release in Release:
        before = run(slow, model=model, release=release)
        after = run(slow, Switch(0.0, model), model=model, release=release)
        assert after.trace_sha256 == before.trace_sha256


def test_dsps_does_not_measure_across_another_model() -> None:
    away = (Switch(5.5, Asp()), Freeze(6.0, 1, 20.0), Switch(40.5, Dsps(1, 9)))
    outcome = run(*away, model=Dsps(1, 9), workers=2, iterations=60)
    assert outcome.train_progress == 60


def test_a_model_that_diverges_in_its_last_step_is_an_error() -> None:
    with pytest.raises(RunError, match="NaN or infinity"):
        run(mode=Mode.RULE, rule=Sgd(3e38), iterations=60)
