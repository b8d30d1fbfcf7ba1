"""The shapes of a tree of nodes, and the checks that a graph has no loop and is in one piece."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from math import log

from syncline.errors import UsageError
from syncline.units import whole

Edge = tuple[int, int]
"""Two nodes that talk to each other; the lower number first."""

MOST_NODES = 10_000
OPTION = "topology"
AUTO = "auto"
"""The topology that the delay model chooses."""

_PAIR = re.compile(r"\s*([0-9]{1,5})\s*(?:-|\s)\s*([0-9]{1,5})\s*")


def chain(nodes: int) -> tuple[Edge, ...]:
    return tuple((node, node + 1) for node in range(nodes - 1))


def star(nodes: int) -> tuple[Edge, ...]:
    return tuple((0, node) for node in range(1, nodes))


def twin(nodes: int) -> tuple[Edge, ...]:
    """Two joined masters that share the rest."""
    return tuple((0, 1) if node == 1 else (node % 2, node) for node in range(1, nodes))


def fan(nodes: int, degree: int) -> tuple[Edge, ...]:
    """Node 0 is the root; every node has up to `degree` children."""
    return tuple(((node - 1) // degree, node) for node in range(1, nodes))


SHAPES: Mapping[str, Callable[[int], tuple[Edge, ...]]] = {"chain": chain, "star": star, "twin": twin}


def edges_of(text: str, nodes: int) -> tuple[Edge, ...]:
    """The edges of a topology for nodes 0 to nodes - 1. `UsageError` if it is not a tree of all of them.

    `text`: chain, star, twin, tree:D, or a list of edges ("0-1 1-2").
    """
    name = text.strip()
    if name in SHAPES:
        return SHAPES[name](nodes)
    if name.startswith("tree:"):
        degree = name.removeprefix("tree:")
        if not degree.isdecimal():
            raise UsageError(OPTION, f"{name!r}: the fan-out must be a whole number, e.g. tree:2")
        return fan(nodes, whole(int(degree), OPTION, 1, MOST_NODES, f"{name!r}: the fan-out"))
    found = read_edges(name)
    check_tree(range(nodes), found)
    return found


def beside_next(text: str, nodes: Collection[int]) -> int:
    """The node beside which this topology has its next node; with a list of edges, the one with the highest number.

    The nodes count in the order of their numbers. So a topology that has been extended in this way keeps its shape.
    """
    order = sorted(nodes)
    if text in SHAPES or text.startswith("tree:"):
        return order[min(edges_of(text, len(order) + 1)[-1])]
    return order[-1]


def read_edges(text: str) -> tuple[Edge, ...]:
    """The edges in a text: one per line, or separated by spaces as 0-1. # begins a comment."""
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    words = [word for line in lines for word in (line.split() if "-" in line else [line]) if word]
    found = []
    for word in words:
        pair = _PAIR.fullmatch(word)
        if pair is None:
            known = ", ".join((*SHAPES, "tree:D", AUTO))
            raise UsageError(OPTION, f"{word!r} is not a topology; use {known}, a list of edges (0-1 1-2), or a file")
        found.append(ordered(int(pair[1]), int(pair[2])))
    return tuple(found)


def ordered(one: int, other: int) -> Edge:
    return (one, other) if one <= other else (other, one)


def check_tree(nodes: Collection[int], edges: Iterable[Edge]) -> None:
    """Raise `UsageError` if an edge names an unknown node, or the graph has a loop or several pieces."""
    known, joined = set(nodes), list[Edge]()
    piece = {node: {node} for node in nodes}
    for one, other in edges:
        for node in (one, other):
            if node not in known:
                there = listed(known)
                raise UsageError(OPTION, f"edge {one}-{other} names node {node}, but the nodes are {there}")
        if piece[one] is piece[other]:
            loop = "-".join(map(str, [*path(joined, one, other), one]))
            raise UsageError(OPTION, f"has a loop: {loop}; remove one of its edges")
        joined.append((one, other))
        merged = piece[one] | piece[other]
        for node in merged:
            piece[node] = merged
    pieces = sorted({tuple(sorted(each)) for each in piece.values()})
    if len(pieces) > 1:
        shown = "; ".join(listed(each) for each in pieces[:4]) + ("; ..." if len(pieces) > 4 else "")
        raise UsageError(OPTION, f"is in {len(pieces)} pieces: {shown}; add edges between them")


def path(edges: Iterable[Edge], start: int, stop: int) -> list[int]:
    """The nodes on the way between two nodes of a tree, both included."""
    around = neighbours_of(edges)
    ways = {start: [start]}
    todo = [start]
    while todo:
        node = todo.pop()
        for each in around.get(node, ()):
            if each not in ways:
                ways[each] = [*ways[node], each]
                todo.append(each)
    return ways[stop]


def neighbours_of(edges: Iterable[Edge]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = {}
    for one, other in edges:
        found.setdefault(one, []).append(other)
        found.setdefault(other, []).append(one)
    return found


def side(edges: Iterable[Edge], edge: Edge) -> frozenset[int]:
    """The nodes on the first node's side of an edge."""
    around = neighbours_of(each for each in edges if each != edge)
    found, todo = {edge[0]}, [edge[0]]
    while todo:
        for each in around.get(todo.pop(), ()):
            if each not in found:
                found.add(each)
                todo.append(each)
    return frozenset(found)


def listed(nodes: Iterable[int]) -> str:
    numbers = sorted(nodes)
    if len(numbers) > 2 and numbers == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))


def best_fan_out(nodes: int, hop: float, update: float) -> int:
    """The fan-out with the least delay by the paper's model: 2 t log_d N + C d (2 log_d N - 1), for d from 2 to N - 1.

    `hop`: the delay of one message between neighbours; `update`: what one neighbour's update costs a node; in seconds.
    """
    if nodes < 4:
        return max(1, nodes - 1)
    return min(range(2, nodes), key=lambda degree: fan_out_delay(nodes, degree, hop, update))


def fan_out_delay(nodes: int, degree: int, hop: float, update: float) -> float:
    """The seconds that an update needs at most to reach all nodes, by the paper's model."""
    depth = max(1.0, log(nodes) / log(degree))
    return 2 * hop * depth + update * degree * (2 * depth - 1)
