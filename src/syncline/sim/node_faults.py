"""Faults of the nodes of a tree, and planned changes of the tree, in simulated runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.effects import Reshape, Restarted, ServerLost
from syncline.errors import UsageError
from syncline.messages import Topology, TreeMap, View
from syncline.nodes.tree.coordinator import TreeCoordinator
from syncline.nodes.tree.plans import merged, with_leaf
from syncline.nodes.tree.shapes import listed, ordered
from syncline.units import MOST_SECONDS

if TYPE_CHECKING:
    from syncline.sim.faults import Fault
    from syncline.sim.scenario import Scenario
    from syncline.sim.world import World


@dataclass(frozen=True)
class CrashNode:
    """A node crashes, and starts again from its checkpoint after `duration` seconds."""

    at: float
    node: int
    duration: float


@dataclass(frozen=True)
class LoseNode:
    """A node is lost for good, with its disk; the coordinator notices `detect` seconds later."""

    at: float
    node: int
    detect: float = 0.0


@dataclass(frozen=True)
class AddNode:
    """A node starts, beside another one (None: the one with the highest number). It gets the next number."""

    at: float
    beside: int | None = None


@dataclass(frozen=True)
class RemoveNode:
    """A node leaves as planned: a neighbour takes over its updates and its workers."""

    at: float
    node: int


@dataclass(frozen=True)
class MergeNodes:
    """A new node takes the place of these connected nodes. It gets the next number."""

    at: float
    nodes: tuple[int, ...]


@dataclass(frozen=True)
class ReshapeTree:
    """All nodes stay, and the tree gets another topology."""

    at: float
    topology: str


@dataclass(frozen=True)
class BreakLink:
    """Two neighbours cannot reach each other for `duration` seconds; their messages arrive later."""

    at: float
    nodes: tuple[int, ...]
    duration: float


NodeFault = CrashNode | LoseNode | AddNode | RemoveNode | MergeNodes | ReshapeTree | BreakLink
NODE_FAULTS = (CrashNode, LoseNode, AddNode, RemoveNode, MergeNodes, ReshapeTree, BreakLink)


def check_node_faults(scenario: Scenario, topology: Topology) -> None:
    """Before the run, refuse a script that cannot be carried out: try it on a coordinator without nodes."""
    in_time = sorted(enumerate(scenario.faults), key=lambda each: each[1].at)
    script = [(f"faults[{number}]", fault) for number, fault in in_time if isinstance(fault, NODE_FAULTS)]
    if not script:
        return
    if not isinstance(topology, TreeMap):
        raise UsageError(script[0][0], f"nodes are a part of strategy 'tree', not of {scenario.strategy.name()!r}")
    coordinator = TreeCoordinator(View(0, (), topology))
    for option, fault in script:
        try:
            _check(fault)
            event = change_of(scenario.strategy, coordinator, fault)
            if isinstance(fault, LoseNode):
                coordinator.handle(ServerLost(fault.node), fault.at)
            elif event is not None:
                coordinator.handle(event, fault.at)
            _check_named(coordinator, fault)
        except UsageError as error:
            key = {"server": "node"}.get(error.option, error.option)
            raise UsageError(f"{option}.{key}", error.problem) from None


def _check(fault: NodeFault) -> None:
    for key in ("duration", "detect"):
        value = getattr(fault, key, None)
        if value is not None and not (0 < value <= MOST_SECONDS or (key == "detect" and value == 0)):
            raise UsageError(key, f"must be above 0 seconds and at most {MOST_SECONDS:,.0f}, not {value:g}")
    if isinstance(fault, MergeNodes) and len(set(fault.nodes)) < 2:
        raise UsageError("nodes", f"must name at least two nodes, not {list(fault.nodes)}")
    if isinstance(fault, BreakLink) and len(set(fault.nodes)) != 2:
        raise UsageError("nodes", f"must name the two neighbours, not {list(fault.nodes)}")


def _check_named(coordinator: TreeCoordinator, fault: NodeFault) -> None:
    if isinstance(fault, CrashNode) and fault.node not in coordinator.servers:
        raise UsageError("node", f"there is no node {fault.node}; the nodes are {listed(coordinator.servers)}")
    if isinstance(fault, BreakLink):
        pair = ordered(*fault.nodes)
        if pair not in coordinator.edges:
            links = ", ".join(f"{one}-{other}" for one, other in coordinator.edges)
            raise UsageError("nodes", f"{pair[0]} and {pair[1]} are not neighbours; the links are {links}")


def change_of(strategy: Any, coordinator: TreeCoordinator, fault: NodeFault) -> Reshape | None:
    """What the coordinator is asked to do; None: nothing at this moment."""
    edges, nodes = coordinator.edges, coordinator.servers
    match fault:
        case AddNode(beside=beside):
            new = coordinator.next_number
            plan = with_leaf(edges, nodes, new, beside)
            coordinator.ready(new)
            return Reshape(plan)
        case MergeNodes(nodes=gone):
            new = coordinator.next_number
            plan = merged(edges, nodes, gone, new)
            coordinator.ready(new)
            return Reshape(plan)
        case RemoveNode(node=node):
            return Reshape(coordinator.without(node))
        case ReshapeTree(topology=topology):
            plan = strategy.reshaped(topology, coordinator.view)
            coordinator.check(plan)
            return Reshape(plan)
        case LoseNode(node=node):
            coordinator.without(node)  # refuses an unknown node, and the last one
    return None


class NodeScript:
    """Applies the faults of nodes to the processes of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.broken: dict[frozenset[int], float] = {}
        """Until when two neighbours cannot reach each other."""

    def apply(self, fault: NodeFault) -> None:
        world = self._world
        coordinator = world.view_maker
        assert isinstance(coordinator, TreeCoordinator)
        now = world.agenda.now
        match fault:
            case CrashNode(node=node, duration=duration):
                if node in coordinator.servers and world.servers[node].alive:
                    world.end_server(node)
                    world.agenda.at(now + duration, -1, self._restart, node, None)
            case LoseNode(node=node, detect=detect):
                if node in coordinator.servers and len(coordinator.servers) > 1:
                    world.end_server(node)
                    world.agenda.at(now + detect, -1, world.to_coordinator, None, ServerLost(node))
            case BreakLink(nodes=(one, other), duration=duration):
                self.broken[frozenset((one, other))] = now + duration
            case _:
                change = change_of(world.strategy, coordinator, fault)
                assert change is not None
                for number in sorted(change.plan.nodes - coordinator.servers):
                    world.start_server(number, 0)
                world.to_coordinator(None, change)

    def _restart(self, node: int, _: None) -> None:
        world = self._world
        if node in world.view_maker.servers | world.view_maker.movers:
            incarnation = world.servers[node].incarnation + 1
            world.start_server(node, incarnation)
            world.to_coordinator(None, Restarted(node, incarnation))


def read_nodes(value: Any, option: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(each) is int for each in value):
        raise UsageError(option, f"must be a list of node numbers, e.g. [1, 4], not {value!r}")
    return tuple(value)


def is_about_nodes(fault: Fault) -> bool:
    return isinstance(fault, NODE_FAULTS)
