"""The worked example of the parameter-sharing paper: x1 = 6, x2 = -3, x4 = 8; every replica ends at 11."""

from __future__ import annotations

from collections import deque
from itertools import combinations

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Effect, Received, Reshape, Save, Saved, Send, SetTimer, Timer
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.messages import COORDINATOR, Member, NodeId, Params, Push, View, server_id, worker_id
from syncline.nodes.topologies import Edge, check_tree, ordered
from syncline.nodes.tree.coordinator import TreeCoordinator, first_tree
from syncline.nodes.tree.node import TreeNode
from syncline.nodes.tree.plans import TreePlan
from syncline.nodes.tree.tree_terms import TreeSettings

ALL = Bucket(0, 1)
X = {1: 6.0, 2: -3.0, 4: 8.0}
SETTINGS = TreeSettings(None, Draw(0), divides=False)


def is_tree(edges: tuple[Edge, ...]) -> bool:
    try:
        check_tree(range(4), edges)
    except UsageError:
        return False
    return True


TREES = [each for each in combinations([(a, b) for a in range(4) for b in range(a + 1, 4)], 3) if is_tree(each)]
"""All trees of four nodes. Node p of the paper has the number p - 1 here."""


class Example:
    """Four nodes; messages arrive in the order in which they were sent."""

    def __init__(self, edges: tuple[Edge, ...]) -> None:
        view = View(0, tuple(Member(worker, 0, 0) for worker in range(4)), first_tree(edges, 4, range(4)))
        self.coordinator = TreeCoordinator(view)
        self.nodes = {number: self.started(number, view, fresh=True) for number in range(4)}
        self.events: deque[tuple[NodeId, object]] = deque()
        self.time = 0.0

    def started(self, number: int, view: View, *, fresh: bool) -> TreeNode:
        return TreeNode(number, {ALL: np.zeros(1, np.float32)}, SETTINGS, view, fresh=fresh)

    def push(self, paper: int, value: float, progress: int = 0) -> list[Effect]:
        worker = worker_id(paper - 1)
        attached = next(each for each in self.coordinator.view.topology.workers if each.worker == worker.number)  # type: ignore[union-attr]
        view = self.nodes[attached.node].terms.view
        event = Received(worker, Push(view, 0, progress, ALL, 0), np.array([value], np.float32))
        return self.perform(server_id(attached.node), self.nodes[attached.node].handle(event, self.time))

    def perform(self, me: NodeId, effects: list[Effect]) -> list[Effect]:
        for effect in effects:
            match effect:
                case Send(to, message, payload):
                    self.events.append((to, Received(me, message, None if payload is None else payload.copy())))
                case SetTimer(key):
                    self.events.append((me, Timer(key)))
                case Save(bucket, serial):
                    self.events.append((me, Saved(bucket, serial)))
        return effects

    def step(self) -> None:
        self.time += 1.0
        to, event = self.events.popleft()
        if to == COORDINATOR:
            self.perform(to, self.coordinator.handle(event, self.time))  # type: ignore[arg-type]
        elif to.role == "server" and to.number in self.nodes:
            self.perform(to, self.nodes[to.number].handle(event, self.time))  # type: ignore[arg-type]

    def rest(self) -> None:
        while self.events:
            self.step()

    def replicas(self) -> dict[int, float]:
        return {number: float(node.params()[ALL][0]) for number, node in self.nodes.items()}

    def merge(self) -> None:
        """Merge nodes 1 and 4 of the paper into a node 5."""
        self.nodes[4] = self.started(4, self.coordinator.view, fresh=False)
        self.coordinator.ready(4)
        gone = {0, 3}
        edges = {ordered(*(4 if each in gone else each for each in edge)) for edge in self.coordinator.edges}
        plan = TreePlan(tuple(sorted(edges - {(4, 4)})), frozenset({1, 2, 4}), {0: 4, 3: 4})
        self.perform(COORDINATOR, self.coordinator.handle(Reshape(plan), self.time))


def begun(edges: tuple[Edge, ...]) -> Example:
    example = Example(edges)
    for paper, value in X.items():
        example.push(paper, value)
    return example


@pytest.mark.parametrize("edges", TREES)
def test_every_replica_ends_at_11(edges: tuple[Edge, ...]) -> None:
    example = begun(edges)
    example.rest()
    assert example.replicas() == dict.fromkeys(range(4), 11.0)


def answered(effects: list[Effect], paper: int) -> bool:
    return any(isinstance(each, Send) and each.to == worker_id(paper - 1) for each in effects)


@pytest.mark.parametrize("edges", [each for each in TREES if (0, 3) in each])
@pytest.mark.parametrize("moment", range(0, 24, 3))
def test_nodes_1_and_4_become_node_5_in_mid_flight(edges: tuple[Edge, ...], moment: int) -> None:
    example = begun(edges)
    for _ in range(moment):
        if example.events:
            example.step()
    example.merge()
    for progress in range(1, 16):
        for paper in (2, 3):  # outside of the region nobody pauses: every push is answered at once
            effects = example.push(paper, 0.0, progress)
            params = [each for each in effects if isinstance(each, Send) and isinstance(each.message, Params)]
            assert answered(params, paper)  # type: ignore[arg-type]
        for _ in range(8):
            if example.events:
                example.step()
    example.rest()
    assert {example.replicas()[number] for number in (1, 2, 4)} == {11.0}
    held = example.nodes[4].buckets[ALL].held.by_origin
    assert sum(float(each.values[0]) for each in held.values()) == 14.0
    assert not example.coordinator.moving
