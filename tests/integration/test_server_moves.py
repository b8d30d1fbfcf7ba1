"""Servers that join and leave in simulated runs: what it costs, what the report says, and what is refused."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import pytest

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.placement import Balanced, Elastic, Placement, RoundRobin
from syncline.recipes import build
from syncline.sim import Cluster, MadeUp, Outcome, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.sim.faults import AddServer, Crash, Fault, Join, RemoveServer, Switch
from syncline.sim.network import Links
from syncline.sim.report import report
from syncline.sim.trace import TraceLog
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.sync import Asp, Bsp, Release, Ssp, SyncModel

PARAMETERS = 60_000
LINKS = Links(1e6, 0.001)
SEVERAL = "they have different ones (0: bsp lazy, 1: ssp:0 lazy)"


def scenario(
    *faults: Fault,
    models: Sequence[SyncModel] = (Bsp(), Bsp()),
    links: Links | None = None,
    placement: Placement | None = None,
    iterations: int = 10,
) -> Scenario:
    mode, rule = settle_mode(None, None, models)
    strategy = ServerStrategy(
        tuple(models), Release.LAZY, mode, rule, placement=placement or Elastic(), bucket_values=4000
    )
    return Scenario(Cluster(4, Lognormal(1.0, 0.3), links), strategy, iterations, faults=faults)


def run(given: Scenario) -> tuple[Outcome, list[dict[str, str]]]:
    """The outcome, and the trace line by line."""
    text = io.StringIO()
    outcome = World(given, MadeUp(PARAMETERS, Draw(given.seed)), trace=TraceLog(text)).run()
    return outcome, list(csv.DictReader(io.StringIO(text.getvalue())))


def bytes_of(trace: list[dict[str, str]], kind: str) -> int:
    return sum(int(line["bytes"]) for line in trace if line["kind"] == kind)


def test_the_new_server_takes_its_share_and_is_pushed_to() -> None:
    outcome, trace = run(scenario(AddServer(4.5), links=LINKS))
    assert outcome.train_progress == 10
    moved = bytes_of(trace, "handover")
    params = PARAMETERS * 4
    assert params / 3 * 0.99 < moved <= params / 3 * (1 + 4)  # with the kept updates of at most four workers
    assert {line["to"] for line in trace if line["kind"] == "handover"} == {"server2"}
    first = min(float(line["time"]) for line in trace if line["kind"] == "handover")
    assert all(
        float(line["time"]) >= first
        for line in trace
        if "server2" in (line["from"], line["to"]) and line["kind"] in ("push", "params")
    )
    assert any(line["kind"] == "push" and line["to"] == "server2" for line in trace)


def test_a_server_that_was_removed_is_not_pushed_to_for_long() -> None:
    outcome, trace = run(scenario(RemoveServer(4.5, 0), links=LINKS))
    assert outcome.train_progress == 10
    pushes = [line for line in trace if line["kind"] == "push" and line["to"] == "server0"]
    assert max(int(line["progress"]) for line in pushes) < 6
    assert any(line["kind"] == "moved" and line["from"] == "server0" for line in trace)


def test_the_report_has_the_same_keys_and_the_run_the_same_trace_each_time() -> None:
    disturbed = scenario(AddServer(2.5), RemoveServer(5.5, 0), AddServer(5.5), links=LINKS)
    outcome, _ = run(disturbed)
    assert report(outcome).keys() == report(run(scenario())[0]).keys()
    assert outcome.trace_sha256 == run(disturbed)[0].trace_sha256
    assert outcome.replica_gap == 0


@pytest.mark.parametrize("model", [Bsp(), Asp(), Ssp(2)], ids=str)
def test_nothing_is_lost_if_a_server_leaves_amid_deaths_and_joins(model: SyncModel) -> None:
    faults = (RemoveServer(3.0, 0), Crash(3.0, 1, detect=0.5), Join(3.1, 4), AddServer(3.2), RemoveServer(6.0, 1))
    outcome, _ = run(scenario(*faults, models=(model, model), links=LINKS))
    assert outcome.train_progress == 10


def test_under_bsp_made_up_values_are_those_of_an_undisturbed_run() -> None:
    calm, _ = run(scenario(models=(Bsp(), Bsp())))
    moved, _ = run(scenario(AddServer(1.1), AddServer(2.2), RemoveServer(3.3, 0), RemoveServer(4.4, 2), links=LINKS))
    assert moved.model_vector().tobytes() == calm.model_vector().tobytes()


def test_a_move_that_is_under_way_when_all_are_done_is_waited_for() -> None:
    slow = scenario(AddServer(1.9), links=Links(1e5, 0.0), iterations=2)
    outcome, trace = run(slow)
    assert bytes_of(trace, "handover")
    assert outcome.train_progress == 2


@pytest.mark.parametrize(
    ("given", "option", "words"),
    [
        (
            scenario(AddServer(1.0), models=(Bsp(), Ssp(0))),
            "faults[0]",
            SEVERAL,
        ),
        (
            scenario(AddServer(2.0), Switch(1.0, Ssp(0), server=1)),
            "faults[0]",
            SEVERAL,
        ),
        (scenario(Switch(2.0, Bsp(), server=1), RemoveServer(1.0, 1)), "faults[0].server", "there is no server 1"),
        (
            scenario(RemoveServer(1.0, 0), RemoveServer(2.0, 0)),
            "faults[1].server",
            "there is no server 0; there is only 1",
        ),
        (scenario(RemoveServer(2.0, 0), RemoveServer(1.0, 1)), "faults[0].server", "0 is the last server"),
        (
            scenario(AddServer(1.0), models=(Bsp(),), placement=RoundRobin()),
            "faults[0]",
            "roundrobin gives server 1 of 2 no values; the model has 1 table; placement elastic works",
        ),
    ],
)
def test_an_invalid_script_is_refused_before_the_run(given: Scenario, option: str, words: str) -> None:
    with pytest.raises(UsageError) as refused:
        World(given, MadeUp(PARAMETERS, Draw(0)))
    assert refused.value.option == option
    assert words in refused.value.problem


def test_a_server_may_be_switched_once_it_is_there() -> None:
    outcome, _ = run(
        scenario(AddServer(1.0), Switch(3.0, Ssp(0), server=2), RemoveServer(5.0, 0), RemoveServer(6.0, 1))
    )
    assert outcome.train_progress == 10


def test_a_real_model_is_the_same_to_the_bit_whatever_moves() -> None:
    def params_sha256(*faults: Fault, placement: Placement | None = None) -> str:
        given = scenario(*faults, links=LINKS, placement=placement)
        problem = build("digits-mlp", draw=Draw(0), workers=4, batch=32)
        return str(report(World(given, problem).run())["params_sha256"])

    faults = (AddServer(2.5), RemoveServer(4.5, 0), AddServer(6.5), RemoveServer(6.5, 2))
    calm = params_sha256()
    assert params_sha256(*faults) == calm
    assert params_sha256(*faults, placement=Balanced()) == calm
