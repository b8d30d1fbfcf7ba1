"""Faults of the nodes of a tree, and planned changes of the tree, in simulated runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from syncline.effects import Restarted, ServerLost
from syncline.errors import UsageError
from syncline.messages import Topology, TreeMap, View
from syncline.nodes.protocol import ViewMaker
from syncline.nodes.topologies import Edge, listed, ordered
from syncline.strategies.node_changes import NewNode, NewTopology, NodeChange, NodeLeaves, NodesMerge
from syncline.strategies.protocol import Job
from syncline.units import MOST_SECONDS

if TYPE_CHECKING:
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
    """A node starts, beside another one (None: where the topology has its next one). It gets the next number."""

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


def check_node_faults(scenario: Scenario, job: Job, topology: Topology) -> None:
    """Before the run, refuse a script that cannot be carried out: try it on a coordinator without nodes."""
    in_time = sorted(enumerate(scenario.faults), key=lambda each: each[1].at)
    script = [(f"faults[{number}]", fault) for number, fault in in_time if isinstance(fault, NODE_FAULTS)]
    if not script:
        return
    if not isinstance(topology, TreeMap):
        raise UsageError(script[0][0], f"nodes are a part of strategy 'tree', not of {scenario.strategy.name()!r}")
    coordinator = scenario.strategy.coordinator(job, View(0, (), topology))
    for option, fault in script:
        try:
            _check(fault)
            _check_named(coordinator, fault)
            change = _change_of(fault)
            if isinstance(fault, LoseNode):
                coordinator.handle(ServerLost(fault.node), fault.at)
            elif change is not None:
                coordinator.handle(scenario.strategy.reshaping(coordinator, change), fault.at)
        except UsageError as error:
            key = {"server": "node"}.get(error.option, error.option)
            raise UsageError(f"{option}.{key}", error.problem) from None


def _check(fault: NodeFault) -> None:
    for key in ("duration", "detect"):
        value = getattr(fault, key, None)
        if value is not None and not (0 < value <= MOST_SECONDS or (key == "detect" and value == 0)):
            raise UsageError(key, f"must be above 0 seconds and at most {MOST_SECONDS:,.0f}, not {value:g}")
    if isinstance(fault, BreakLink) and len(set(fault.nodes)) != 2:
        raise UsageError("nodes", f"must name the two neighbours, not {list(fault.nodes)}")


def _check_named(coordinator: ViewMaker, fault: NodeFault) -> None:
    nodes = coordinator.servers
    if isinstance(fault, CrashNode | LoseNode) and fault.node not in nodes:
        raise UsageError("node", f"there is no node {fault.node}; the nodes are {listed(nodes)}")
    if isinstance(fault, LoseNode) and len(nodes) == 1:
        raise UsageError("node", f"{fault.node} is the only node left; add another one before you lose it")
    if isinstance(fault, BreakLink):
        pair, edges = ordered(*fault.nodes), _edges(coordinator)
        if pair not in edges:
            links = ", ".join(f"{one}-{other}" for one, other in edges)
            raise UsageError("nodes", f"{pair[0]} and {pair[1]} are not neighbours; the links are {links}")


def _edges(coordinator: ViewMaker) -> list[Edge]:
    tree = coordinator.view.topology
    assert isinstance(tree, TreeMap), "a script of nodes needs a tree"
    return sorted(ordered(each.one, each.other) for each in tree.links)


def _change_of(fault: NodeFault) -> NodeChange | None:
    """The planned change that this fault asks for; None: it is not planned."""
    match fault:
        case AddNode(beside=beside):
            return NewNode(beside)
        case RemoveNode(node=node):
            return NodeLeaves(node)
        case MergeNodes(nodes=nodes):
            return NodesMerge(nodes)
        case ReshapeTree(topology=topology):
            return NewTopology(topology)
    return None


class NodeScript:
    """Applies the faults of nodes to the processes of a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.broken: dict[frozenset[int], float] = {}
        """Until when two neighbours cannot reach each other."""

    def apply(self, fault: NodeFault) -> None:
        world = self._world
        coordinator, now = world.view_maker, world.agenda.now
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
                change = _change_of(fault)
                assert change is not None, "all other faults are above"
                reshape = world.strategy.reshaping(coordinator, change)
                for number in sorted(reshape.plan.nodes - coordinator.servers):
                    world.start_server(number, 0)
                world.to_coordinator(None, reshape)

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
