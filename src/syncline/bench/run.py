"""All systems measured in one run: short bursts in turn, so that what disturbs the machine disturbs all alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from statistics import median

from syncline.bench.case import Case, Row
from syncline.bench.floor import Floor
from syncline.bench.gloo import Gloo, installed
from syncline.bench.own import Syncline
from syncline.bench.sockets import Sockets
from syncline.bench.systems import System

SERVERLESS = frozenset({"floor", "gloo"})
"""The systems without servers."""

_WARM_UP = 3
_BURST = (3, 200)
_BURST_SECONDS = 0.3
_PASSES = (2, 20)
_CASE_SECONDS = 14.0
"""What all bursts of a case together may take; starting the processes and checking the sums come on top."""
_UNTIMED = 2
"""Rounds of a burst that are not counted: one lines the workers up, one may be the check."""


def systems(case: Case) -> list[System]:  # noqa: ARG001  a system may not fit every case
    """Everything that can be measured here."""
    found: list[System] = [Syncline("shm"), Floor(), Syncline("tcp"), Sockets()]
    if installed():
        found.append(Gloo())
    return found


def measure(
    case: Case,
    candidates: Sequence[System],
    rounds: int | None = None,
    tell: Callable[[float], None] | None = None,
) -> list[Row]:
    """The median time of a round, for each system; `rounds` of each, or as many as fit in about 20 seconds.

    `tell` is told what part of the case is done, from 0 to 1.
    """
    tell = tell or (lambda _: None)
    tell(0.0)
    with ExitStack() as running:
        for system in candidates:
            running.callback(system.stop)
            system.start(case)
        seconds = _in_turn(candidates, rounds, tell)
    return [_row(case, system.name, times) for system, times in zip(candidates, seconds, strict=True)]


def _in_turn(candidates: Sequence[System], rounds: int | None, tell: Callable[[float], None]) -> list[list[float]]:
    """The seconds of every round, for each system."""
    burst, total = plan([median(system.burst(_WARM_UP)) for system in candidates])
    total = rounds or total
    seconds: list[list[float]] = [[] for _ in candidates]
    for done in range(0, total, burst):
        for system, times in zip(candidates, seconds, strict=True):
            times += system.burst(min(burst, total - done))
        tell(min(done + burst, total) / total)
    return seconds


def plan(seconds: Sequence[float]) -> tuple[int, int]:
    """How many rounds a burst has, and how many there are of each system, by what a round takes each."""
    burst = _within(_BURST, _BURST_SECONDS / max(seconds))
    passes = _within(_PASSES, _CASE_SECONDS / (sum(seconds) * (burst + _UNTIMED)))
    return burst, burst * passes


def _within(limits: tuple[int, int], value: float) -> int:
    least, most = limits
    return max(least, min(most, int(value)))


def _row(case: Case, system: str, seconds: Sequence[float]) -> Row:
    servers = 0 if system in SERVERLESS else case.servers
    return Row(system, case.workers, servers, case.size, median(seconds))
