"""The tree strategy: topologies, settings, what it refuses, and whole runs in the simulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Admit
from syncline.errors import UsageError
from syncline.layout import Layout
from syncline.messages import TreeMap, View
from syncline.nodes.topologies import beside_next, best_fan_out, edges_of, fan
from syncline.nodes.tree.plans import TreePlan, merged
from syncline.sim import Cluster, Links, Lognormal, MadeUp, Outcome, Scenario, World
from syncline.strategies.node_changes import NewTopology, NodesMerge
from syncline.strategies.protocol import Job
from syncline.strategies.server.strategy import ServerStrategy
from syncline.strategies.settings import settle
from syncline.strategies.table import read_strategy, strategy_class
from syncline.strategies.tree.strategy import TreeStrategy


@pytest.mark.parametrize(
    ("text", "edges"),
    [
        ("chain", ((0, 1), (1, 2), (2, 3), (3, 4))),
        ("star", ((0, 1), (0, 2), (0, 3), (0, 4))),
        ("twin", ((0, 1), (0, 2), (1, 3), (0, 4))),
        ("tree:2", ((0, 1), (0, 2), (1, 3), (1, 4))),
        ("4-0 0-1 2 - 1".replace(" - ", "-") + " 3-1", ((0, 4), (0, 1), (1, 2), (1, 3))),
        ("0 1\n1 2  # a comment\n\n2 3\n3 4\n", ((0, 1), (1, 2), (2, 3), (3, 4))),
    ],
)
def test_topologies(text: str, edges: tuple[tuple[int, int], ...]) -> None:
    assert edges_of(text, 5) == edges


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0-1 1-2 2-0 0-3", "has a loop: 0-1-2-0"),
        ("0-1 2-3", "is in 2 pieces: 0, 1; 2, 3"),
        ("0-1 1-2 2-9", "names node 9, but the nodes are 0 to 3"),
        ("ring", "is not a topology"),
        ("tree:0", "fan-out"),
        ("tree:x", "fan-out"),
        ("0-0 0-1 1-2 2-3", "has a loop: 0-0"),
    ],
)
def test_wrong_topologies_are_named(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        edges_of(text, 4)


@pytest.mark.parametrize(
    ("settings", "option", "problem"),
    [
        ("period=0", "period", "above 0"),
        ("consistency=ssp:0", "consistency", "at least 1"),
        ("consistency=approximate", "consistency", "at least 1"),
        ("consistency=soon", "consistency", "is not one of"),
        ("consistency=bsp", "consistency", "needs durable=true"),
        ("consistency=bsp,durable=true,codec=fp16", "codec", "whole rounds"),
        ("workers_per_node=0", "workers_per_node", "at least 1"),
        ("topology=0-1", "topology", "pieces"),
    ],
)
def test_wrong_settings_are_refused(settings: str, option: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        settle({"line": {"strategy": f"tree:{settings}"}}, None, 4)
    assert caught.value.option == option


@pytest.mark.parametrize("key", ["sync", "rule", "gate", "placement", "reply_codec", "release", "window"])
def test_settings_of_other_strategies_are_refused(key: str) -> None:
    with pytest.raises(UsageError, match="strategy 'tree'") as caught:
        settle({"line": {"strategy": "tree", key: "x"}}, None, 4)
    assert caught.value.option == key


def test_settings_as_text(tmp_path: Path) -> None:
    (tmp_path / "edges.txt").write_text("0 1\n0 2\n")
    words = read_strategy(
        f"tree:topology={tmp_path / 'edges.txt'},period=50ms,consistency=ssp:3,durable=true,codec=fp16"
    )
    strategy = strategy_class("tree").of(words)
    assert isinstance(strategy, TreeStrategy)
    assert strategy.shape == "0-1 0-2"
    assert strategy.period == 0.05
    assert TreeStrategy.of(strategy.words()) == strategy


def test_reshaping_names_the_live_nodes() -> None:
    strategy = TreeStrategy().with_servers(4).fitted(4)
    job = Job(Layout.of([("w", (10,))]), Draw(0))
    tree = strategy.topology(job, range(4))
    without_2 = TreeMap(tuple(each for each in tree.nodes if each.number != 2), (), tree.workers)
    view = View(1, (), without_2)
    assert strategy.reshaped("chain", view) == TreePlan(((0, 1), (1, 3)), frozenset({0, 1, 3}), shape="chain")
    found = strategy.reshaped("0-3 1-3", view)
    assert found == TreePlan(((0, 3), (1, 3)), frozenset({0, 1, 3}), shape="0-3 1-3")
    with pytest.raises(UsageError, match="is not a topology"):
        strategy.reshaped("/etc/hostname", view)


def test_real_runs_refuse_a_topology_that_needs_measurements() -> None:
    TreeStrategy(shape="tree:2").check_real()
    with pytest.raises(UsageError, match="only in the simulator") as refused:
        TreeStrategy(shape="auto").check_real()
    assert refused.value.option == "topology"


def test_copies_can_be_in_a_shared_directory(tmp_path: Path) -> None:
    strategy = strategy_class("tree").of(read_strategy(f"tree:copies={tmp_path}"))
    assert strategy.words()["copies"] == strategy.shared_folder == str(tmp_path)
    assert strategy_class("tree").of(strategy.words()) == strategy
    strategy.check_real()
    assert list(tmp_path.iterdir()) == []
    fitted = strategy.with_servers(2).fitted(2)
    assert isinstance(fitted, TreeStrategy)
    tree = fitted.topology(Job(Layout.of([("w", (10,))]), Draw(0), remote=True), range(2))
    assert not any(each.copies for each in tree.nodes)


def test_a_directory_for_copies_that_cannot_work_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="'shared' is neither true nor false, nor the absolute path") as refused:
        strategy_class("tree").of(read_strategy("tree:copies=shared"))
    assert refused.value.option == "copies"
    for folder in ("nowhere", "file"):
        with pytest.raises(UsageError, match=f"cannot write to {tmp_path / folder}: ") as refused:
            strategy_class("tree").of(read_strategy(f"tree:copies={tmp_path / folder}")).check_real()
        assert refused.value.option == "copies"


def test_a_run_without_servers_is_refused() -> None:
    with pytest.raises(UsageError, match="needs servers"):
        TreeStrategy().topology(Job(Layout.of([("w", (10,))]), Draw(0)), [])


def test_nodes_keep_copies_in_real_processes_only() -> None:
    strategy = TreeStrategy().with_servers(2).fitted(3)
    for remote in (False, True):
        job = Job(Layout.of([("w", (10,))]), Draw(0), remote=remote, workers=(0, 4, 7))
        tree = strategy.topology(job, range(2))
        assert [each.worker for each in tree.workers] == [0, 4, 7]
        assert all(bool(each.copies) is remote for each in tree.nodes)


def run(strategy: TreeStrategy, workers: int = 6, iterations: int = 10, links: Links | None = None) -> Outcome:
    return make_world(strategy, workers, iterations, links).run()


def make_world(strategy: TreeStrategy, workers: int = 6, iterations: int = 10, links: Links | None = None) -> World:
    cluster = Cluster(workers, Lognormal(0.1, 0.5), links=links)
    return World(Scenario(cluster, strategy, iterations, seed=3), MadeUp(1000, Draw(3)))


@pytest.mark.parametrize("shape", ["chain", "star", "twin", "tree:2"])
@pytest.mark.parametrize("consistency", ["eventual", "ssp:2", "approximate:4", "bsp"])
def test_simulated_runs_end_with_equal_replicas(shape: str, consistency: str) -> None:
    words = {"topology": shape, "consistency": consistency, "workers_per_node": "2", "durable": "true"}
    world = make_world(TreeStrategy.of(words), links=Links(1e6, 1e-3))
    assert world.run().updates == 60
    replicas = [server.node.params() for server in world.servers]
    assert len(replicas) == 3
    oracle = world.strategy.model([server.node for server in world.servers])
    for name, values in oracle.items():
        assert values.any()
        for replica in replicas:
            np.testing.assert_allclose(replica[name], values, rtol=0, atol=1e-5 * np.abs(values).max())


@pytest.mark.parametrize("shape", ["chain", "star", "twin", "tree:2"])
def test_bsp_is_synchronous_sgd(shape: str) -> None:
    """The same model as one server with bsp, to rounding."""
    strategy = TreeStrategy.of({"topology": shape, "consistency": "bsp", "durable": "true"})
    ours = run(strategy, 5, 12, Links(1e6, 1e-3)).pieces
    scenario = Scenario(Cluster(5, Lognormal(0.1, 0.5)), ServerStrategy("bsp", mode="changes"), 12, seed=3)
    theirs = World(scenario, MadeUp(1000, Draw(3))).run().pieces
    np.testing.assert_allclose(np.concatenate(ours), np.concatenate(theirs), rtol=0, atol=1e-5)
    assert np.abs(np.concatenate(theirs)).max() > 0.1


def test_durable_runs_come_to_the_same_model() -> None:
    models = [np.concatenate(run(TreeStrategy(durable=each)).pieces) for each in (False, True)]
    np.testing.assert_allclose(*models, rtol=0, atol=1e-5)


def test_the_delay_model_prefers_chains_for_costly_updates() -> None:
    assert best_fan_out(64, hop=1.0, update=1e-6) > best_fan_out(64, hop=1e-6, update=1.0)


def test_auto_chooses_the_fan_out_of_the_delay_model() -> None:
    strategy = TreeStrategy(shape="auto").fitted(16)
    layout = Layout.of([("t", (10,))])
    tree = strategy.topology(Job(layout, Draw(0), hop_seconds=1e-4, update_seconds=0.1), range(16))
    edges = tuple((each.one, each.other) for each in tree.links)
    assert edges == fan(16, best_fan_out(16, 1e-4, 0.1)) == fan(16, 4)
    with pytest.raises(UsageError, match="not measured"):
        strategy.topology(Job(layout, Draw(0)), range(16))


@pytest.mark.parametrize(
    ("shape", "nodes", "beside"),
    [
        ("chain", [0, 1, 2], 2),
        ("chain", [0, 3, 5], 5),
        ("star", [0, 1, 2], 0),
        ("star", [2, 4], 2),
        ("twin", [0, 1, 2], 1),
        ("twin", [0, 1, 2, 3], 0),
        ("tree:2", [0, 1, 2, 3], 1),
        ("tree:2", [5, 6, 7, 9], 6),
        ("0-1 1-2", [0, 1, 2], 2),
        ("auto", [0, 1], 1),
    ],
)
def test_a_new_node_extends_the_topology(shape: str, nodes: list[int], beside: int) -> None:
    assert beside_next(shape, nodes) == beside


def test_nodes_are_merged_into_a_new_one_or_one_of_them() -> None:
    edges, nodes = ((0, 1), (1, 2), (2, 3)), range(4)
    assert merged(edges, nodes, [1, 2], 4) == TreePlan(((0, 4), (3, 4)), frozenset({0, 3, 4}), {1: 4, 2: 4})
    assert merged(edges, nodes, [1, 2], 2) == TreePlan(((0, 2), (2, 3)), frozenset({0, 2, 3}), {1: 2})
    for gone, problem in (([0, 2], "not connected"), ([1], "at least two"), ([1, 8], "there is no node 8")):
        with pytest.raises(UsageError, match=problem):
            merged(edges, nodes, gone, gone[0])


def test_a_new_leaf_follows_the_shape_that_the_tree_has_now() -> None:
    strategy = TreeStrategy(shape="star").with_servers(3).fitted(3)
    job = Job(Layout.of([("w", (10,))]), Draw(0))
    coordinator = strategy.coordinator(job, View(0, (), strategy.topology(job, range(3))))
    coordinator.handle(Admit(3), 0.0)
    assert coordinator.edges == ((0, 1), (0, 2), (0, 3))
    coordinator.handle(strategy.reshaping(coordinator, NewTopology("chain")), 0.0)
    coordinator.handle(Admit(7), 0.0)
    assert coordinator.edges == ((0, 1), (1, 2), (2, 3), (3, 7))
    coordinator.handle(strategy.reshaping(coordinator, NodesMerge((2, 3), 2)), 0.0)
    assert coordinator.edges == ((0, 1), (1, 2), (2, 7))
    with pytest.raises(UsageError, match="number 3 was used before"):
        coordinator.handle(Admit(3), 0.0)
