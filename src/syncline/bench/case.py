"""What is measured: how many workers exchange how much, over how many servers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """A round: the update of every worker in, the new values out at every worker.

    `size` counts float32 values; each of the `servers` holds an equal range of them.
    """

    workers: int
    servers: int
    size: int


@dataclass(frozen=True)
class Row:
    """What one system took for a round: the median, in seconds; `servers` is 0 where there are none."""

    system: str
    workers: int
    servers: int
    size: int
    seconds: float
