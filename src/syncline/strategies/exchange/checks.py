"""Checks for settings of the exchange strategy that cannot work. They raise `UsageError` before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from syncline.codecs import Dense, every_codec
from syncline.errors import UsageError
from syncline.nodes.exchange.partitioning import MOST_PARTS
from syncline.spec import write
from syncline.units import whole

if TYPE_CHECKING:
    from syncline.strategies.exchange.strategy import ExchangeStrategy

MOST_TAU = 1_000_000

_CLOCKS = "strategy 'exchange' has its own bound: a worker is at most p + tau updates ahead of the slowest"

REFUSED: Mapping[str, str] = {
    "servers": "strategy 'exchange' has no servers, since every worker holds the model; leave it out",
    "sync": f"{_CLOCKS}; use tau=T instead",
    "release": f"{_CLOCKS}; leave it out",
    "gate": (
        "strategy 'exchange' sends every value of every update exactly once, so nothing may be held back; use "
        "partitions=P or a codec to send less, or strategy 'server'"
    ),
    "rule": (
        "strategy 'exchange' adds up the changes that the workers' optimizers make (rule 'add'); leave it out, or use "
        "strategy 'server'"
    ),
    "placement": "strategy 'exchange' has no servers to place tables on; leave it out, or use strategy 'server'",
    "reply_codec": "strategy 'exchange' has no replies; use codec instead",
    "mode": "strategy 'exchange' has one mode, 'changes'; leave it out",
    "window": "strategy 'exchange' has no servers that answer; leave it out",
    "bucket": "strategy 'exchange' sends ranges, not buckets; use partitions=P instead",
    "backups": "strategy 'exchange' has no servers that could have backups; leave it out",
    "patience": "strategy 'exchange' does not send again: its links lose nothing; leave it out",
}
"""Settings of other strategies, and why they make no sense here."""


def check(strategy: ExchangeStrategy, workers: int) -> None:
    """Raise `UsageError` if these settings cannot work, or not with this many workers."""
    _check_types(strategy)
    if isinstance(strategy.partitions, int):
        whole(strategy.partitions, "partitions", 1, MOST_PARTS)
    whole(strategy.tau, "tau", 0, MOST_TAU)
    if workers < strategy.least_workers:
        raise UsageError(
            "workers",
            "strategy 'exchange' needs at least 2 workers, which exchange their updates; start more workers "
            "(with syncline run, others can also join later: --listen)",
        )
    if not strategy.accumulate and strategy.codec != Dense():
        raise UsageError(
            "codec",
            f"{write(strategy.codec)!r} keeps what it does not send, but accumulate=false discards it; use codec=dense "
            "or accumulate=true",
        )
    if any(getattr(each, "momentum", 0) for each in every_codec(strategy.codec)):
        raise UsageError(
            "codec",
            f"{write(strategy.codec)!r} corrects the momentum of gradients, but workers send changes; remove it",
        )


def _check_types(strategy: ExchangeStrategy) -> None:
    """Refuse values that only a program can give; text is checked when it is read."""
    if type(strategy.partitions) is not int and strategy.partitions != "auto":
        raise UsageError("partitions", f"must be a whole number or 'auto', not {strategy.partitions!r}")
    if type(strategy.tau) is not int:
        raise UsageError("tau", f"must be a whole number, not {strategy.tau!r}")
    for key in ("accumulate", "remeasure"):
        value = getattr(strategy, key)
        if type(value) is not bool:
            raise UsageError(key, f"must be True or False, not {value!r}")
