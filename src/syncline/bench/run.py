"""Measure all systems in one run, in short bursts in turn, so that a disturbance of the machine affects all equally."""

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
"""The time for all bursts of a case together, without starting the processes and checking the sums."""
_UNTIMED = 2
"""Rounds of a burst that are not timed: one synchronises the workers, one may be the check."""


def systems(case: Case) -> list[System]:  # noqa: ARG001  a system may not fit every case
    """All systems that can be measured on this machine."""
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
    """The median time of a round of each system, over `rounds` rounds, or as many as fit in about 20 seconds.

    `tell` is called with the fraction of the case that is done, from 0 to 1.
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
    """The seconds of every round of each system."""
    burst, total = plan([median(system.burst(_WARM_UP)) for system in candidates])
    total = rounds or total
    seconds: list[list[float]] = [[] for _ in candidates]
    for done in range(0, total, burst):
        for system, times in zip(candidates, seconds, strict=True):
            times += system.burst(min(burst, total - done))
        tell(min(done + burst, total) / total)
    return seconds


def plan(seconds: Sequence[float]) -> tuple[int, int]:
    """The rounds per burst and the rounds per system, given the seconds of a round of each system."""
    burst = _within(_BURST, _BURST_SECONDS / max(seconds))
    passes = _within(_PASSES, _CASE_SECONDS / (sum(seconds) * (burst + _UNTIMED)))
    return burst, burst * passes


def _within(limits: tuple[int, int], value: float) -> int:
    least, most = limits
    return max(least, min(most, int(value)))


def _row(case: Case, system: str, seconds: Sequence[float]) -> Row:
    servers = 0 if system in SERVERLESS else case.servers
    return Row(system, case.workers, servers, case.size, median(seconds), case.mode)
