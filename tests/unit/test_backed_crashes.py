"""Servers with backups crash in simulated runs: scripts by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rough_model import run
from syncline.errors import UsageError
from syncline.placement import Elastic, Uniform
from syncline.rules import Adam, Momentum
from syncline.sim import AddServer, Cluster, Crash, CrashServer, Join, Outcome, RemoveServer, Scenario, Switch
from syncline.sim.compute import Trace
from syncline.sim.dispatch import UniformDispatch
from syncline.sim.experiment import read_experiment
from syncline.sim.faults import Fault
from syncline.sim.network import Links
from syncline.strategies.server.strategy import Mode, ServerStrategy

ITERATIONS = 6
LINKS = Links(bandwidth=1000.0, latency=0.02)


def scenario(*faults: Fault, servers: int = 2, backups: int = 1, sync: str = "bsp", **settings: Any) -> Scenario:
    settings = {"mode": Mode.RULE, "rule": Momentum(0.1), **settings}
    strategy = ServerStrategy((sync,) * servers, placement=Elastic(), bucket_values=10, backups=backups, **settings)
    steps = tuple(tuple(1.0 + 0.25 * ((worker + i) % 3) for i in range(20)) for worker in range(8))
    return Scenario(Cluster(3, Trace(steps), LINKS), strategy, ITERATIONS, faults=faults)


def play(*faults: Fault, **settings: Any) -> Outcome:
    return run(scenario(*faults, **settings), Momentum(0.05))


times = pytest.mark.parametrize("at", [0.7, 1.55, 2.9, 4.2, 6.05])


def check_same(outcome: Outcome, **settings: Any) -> None:
    calm = play(backups=0, **settings)
    assert outcome.model_vector().tobytes() == calm.model_vector().tobytes()
    assert outcome.train_progress == ITERATIONS
    assert not outcome.report["restored_buckets"]
    assert any("were taken over by their backups" in note for note in outcome.notes)


@times
@pytest.mark.parametrize("rule", [Momentum(0.1), Adam(0.01)], ids=str)
def test_the_backup_has_what_the_rule_remembers(at: float, rule: Any) -> None:
    check_same(play(CrashServer(at, 1, detect=0.2), rule=rule), rule=rule)


@times
def test_two_servers_die_in_turn_and_start_again(at: float) -> None:
    check_same(play(CrashServer(at, 0, duration=0.5), CrashServer(at + 3.0, 1, duration=0.5)))


@times
def test_the_backup_dies_and_then_its_server(at: float) -> None:
    check_same(play(CrashServer(at, 1), CrashServer(at + 1.5, 0), servers=3), servers=3)


@times
@pytest.mark.parametrize("server", range(3))
def test_a_server_dies_in_the_middle_of_a_join(at: float, server: int) -> None:
    check_same(play(AddServer(at - 0.5), CrashServer(at - 0.46, server), servers=3), servers=3)


@times
@pytest.mark.parametrize("server", range(2))
def test_a_server_dies_in_the_middle_of_a_departure(at: float, server: int) -> None:
    check_same(play(RemoveServer(at - 0.06, 2), CrashServer(at, server), servers=3), servers=3)


def test_a_server_dies_whose_answers_a_worker_awaits_from_the_server_that_handed_it_the_pulls() -> None:
    """Worker 0 waits for worker 1, at server 1. When a third server joins, server 1 hands these pulls to server 0.

    Server 0 dies after its backup has handled the push of worker 1, and before it has answered worker 0. The backup is
    server 1, which worker 0 has asked, and which is alive.
    """
    settings: dict[str, Any] = {"placement": Uniform(), "bucket_values": 3}
    cluster = Cluster(2, Trace(((0.0, 0.0), (0.0, 1.5))), Links(10_000.0, 0.1))
    backed, plain = (ServerStrategy(("bsp",) * 2, backups=number, **settings) for number in (1, 0))
    faults = (AddServer(1.75), CrashServer(2.25, 0, detect=0.0, duration=0.4))
    outcome = run(Scenario(cluster, backed, 2, faults=faults), Momentum(0.1))
    calm = run(Scenario(cluster, plain, 2), Momentum(0.1))
    assert outcome.model_vector().tobytes() == calm.model_vector().tobytes()
    assert not outcome.report["restored_buckets"]


@times
def test_a_server_dies_while_workers_join_and_die_and_the_model_changes(at: float) -> None:
    faults = (Join(at, 3), Switch(at + 0.05, "asp"), CrashServer(at + 0.1, 0, duration=0.4), Crash(at + 0.15, 1))
    outcome = play(*faults, sync="ssp:1")
    assert outcome.train_progress == ITERATIONS


def test_updates_that_were_answered_without_parameters_are_not_lost() -> None:
    said = {"mode": Mode.CHANGES, "rule": None, "sync": "asp", "gate": "every:fetch=4"}
    outcome = play(CrashServer(3.0, 0), **said)
    assert not outcome.report["lost_updates"]
    assert not outcome.report["restored_buckets"]
    assert outcome.train_progress == ITERATIONS


def test_a_run_without_deaths_differs_only_in_time_and_bytes() -> None:
    backed, plain = play(), play(backups=0)
    assert backed.model_vector().tobytes() == plain.model_vector().tobytes()
    keys = ("updates", "delayed_pulls", "bytes_pushed", "bytes_pulled", "train_progress", "staleness_mean")
    assert [backed.report[key] for key in keys] == [plain.report[key] for key in keys]
    assert backed.bytes_wire >= plain.bytes_wire + plain.bytes_pushed
    assert backed.virtual_seconds > plain.virtual_seconds


def test_an_experiment_file_asks_for_backups(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[cluster]\nworkers = 2\n[model]\nparameters = 1000\n[strategy]\nservers = 2\nbackups = 1\n")
    assert read_experiment(file).scenario.strategy.words()["backups"] == "1"
    assert read_experiment(file, {"strategy.backups": "0"}).scenario.strategy.words()["backups"] == "0"
    with pytest.raises(UsageError, match="there is only one; use --servers 2"):
        read_experiment(file, {"strategy.servers": 1}).scenario.check()


@pytest.mark.parametrize("backups", [2, -1, "1", True, None])
def test_another_number_of_backups_is_refused(backups: Any) -> None:
    with pytest.raises(UsageError, match="backups: must be 0 or 1"):
        ServerStrategy(("bsp",) * 2, backups=backups)


def test_what_says_when_answers_leave_is_refused() -> None:
    found = scenario()
    others = (
        Scenario(found.cluster, found.strategy, 1, dispatch=UniformDispatch()),
        Scenario(found.cluster, found.strategy, 1, central=True),
        Scenario(Cluster(3, found.cluster.compute, LINKS, delay_cost=0.1), found.strategy, 1),
    )
    for each in others:
        with pytest.raises(UsageError, match=r"strategy\.backups: cannot be used with"):
            each.check()
