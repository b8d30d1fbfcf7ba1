"""Scripted faults and other changes: what happens to a run, and at which virtual second."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any

from syncline.errors import UsageError
from syncline.sim.node_faults import (
    AddNode,
    BreakLink,
    CrashNode,
    LoseNode,
    MergeNodes,
    NodeFault,
    RemoveNode,
    ReshapeTree,
    read_nodes,
)
from syncline.spec import one_of, parse, part_of
from syncline.sync import Release, SyncModel
from syncline.units import MOST_SECONDS

MOST_GROWTH = 10_000


@dataclass(frozen=True)
class Crash:
    """A worker crashes; the coordinator notices `detect` seconds later."""

    at: float
    worker: int
    detect: float = 0.0


@dataclass(frozen=True)
class Restart:
    """A worker restarts as its next incarnation and joins the run; if it is still alive, it crashes first."""

    at: float
    worker: int


@dataclass(frozen=True)
class Freeze:
    """A worker freezes for `duration` seconds. The coordinator declares it dead after `detect` seconds; None: never."""

    at: float
    worker: int
    duration: float
    detect: float | None = None


@dataclass(frozen=True)
class Slow:
    """A worker's next steps take `factor` times as long, for `duration` seconds; None: until the end of the run."""

    at: float
    worker: int
    factor: float
    duration: float | None = None


@dataclass(frozen=True)
class Leave:
    """A worker finishes its step and leaves the run."""

    at: float
    worker: int


@dataclass(frozen=True)
class Join:
    """A new worker joins the run."""

    at: float
    worker: int


@dataclass(frozen=True)
class Switch:
    """A server (None: every server) changes to another sync model."""

    at: float
    sync: SyncModel
    server: int | None = None
    release: Release | None = None

    def __post_init__(self) -> None:
        """A part may be given as text; both are checked here."""
        object.__setattr__(self, "sync", part_of("sync", self.sync))
        if self.release is not None:
            object.__setattr__(self, "release", one_of(Release, self.release, "release"))


@dataclass(frozen=True)
class AddServer:
    """A server starts and takes over its share of the model. It gets the next number and the others' sync model."""

    at: float


@dataclass(frozen=True)
class RemoveServer:
    """A server hands over everything that it holds to the others."""

    at: float
    server: int


@dataclass(frozen=True)
class CrashServer:
    """A server dies with all that it holds, which is restored from the workers' copies.

    The coordinator notices `detect` seconds later, and the other servers take over; or, with `duration`, the server
    starts again after so many seconds.
    """

    at: float
    server: int
    detect: float = 0.0
    duration: float | None = None


Fault = Crash | Restart | Freeze | Slow | Leave | Join | Switch | AddServer | RemoveServer | CrashServer | NodeFault

KINDS: Mapping[str, type[Fault]] = {
    "crash": Crash,
    "restart": Restart,
    "freeze": Freeze,
    "slow": Slow,
    "leave": Leave,
    "join": Join,
    "switch": Switch,
    "add_server": AddServer,
    "remove_server": RemoveServer,
    "crash_server": CrashServer,
    "crash_node": CrashNode,
    "lose_node": LoseNode,
    "add_node": AddNode,
    "remove_node": RemoveNode,
    "merge_nodes": MergeNodes,
    "reshape": ReshapeTree,
    "break_link": BreakLink,
}

GROW = "grow"
"""A kind that stands for several others: nodes that start, each with workers that join."""


def read_faults(tables: Sequence[Mapping[str, Any]], workers: int) -> tuple[Fault, ...]:
    """Read the faults of an experiment file. A joiner without a number gets the next free one."""
    found: list[Fault] = []
    for number, table in enumerate(tables):
        option = f"faults[{number}]"
        values = dict(table)
        kind = values.pop("kind", None)
        if not isinstance(kind, str) or kind not in (*KINDS, GROW):
            fault = "is missing" if kind is None else f"{kind!r} is unknown"
            raise UsageError(f"{option}.kind", f"{fault}; choose one of: {', '.join((*KINDS, GROW))}")
        if kind == GROW:
            found += _growth(values, option, _next_worker(workers, found))
            continue
        if kind == "join" and "worker" not in values:
            values["worker"] = _next_worker(workers, found)
        found.append(_fault(kind, values, option))
    return tuple(found)


def _next_worker(workers: int, found: Sequence[Fault]) -> int:
    return max([workers, *(fault.worker + 1 for fault in found if isinstance(fault, Join))])


def _growth(values: dict[str, Any], option: str, worker: int) -> list[Fault]:
    """The nodes that start, and the workers that join; they go to the nodes with the fewest workers."""
    counts = {key: values.pop(key, 1) for key in ("nodes", "workers")}
    for key, count in counts.items():
        if type(count) is not int or not 1 <= count <= MOST_GROWTH:
            raise UsageError(f"{option}.{key}", f"must be a whole number from 1 to {MOST_GROWTH:,}, not {count!r}")
    first = _fault("add_node", values, option)
    joins = [Join(first.at, worker + each) for each in range(counts["nodes"] * counts["workers"])]
    return [*[first] * counts["nodes"], *joins]


def _fault(kind: str, values: dict[str, Any], option: str) -> Fault:
    known = {field.name: field for field in fields(KINDS[kind])}
    for key in values:
        if key not in known:
            raise UsageError(f"{option}.{key}", f"{kind!r} has no such key; its keys are: {', '.join(known)}")
    for key, field in known.items():
        if key in values:
            values[key] = _value(key, values[key], f"{option}.{key}")
        elif field.default is MISSING:
            raise UsageError(f"{option}.{key}", f"is missing; {kind!r} requires it")
    return KINDS[kind](**values)


def _value(key: str, value: Any, option: str) -> Any:
    if key == "sync":
        return parse("sync", str(value), option)
    if key == "release":
        if value not in tuple(Release):
            raise UsageError(option, f"must be one of: {', '.join(Release)}; not {value!r}")
        return Release(value)
    if key == "topology":
        if not isinstance(value, str):
            raise UsageError(option, f"must be a text such as 'star' or 'tree:3', not {value!r}")
        return value
    if key == "nodes":
        return read_nodes(value, option)
    if key in ("worker", "server", "node", "beside"):
        if type(value) is not int:
            raise UsageError(option, f"must be a whole number, not {value!r}")
        return value
    if type(value) not in (int, float) or not -MOST_SECONDS <= value <= MOST_SECONDS:
        raise UsageError(option, f"must be a finite number, at most {MOST_SECONDS:,.0f}, not {value!r}")
    return float(value)
