"""When a simulated run ends: after updates, after seconds, or at a loss or an accuracy."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest

from syncline.draw import Draw
from syncline.errors import RunError, UsageError
from syncline.recipes import build
from syncline.sim import (
    AddServer,
    Cluster,
    Crash,
    InTurn,
    Links,
    Lognormal,
    MadeUp,
    Outcome,
    Problem,
    Scenario,
    Slow,
    StopAt,
    Trace,
    simulate,
)
from syncline.sim.stop import read_stop
from syncline.strategies.server import ServerStrategy

ONE_SLOW = (Slow(0.0, 3, 4.0),)


def digits() -> Problem:
    return build("digits-mlp", draw=Draw(0), workers=4, batch=16)


def outcome(stop: StopAt, sync: str = "asp", *, iterations: int = 25, mode: str | None = None) -> Outcome:
    strategy = ServerStrategy(sync=sync, mode=mode)
    scenario = Scenario(Cluster(4, Lognormal(0.1, 0.3)), strategy, iterations, faults=ONE_SLOW, stop=stop)
    return simulate(scenario, digits())


def test_with_updates_every_worker_trains_until_the_end() -> None:
    to_the_last, stopped = outcome(StopAt()), outcome(StopAt(updates=100))
    assert to_the_last.iterations_done == stopped.iterations_done == stopped.updates == 100
    assert stopped.virtual_seconds < to_the_last.virtual_seconds / 2  # the slow worker is not waited for
    assert stopped.report["staleness_mean"] > to_the_last.report["staleness_mean"] + 0.5
    assert stopped.stopped_by == "updates"
    assert to_the_last.stopped_by == "iterations"


@pytest.mark.parametrize("mode", ["gradients", "changes"])
def test_under_bsp_whole_rounds_give_the_model_of_so_many_iterations(mode: str) -> None:
    plain, stopped = outcome(StopAt(), "bsp", mode=mode), outcome(StopAt(updates=100), "bsp", mode=mode)
    kept = ("params_sha256", "trace_sha256", "virtual_seconds", "replica_gap", "loss")
    assert [plain.report[key] for key in kept] == [stopped.report[key] for key in kept]
    begun = outcome(StopAt(updates=98), "bsp", mode=mode)  # in the middle of the last round
    assert begun.report["params_sha256"] == plain.report["params_sha256"]


def test_seconds_end_a_run_in_the_middle_of_a_step() -> None:
    stopped = outcome(StopAt(seconds=2.0))
    assert stopped.virtual_seconds == 2.0
    assert stopped.stopped_by == "seconds"
    assert stopped.iterations_done < 100
    assert stopped.report["iterations"] is None


def test_the_first_target_that_is_reached_ends_the_run() -> None:
    stopped = outcome(StopAt(loss=0.6, accuracy=0.99))
    assert stopped.stopped_by == "loss"
    assert stopped.quality is not None
    assert stopped.quality.loss <= 0.6
    assert stopped.quality == stopped.curve[-1][2:4]
    assert all(point.loss > 0.6 for point in stopped.curve[:-1])


def test_a_target_that_is_not_reached_is_told() -> None:
    missed = outcome(StopAt(accuracy=1.0), iterations=3)
    assert missed.stopped_by == "iterations"
    assert missed.notes == ("the model did not reach the target (accuracy=1.0) before the end of the run",)


def test_with_a_dispatch_updates_and_seconds_are_turns() -> None:
    for stop, by in ((StopAt(updates=7), "updates"), (StopAt(seconds=7), "seconds")):
        scenario = Scenario(Cluster(4), ServerStrategy(sync="asp"), dispatch=InTurn(), stop=stop)
        found = simulate(scenario, MadeUp(8, Draw(0)))
        assert (found.updates, found.virtual_seconds, found.stopped_by) == (7, 7.0, by)


def test_a_server_that_takes_over_is_waited_for() -> None:
    scenario = Scenario(
        Cluster(2), ServerStrategy(sync="asp"), faults=(AddServer(1.0),), stop=StopAt(seconds=1.0), seed=1
    )
    found = simulate(scenario, MadeUp(8, Draw(0)))
    assert found.model_vector().size


def test_without_workers_there_is_nothing_to_stop() -> None:
    crashes = (Crash(0.5, 0), Crash(0.5, 1))
    scenario = Scenario(Cluster(2), ServerStrategy(sync="asp"), faults=crashes, stop=StopAt(seconds=3.0))
    with pytest.raises(RunError, match="no worker is left"):
        simulate(scenario, MadeUp(8, Draw(0)))


@pytest.mark.parametrize(
    ("stop", "problem"),
    [
        (StopAt(updates=0), "stop.updates: must be a whole number from 1"),
        (StopAt(updates=10**18), "stop.updates: must be a whole number from 1"),
        (StopAt(seconds=float("inf")), "stop.seconds: must be above 0 and at most 1,000,000,000, not inf"),
        (StopAt(seconds=1e18), "stop.seconds: must be above 0 and at most 1,000,000,000, not"),
        (StopAt(loss=float("nan")), "stop.loss: must be finite"),
        (StopAt(accuracy=95.0), "stop.accuracy: must be above 0 and at most 1"),
    ],
)
def test_an_invalid_stop_is_refused(stop: StopAt, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        Scenario(Cluster(2), stop=stop).check()


def test_a_stop_that_would_never_be_reached_is_refused() -> None:
    scenario = Scenario(Cluster(1), stop=StopAt(seconds=1.0))
    with pytest.raises(UsageError, match=r"would never be reached: cluster\.compute\.mean is 0"):
        replace(scenario, cluster=Cluster(1, Lognormal(0.0))).check()
    with pytest.raises(UsageError, match=r"1 virtual seconds, at 1e-12 s per iteration, are more than 1,000,000,000"):
        replace(scenario, cluster=Cluster(1, Lognormal(1e-12))).check()
    replace(scenario, cluster=Cluster(1, Lognormal(0.0), Links(latency=0.1))).check()  # messages take time
    with pytest.raises(UsageError, match="a trace of compute times has one column per iteration"):
        replace(scenario, cluster=Cluster(1, Trace(((0.1,),)))).check()
    with pytest.raises(UsageError, match=r"loss and accuracy need a problem whose quality\(\) measures the model"):
        simulate(Scenario(Cluster(1), stop=StopAt(loss=0.1)), MadeUp(8, Draw(0)))


def test_texts() -> None:
    assert read_stop(["updates=4000", "loss=0.1, accuracy=0.9"]) == {"updates": 4000, "loss": 0.1, "accuracy": 0.9}
    assert str(StopAt(updates=4000, loss=0.1)) == "updates=4000,loss=0.1"
    with pytest.raises(UsageError, match="loss is given twice"):
        read_stop(["loss=1", "loss=2"])


def test_an_outcome_is_a_value_with_its_report() -> None:
    found = outcome(StopAt(updates=20))
    again = pickle.loads(pickle.dumps(found))
    assert again.report == found.report
    assert again.scenario == found.scenario
    assert found.report["bytes_pushed"] == found.bytes_pushed > 0
    assert found.report["waiting_seconds"] == found.waiting_seconds


def test_staleness_by_hand() -> None:
    # Worker 0 pushes at 0.1, 0.2, ..., worker 1 at 0.4, 0.8, ...: between two pushes of worker 1 there are four of
    # worker 0 (the one at the same time is first); each of worker 0 is stale by one just after one of worker 1.
    scenario = Scenario(Cluster(2, Lognormal(0.125)), ServerStrategy(sync="asp"), 8, faults=(Slow(0.0, 1, 4.0),))
    found = simulate(replace(scenario, stop=StopAt(seconds=1.01)), MadeUp(8, Draw(0)))
    assert found.staleness == {0: 7, 1: 1, 4: 2}
    assert found.report["staleness_mean"] == 0.9
    assert found.report["staleness_max"] == 4
    assert found.report["staleness_histogram"] == [[0, 0, 7], [1, 1, 1], [4, 4, 2]]
