"""The state of a run as plain arrays and values: the tables of a numpy program, and what all checkpoints share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from syncline.engines.process import say
from syncline.engines.worker.replica import Clocks, Replica
from syncline.errors import UsageError
from syncline.layout import Values

if TYPE_CHECKING:
    from syncline.engines.worker.session import NumpySession

SCHEMA = 1


def tables_state(session: NumpySession, replica: Replica) -> dict[str, Any]:
    """Copies of the tables, the state of the servers' rule and of the codec, and what they contain."""
    rule = replica.recall()
    arrived, clocks = replica.collect()
    return {
        "schema": SCHEMA,
        "workers": session.size,
        "tables": {name: each + arrived[name] if arrived else each.copy() for name, each in replica.arrays.items()},
        "rule": rule,
        "codec": replica.residuals(),
        "iteration": replica.earlier + replica.iteration,
        "clocks": dict(clocks),
        "settings": dict(replica.settings),
    }


def check_schema(state: Mapping[str, Any]) -> None:
    if state.get("schema") != SCHEMA:
        raise UsageError("state", f"has schema {state.get('schema')!r}; this version of Syncline reads schema {SCHEMA}")


def check_tables(replica: Replica, state: Mapping[str, Any]) -> None:
    """Raise `UsageError` if these are not the tables of this model."""
    if "tables" not in state:
        raise UsageError("state", "has no tables; it was saved by a program that trains PyTorch models")
    mine = {name: each.shape for name, each in replica.arrays.items()}
    theirs = {name: each.shape for name, each in state["tables"].items()}
    for name in {**mine, **theirs}:
        if mine.get(name) != theirs.get(name):
            here, there = mine.get(name, "nothing"), theirs.get(name, "nothing")
            raise UsageError("state", f"table {name!r}: the program has {here}, the state has {there}")


def remembered(replica: Replica, saved: Mapping[str, Any], part: str) -> dict[str, Values]:
    """The saved memory of the servers' rule or of this worker's codec; empty if the setting has changed since."""
    same = saved["settings"].get(part) == replica.settings.get(part)
    return {name: _array(values) for name, values in saved[part].items()} if same else {}


def _array(values: Any) -> Values:
    return values.numpy() if hasattr(values, "numpy") else values  # type: ignore[no-any-return]


def all_clocks(session: NumpySession, replica: Replica, saved: Mapping[str, Any]) -> dict[int, Clocks]:
    """For each worker, the clocks of the state that it loads; all continue with those of the leader, and its values."""
    if not replica.strategy.free_running:
        return {}
    mine = (session.rank, saved.get("clocks", {}))
    notice = f"worker {session.rank} loads a state and waits until every worker does; call load_state_dict() on each"
    gathered = session.share("load_state_dict", msgspec.msgpack.encode(mine), notice)
    return dict(msgspec.msgpack.decode(each, type=tuple[int, dict[int, int]]) for each in gathered)


def say_if_workers_differ(session: NumpySession, state: Mapping[str, Any]) -> None:
    if state["workers"] != session.size and session.is_leader:
        say(f"syncline: {state['workers']} workers saved this state; {session.size} workers continue from it")
