"""Accidents by script in the simulator: the rest go on, and what follows can be worked out."""

from __future__ import annotations

import pytest

from own_parts import Deaf
from syncline.draw import Draw
from syncline.errors import RunError, Stalled
from syncline.rules import Momentum, Rule
from syncline.sim import Cluster, MadeUp, Outcome, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.faults import Crash, Fault, Freeze, Join, Leave, Restart, Slow, Switch
from syncline.sim.network import Links
from syncline.strategy import Mode, ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Drop, Ssp, SyncModel

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
) -> Outcome:
    models = (model or Bsp(),) * servers
    settled, shard_rule = settle_mode(mode, rule, models)
    strategy = ServerStrategy(models, mode=settled, rule=shard_rule)
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
    assert outcome.meter.waiting_seconds == 2 * 1.5
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


def test_everybody_gone_is_an_error_that_says_so() -> None:
    with pytest.raises(RunError, match="every worker is gone"):
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
def test_a_rough_ride_ends_well(model: SyncModel, links: Links | None, servers: int) -> None:
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
