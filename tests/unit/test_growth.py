"""Staged growth: what `--grow` says, and when its stages are due."""

from __future__ import annotations

import pytest

from syncline.engines.launch.growth import Growth, GrowthStage, read_growth
from syncline.engines.launch.plan import Plan, checked
from syncline.errors import UsageError


def test_stages_are_read_in_order_of_time() -> None:
    found = read_growth(["at=40s,workers=2", "at=500ms", "at=20,nodes=2,workers=3"])
    assert found == (GrowthStage(0.5), GrowthStage(20.0, 2, 3), GrowthStage(40.0, None, 2))
    assert [str(each) for each in found] == ["at=0.5s,workers=1", "at=20s,nodes=2,workers=3", "at=40s,workers=2"]
    assert read_growth(map(str, found)) == found  # type: ignore[arg-type]


def test_a_stage_has_its_workers_for_each_node() -> None:
    assert (GrowthStage(1.0, 2, 3).servers, GrowthStage(1.0, 2, 3).workers) == (2, 6)
    assert (GrowthStage(1.0, None, 3).servers, GrowthStage(1.0, None, 3).workers) == (0, 3)
    assert GrowthStage(1.0).fitted(True) == GrowthStage(1.0, 1, 1)
    assert GrowthStage(1.0).fitted(False) == GrowthStage(1.0)
    assert GrowthStage(1.0, 2).fitted(True) == GrowthStage(1.0, 2)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("20s:2", "'20s:2' is not one of at, nodes, workers; write it as at=20s,workers=2"),
        ("", "'' is not one of at, nodes, workers"),
        ("workers=2", "lacks the time"),
        ("at=soon", "'soon' is not a time"),
        ("at=-1", "'-1' is not a time"),
        ("at=1,at=2", "names a key twice"),
        ("at=1,beside=0", "'beside' is not one of"),
        ("at=1,workers=0", "workers must be a whole number from 1 to 1,024"),
        ("at=1,nodes=1.5", "nodes must be a whole number from 1 to 1,024"),
        ("at=1,workers=10000000000", "workers must be a whole number from 1 to 1,024"),
    ],
)
def test_nonsense_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        read_growth([text])
    assert refused.value.option == "--grow"
    assert problem in refused.value.problem


def test_stages_are_due_after_training_has_begun() -> None:
    growth = Growth(read_growth(["at=2", "at=1", "at=5"]))
    assert growth.due(100.0) == []
    growth.begin(10.0)
    growth.begin(50.0)  # of another model
    assert growth.due(10.9) == []
    assert growth.due(12.0) == [GrowthStage(1.0), GrowthStage(2.0)]
    assert growth.left == [GrowthStage(5.0)]
    assert growth.due(12.0) == []


def plan(strategy: str, grow: str, **more: str) -> Plan:
    return checked(Plan(("program",), 2, None, {"strategy": strategy, **more}, growth=read_growth([grow])))


def test_a_tree_gets_a_node_with_its_workers() -> None:
    found = plan("tree", "at=1,workers=2")
    assert (found.later_workers, found.later_servers, found.server_count) == (2, 1, 2)
    found = plan("exchange", "at=1,workers=2")
    assert (found.later_workers, found.later_servers) == (2, 0)


@pytest.mark.parametrize(
    ("strategy", "more", "grow", "problem"),
    [
        ("server", {}, "at=1", "in mode 'gradients' a worker that joins would need"),
        ("server", {"sync": "ssp:3"}, "at=1,nodes=1", "nodes are a part of strategy 'tree', not of 'server'"),
        ("exchange", {}, "at=1,nodes=2", "nodes are a part of strategy 'tree', not of 'exchange'"),
        ("own_strategy.Ring", {}, "at=1", "does not let workers join a run that is already training"),
        ("tree", {}, "at=1,nodes=2,workers=1000", "the number of workers must be"),
    ],
)
def test_growth_that_cannot_work_is_refused(strategy: str, more: dict[str, str], grow: str, problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        plan(strategy, grow, **more)
    assert refused.value.option == "--grow"
    assert problem in refused.value.problem


def test_a_launcher_that_joins_has_no_stages() -> None:
    with pytest.raises(UsageError, match="leave it out with --join"):
        checked(Plan(("program",), growth=read_growth(["at=1"])), join="127.0.0.1:1")
