"""What a worker notes while it is measured: when its steps ended, what its link carried, what its host computed."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import median
from time import monotonic

from benchmarks.cluster.network import count_bytes

CHUNKS = 5
"""The steps are cut into so many runs of equal length, whose median counts."""

WARM, LEAST = 2, 5
"""Steps before the measurement, and at least in it, if all of them are alike."""


@dataclass(frozen=True)
class Window:
    """One worker's measurement; times are those of the machine's monotonic clock, the same on all hosts."""

    marks: list[float]
    """Seconds: the begin, and the end of every step."""
    sent: int
    received: int
    """Bytes on the host's link."""
    processor_seconds: float
    """Of all processes of the host."""
    machine_seconds: float
    """Of the whole machine, also of programs that have nothing to do with this."""
    digest: str = ""
    """Of the parameters at the end."""

    @property
    def seconds(self) -> float:
        return self.marks[-1] - self.marks[0]

    @property
    def steps(self) -> int:
        return len(self.marks) - 1

    @property
    def rate(self) -> float:
        """Steps per second: the median over the chunks."""
        cuts = [round(number * self.steps / CHUNKS) for number in range(CHUNKS + 1)]
        pairs = [(start, stop) for start, stop in pairwise(cuts) if stop > start]
        return median((stop - start) / (self.marks[stop] - self.marks[start]) for start, stop in pairs)


def measure(step: Callable[[], None], seconds: float, agree: Callable[[float], float], period: int = 1) -> Window:
    """Warm up, then measure for about so long; `agree`: the same call on all workers, the largest of their numbers.

    `period`: after so many steps they are alike again; every chunk has whole periods.
    """
    for _ in range(WARM):
        step()
    begun = monotonic()
    step()
    steps = int(agree(steps_for(seconds, monotonic() - begun, period)))
    bytes_before, host_before, machine_before = count_bytes(), host_seconds(), machine_seconds()
    marks = [monotonic()]
    for _ in range(steps):
        step()
        marks.append(monotonic())
    carried = count_bytes() - bytes_before
    window = Window(
        marks, carried.sent, carried.received, host_seconds() - host_before, machine_seconds() - machine_before
    )
    agree(0.0)  # nobody leaves while another is measured
    return window


def steps_for(seconds: float, one: float, period: int = 1) -> int:
    """How many steps take about so long, if one takes this; with a period, a multiple of it in every chunk."""
    steps = max(LEAST, ceil(seconds / one))
    return steps if period == 1 else ceil(steps / (CHUNKS * period)) * CHUNKS * period


def host_seconds() -> float:
    """Processor seconds of all processes that run on this host, so far; in steps of a tick (10 ms)."""
    here = os.stat("/proc/self/ns/net").st_ino
    return sum(_of_process(folder, here) for folder in Path("/proc").iterdir() if folder.name.isdecimal())


def _of_process(folder: Path, here: int) -> float:
    try:
        if os.stat(folder / "ns/net").st_ino != here:
            return 0.0
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended, or is none of ours
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> float:
    """Processor seconds in which the machine was not idle, so far."""
    user, nice, system, _idle, _waiting, *interrupts = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")
