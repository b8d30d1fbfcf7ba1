"""Checks for settings of the tree strategy that cannot work. They raise `UsageError` before anything runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from syncline.codecs import Dense, every_codec
from syncline.errors import UsageError
from syncline.nodes.topologies import AUTO, MOST_NODES, edges_of
from syncline.nodes.tree.tree_terms import BSP
from syncline.spec import write
from syncline.units import MOST_SECONDS, whole

if TYPE_CHECKING:
    from syncline.strategies.tree.strategy import TreeStrategy

REFUSED: Mapping[str, str] = {
    "sync": "strategy 'tree' has no sync models; use consistency=eventual, ssp:S, approximate:S or bsp",
    "release": "strategy 'tree' answers a worker as soon as consistency allows it; leave it out",
    "gate": (
        "strategy 'tree' spreads every update, so nothing may be held back; use a longer period or a codec to send "
        "less, or strategy 'server'"
    ),
    "rule": (
        "strategy 'tree' adds up the changes that the workers' optimizers make (rule 'add'); leave it out, or use "
        "strategy 'server'"
    ),
    "placement": "strategy 'tree' has the whole model on every node; leave it out, or use strategy 'server'",
    "reply_codec": "strategy 'tree' answers its workers with plain parameters; use codec for the links between nodes",
    "backups": "strategy 'tree' has copies at a neighbour instead (copies=true); leave it out",
    "window": "strategy 'tree' has no window; leave it out",
}
"""Settings of other strategies, and why they make no sense here."""


def check(strategy: TreeStrategy, workers: int) -> None:
    """Raise `UsageError` if these settings cannot work, or not with this many workers."""
    if not 0 < strategy.period <= MOST_SECONDS:
        problem = f"must be above 0 seconds and at most {MOST_SECONDS:,.0f}, not {strategy.period:g}"
        raise UsageError("period", f"{problem}; nodes send each other changes once per period")
    whole(strategy.workers_per_node, "workers_per_node", 1, MOST_NODES)
    fitted = strategy.fitted(workers)
    whole(fitted.nodes, "servers", 1, MOST_NODES, name="the number of nodes")
    if strategy.shape != AUTO:
        edges_of(strategy.shape, fitted.nodes)
    if strategy.consistency.kind == BSP:
        _check_rounds(strategy)
    if any(getattr(each, "momentum", 0) for each in every_codec(strategy.codec)):
        problem = "corrects the momentum of gradients, but workers send changes; remove it"
        raise UsageError("codec", f"{write(strategy.codec)!r} {problem}")


def check_folder(folder: str) -> None:
    """Raise `UsageError` unless nodes can write their checkpoints to this directory."""
    probe = Path(folder) / f".syncline-{os.getpid()}"
    try:
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        problem = f"cannot write to {folder}: {error.strerror}"
        raise UsageError("copies", f"{problem}; name a directory that all hosts share and may write to") from None


def _check_rounds(strategy: TreeStrategy) -> None:
    if not strategy.durable:
        problem = "bsp needs durable=true: a node that starts again must have every push that is part of a round"
        raise UsageError("consistency", f"{problem}; add it, or use ssp:1")
    if strategy.codec != Dense():
        raise UsageError("codec", f"{write(strategy.codec)!r} does not send whole rounds, which bsp needs; use dense")
