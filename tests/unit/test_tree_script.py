"""Scripted faults and changes of the nodes of a simulated tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from syncline.draw import Draw
from syncline.errors import UsageError
from syncline.sim import Cluster, Links, Lognormal, MadeUp, Scenario, World
from syncline.sim.faults import read_faults
from syncline.sim.outcome import Outcome
from syncline.sim.plot import plot
from syncline.strategies.table import read_strategy, strategy_class

WORKERS = 6
SCRIPT: list[dict[str, Any]] = [
    {"kind": "crash_node", "at": 0.7, "node": 2, "duration": 0.4},
    {"kind": "reshape", "at": 1.5, "topology": "star"},
    {"kind": "add_node", "at": 1.8, "beside": 0},
    {"kind": "merge_nodes", "at": 2.0, "nodes": [0, 1]},
    {"kind": "lose_node", "at": 2.4, "node": 3, "detect": 0.1},
    {"kind": "break_link", "at": 2.7, "nodes": [7, 4], "duration": 0.5},
    {"kind": "grow", "at": 2.8, "nodes": 2, "workers": 1},
    {"kind": "remove_node", "at": 3.0, "node": 5},
]


def world(faults: list[dict[str, Any]], settings: str = "topology=chain,period=0.2", **options: Any) -> World:
    strategy = strategy_class("tree").of(read_strategy(f"tree:{settings}"))
    links = Links(bandwidth=125e6, latency=1e-3)
    cluster = Cluster(WORKERS, Lognormal(0.1, 0.3), links)
    scenario = Scenario(cluster, strategy, 40, faults=read_faults(faults, WORKERS))
    return World(scenario, MadeUp(1000, Draw(1)), **options)


def run(faults: list[dict[str, Any]], settings: str = "topology=chain,period=0.2") -> Outcome:
    return world(faults, settings).run()


@pytest.mark.parametrize("consistency", ["eventual", "ssp:3", "approximate:9", "bsp"])
def test_a_run_survives_the_whole_script(consistency: str) -> None:
    outcome = run(SCRIPT, f"topology=chain,period=0.2,durable=true,consistency={consistency}")
    report = outcome.report
    assert report["lost_origins"] == []
    assert report["replica_gap_after_rest"] <= 1e-5
    assert report["updates"] >= WORKERS * 40
    assert report["hops_max"] >= 2
    assert report["staleness_curve"][-1][1] <= max(value for _, value in report["staleness_curve"])


def test_the_same_script_gives_the_same_run() -> None:
    assert run(SCRIPT).trace_sha256 == run(SCRIPT).trace_sha256


def test_only_what_nobody_has_a_copy_of_is_lost() -> None:
    lost = [{"kind": "lose_node", "at": 2.0, "node": 3}]
    assert run(lost, "durable=true").report["lost_origins"] == []
    assert run(lost, "durable=true,copies=false").report["lost_origins"] == [3]
    assert run(lost, "durable=true,copies=/shared").report["lost_origins"] == []


@pytest.mark.parametrize("consistency", ["eventual", "bsp"])
def test_checkpoints_in_a_shared_directory_replace_nodes_that_are_lost_together(consistency: str) -> None:
    lost = [{"kind": "lose_node", "at": 2.0, "node": node, "detect": 0.1} for node in (3, 2, 4)]
    report = run(lost, f"topology=chain,period=0.2,durable=true,copies=/shared,consistency={consistency}").report
    assert report["lost_origins"] == []
    assert report["replica_gap_after_rest"] <= 1e-5
    assert report["updates"] >= WORKERS * 40


def test_other_shapes_change_nothing_but_timing() -> None:
    changed = run([{"kind": "reshape", "at": 1.0, "topology": "star"}]).report
    same = run([]).report
    assert changed["updates"] == same["updates"]
    assert changed["hops_max"] == 2
    assert set(same["bytes_per_link"]) == {"0-1", "1-2", "2-3", "3-4", "4-5"}


@pytest.mark.parametrize(
    ("fault", "option", "problem"),
    [
        ({"kind": "crash_node", "node": 9, "duration": 1}, "node", "there is no node 9; the nodes are 0 to 5"),
        ({"kind": "crash_node", "node": 1, "duration": 0}, "duration", "above 0"),
        ({"kind": "crash_node", "node": 1}, "duration", "is missing"),
        ({"kind": "lose_node", "node": 6}, "node", "there is no node 6"),
        ({"kind": "remove_node", "node": 6}, "node", "there is no node 6"),
        ({"kind": "add_node", "beside": 8}, "beside", "there is no node 8"),
        ({"kind": "merge_nodes", "nodes": [0, 2]}, "nodes", "not connected"),
        ({"kind": "merge_nodes", "nodes": [1]}, "nodes", "at least two"),
        ({"kind": "merge_nodes", "nodes": "1-2"}, "nodes", "list of node numbers"),
        ({"kind": "reshape", "topology": "0-1 1-2"}, "topology", "lacks node 3"),
        ({"kind": "reshape", "topology": "0-1 1-2 2-0 2-3 3-4 4-5"}, "topology", "has a loop: 0-1-2-0"),
        ({"kind": "reshape", "topology": "ring"}, "topology", "is not a topology"),
        ({"kind": "reshape", "topology": 3}, "topology", "must be a text"),
        ({"kind": "break_link", "nodes": [0, 2], "duration": 1}, "nodes", "not neighbours"),
        ({"kind": "break_link", "nodes": [0], "duration": 1}, "nodes", "two neighbours"),
        ({"kind": "grow", "nodes": 0}, "nodes", "from 1 to"),
        ({"kind": "grow", "node": 1}, "node", "no such key"),
    ],
)
def test_senseless_scripts_are_refused(fault: dict[str, Any], option: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        world([{"at": 1.0, **fault}])
    assert caught.value.option == f"faults[0].{option}"


def test_a_node_that_has_left_is_unknown() -> None:
    gone = [{"kind": "remove_node", "at": 1.0, "node": 2}, {"kind": "crash_node", "at": 2.0, "node": 2, "duration": 1}]
    with pytest.raises(UsageError, match="there is no node 2; the nodes are 0, 1, 3, 4, 5"):
        world(gone)


def test_nodes_are_for_trees() -> None:
    scenario = Scenario(Cluster(2), faults=read_faults([{"kind": "remove_node", "at": 1.0, "node": 0}], 2))
    with pytest.raises(UsageError, match="strategy 'tree'"):
        World(scenario, MadeUp(10, Draw(1)))


def test_the_plot_shows_the_staleness_of_the_nodes(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    outcome = world([], spans=True).run()
    plot(outcome, tmp_path / "run.png")
    assert (tmp_path / "run.png").stat().st_size > 10_000
