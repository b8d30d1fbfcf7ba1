"""The tree that is wanted next, and the usual ways to change one."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from syncline.errors import UsageError
from syncline.nodes.topologies import Edge, listed, neighbours_of, ordered


@dataclass(frozen=True)
class TreePlan:
    """The tree that is wanted: its edges, its nodes, and who takes the place of nodes that leave."""

    edges: tuple[Edge, ...]
    nodes: frozenset[int]
    takers: Mapping[int, int] = field(default_factory=dict)
    shape: str = ""
    """The topology that it was made from, as text; empty: the one before goes on."""


def with_leaf(edges: Sequence[Edge], nodes: Collection[int], new: int, beside: int) -> TreePlan:
    """The tree with one more node, beside this one."""
    if beside not in nodes:
        raise UsageError("beside", f"there is no node {beside}; the nodes are {listed(nodes)}")
    return TreePlan((*edges, ordered(beside, new)), frozenset({*nodes, new}))


def without(edges: Sequence[Edge], nodes: Collection[int], node: int, taker: int | None = None) -> TreePlan:
    """The tree without this node: its neighbours are joined to one of them, which takes its place."""
    around = sorted(neighbours_of(edges).get(node, ()))
    if node not in nodes:
        raise UsageError("server", f"there is no node {node}; the nodes are {listed(nodes)}")
    if not around:
        raise UsageError("server", f"{node} is the only node left; add another one before you remove it")
    centre = taker if taker in around else around[0]
    rest = [each for each in edges if node not in each]
    joined = [ordered(centre, each) for each in around if each != centre]
    return TreePlan((*rest, *joined), frozenset(nodes) - {node}, {node: centre if taker is None else taker})


def merged(edges: Sequence[Edge], nodes: Collection[int], gone: Collection[int], new: int) -> TreePlan:
    """The tree in which node `new` takes the place of these nodes, which must be connected; it can be one of them."""
    if len(set(gone)) < 2:
        raise UsageError("nodes", f"must name at least two nodes, not {listed(gone) or 'none'}")
    unknown = set(gone) - set(nodes)
    if unknown:
        raise UsageError("nodes", f"there is no node {listed(unknown)}; the nodes are {listed(nodes)}")
    inner = [edge for edge in edges if set(gone) >= {*edge}]
    if len(inner) != len(set(gone)) - 1:
        raise UsageError("nodes", f"nodes {listed(gone)} are not connected with each other; name the ones between them")
    outer = {ordered(*(new if each in gone else each for each in edge)) for edge in edges if not set(gone) >= {*edge}}
    left = set(gone) - {new}
    return TreePlan(tuple(sorted(outer)), frozenset({*nodes, new} - left), dict.fromkeys(left, new))
