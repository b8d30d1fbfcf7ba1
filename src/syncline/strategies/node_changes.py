"""Planned changes of which servers take part and which of them talk to each other, for strategies that allow them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NewNode:
    """Another server takes part, beside this one; None: where the topology has its next one."""

    beside: int | None = None


@dataclass(frozen=True)
class NodeLeaves:
    """A server leaves; another one takes over what it holds."""

    node: int


@dataclass(frozen=True)
class NodesMerge:
    """A server takes the place of these, which are connected with each other: one of them, or (None) a new one."""

    nodes: tuple[int, ...]
    into: int | None = None


@dataclass(frozen=True)
class NewTopology:
    """All servers stay, and talk to each other in another way."""

    topology: str


NodeChange = NewNode | NodeLeaves | NodesMerge | NewTopology
