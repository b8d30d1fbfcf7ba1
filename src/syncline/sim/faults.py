"""What may happen to a run, and when: a script of faults and other changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from math import isfinite
from typing import Any

from syncline.errors import UsageError
from syncline.spec import parse
from syncline.sync import Release, SyncModel


@dataclass(frozen=True)
class Crash:
    """A worker dies in the middle of whatever it does; the coordinator learns of it `detect` seconds later."""

    at: float
    worker: int
    detect: float = 0.0


@dataclass(frozen=True)
class Restart:
    """A worker starts anew as its next incarnation, and joins (if it still lives, it dies first)."""

    at: float
    worker: int


@dataclass(frozen=True)
class Freeze:
    """A worker stands still for `duration` seconds; declared dead after `detect` of them, unless that is None."""

    at: float
    worker: int
    duration: float
    detect: float | None = None


@dataclass(frozen=True)
class Slow:
    """A worker's steps that begin from now on take `factor` times as long, for `duration` seconds or for good."""

    at: float
    worker: int
    factor: float
    duration: float | None = None


@dataclass(frozen=True)
class Leave:
    """A worker finishes its step and leaves."""

    at: float
    worker: int


@dataclass(frozen=True)
class Join:
    """A new worker joins."""

    at: float
    worker: int


@dataclass(frozen=True)
class Switch:
    """A server (None: all of them) goes on under another sync model."""

    at: float
    sync: SyncModel
    server: int | None = None
    release: Release | None = None


@dataclass(frozen=True)
class AddServer:
    """A server starts and takes its share of the model over; it gets the next number and the others' sync model."""

    at: float


@dataclass(frozen=True)
class RemoveServer:
    """A server hands over all that it holds."""

    at: float
    server: int


Fault = Crash | Restart | Freeze | Slow | Leave | Join | Switch | AddServer | RemoveServer

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
}


def read_faults(tables: Sequence[Mapping[str, Any]], workers: int) -> tuple[Fault, ...]:
    """The faults of an experiment file; a joiner without a number gets the next one."""
    found: list[Fault] = []
    for number, table in enumerate(tables):
        option = f"faults[{number}]"
        values = dict(table)
        kind = values.pop("kind", None)
        if not isinstance(kind, str) or kind not in KINDS:
            fault = "is missing" if kind is None else f"there is no {kind!r}"
            raise UsageError(f"{option}.kind", f"{fault}; one of: {', '.join(KINDS)}")
        if kind == "join" and "worker" not in values:
            values["worker"] = max([workers, *(fault.worker + 1 for fault in found if isinstance(fault, Join))])
        found.append(_fault(kind, values, option))
    return tuple(found)


def _fault(kind: str, values: dict[str, Any], option: str) -> Fault:
    known = {field.name: field for field in fields(KINDS[kind])}
    for key in values:
        if key not in known:
            raise UsageError(f"{option}.{key}", f"{kind!r} has no such key; it has: {', '.join(known)}")
    for key, field in known.items():
        if key in values:
            values[key] = _value(key, values[key], f"{option}.{key}")
        elif field.default is MISSING:
            raise UsageError(f"{option}.{key}", f"is missing; {kind!r} needs it")
    return KINDS[kind](**values)


def _value(key: str, value: Any, option: str) -> Any:
    if key == "sync":
        return parse("sync", str(value), option)
    if key == "release":
        if value not in tuple(Release):
            raise UsageError(option, f"must be one of: {', '.join(Release)}; not {value!r}")
        return Release(value)
    if key in ("worker", "server"):
        if type(value) is not int:
            raise UsageError(option, f"must be a whole number, not {value!r}")
        return value
    if type(value) not in (int, float) or not isfinite(value):
        raise UsageError(option, f"must be a finite number, not {value!r}")
    return float(value)
