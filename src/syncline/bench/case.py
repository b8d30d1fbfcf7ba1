"""What is measured: the number of workers, servers and values, and the resulting time."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Case:
    """In a round every worker sends its update and receives the new values.

    `size` is the number of float32 values; each of the `servers` holds an equal range of them.
    """

    workers: int
    servers: int
    size: int
    mode: str = "gradients"
    """`gradients`: the new values are the mean of the updates. `changes`: the servers add that mean to parameters."""


@dataclass(frozen=True)
class Row:
    """The median time of a round of one system, in seconds; `servers` is 0 for a system without servers."""

    system: str
    workers: int
    servers: int
    size: int
    seconds: float
    mode: str = "gradients"
