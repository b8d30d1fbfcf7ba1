"""The measurement of one worker: the times of its steps, the bytes on its link, the processor time of its host."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil
from pathlib import Path
from statistics import median
from time import monotonic

from benchmarks.cluster.network import Count, count_bytes

CHUNKS = 5
"""The steps are divided into this many chunks of equal length; the result is the median over the chunks."""

LEAST = 5
"""The least number of measured steps if all steps are alike."""


@dataclass(frozen=True)
class StepTimes:
    """When the parts of one step were over, in seconds of the machine's monotonic clock, which all hosts share."""

    begun: float
    """The start of the backward pass."""
    first: float
    """When the update of the last layer was computed, or all updates if the exchange begins after the backward pass."""
    computed: float
    """The end of the backward pass."""
    exchanged: float
    """The end of the exchange; the forward pass may begin before."""
    carried: Count
    """The bytes on the host's link from `first` to `exchanged`."""
    ready: list[float]
    """When the update of each table was computed, last table first; empty for gloo."""


@dataclass(frozen=True)
class Window:
    """The measurement of one worker."""

    marks: list[float]
    """The start of the first step and the end of every step, in seconds of the machine's monotonic clock."""
    sent: int
    received: int
    """Bytes on the host's link."""
    processor_seconds: float
    """Processor time of all processes of the host."""
    machine_seconds: float
    """Processor time of the whole machine, including unrelated programs."""
    digest: str = ""
    """A hash of the final parameters."""
    parts: list[StepTimes] = field(default_factory=list)
    """The parts of every step."""
    sample: list[float] = field(default_factory=list)
    """Some of the final parameters, if they are equal only up to rounding."""
    partitions: int = 0
    """The number of ranges at the end; 0: the strategy has none."""

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


def measure(
    step: Callable[[], StepTimes], seconds: float, agree: Callable[[float], float], warm: int, period: int = 1
) -> Window:
    """Make `warm` steps, then measure for about this many seconds.

    `agree` returns the largest of the numbers that all workers pass to it. The pattern of steps repeats after `period`
    steps; every chunk has whole periods.
    """
    for _ in range(warm):
        step()
    begun = monotonic()
    step()
    steps = int(agree(steps_for(seconds, monotonic() - begun, period)))
    bytes_before, host_before, machine_before = count_bytes(), host_seconds(), machine_seconds()
    marks, parts = [monotonic()], []
    for _ in range(steps):
        parts.append(step())
        marks.append(monotonic())
    carried = count_bytes() - bytes_before
    own, whole = host_seconds() - host_before, machine_seconds() - machine_before
    window = Window(marks, carried.sent, carried.received, own, whole, parts=parts)
    agree(0.0)  # no worker leaves while another one measures
    return window


def steps_for(seconds: float, one: float, period: int = 1) -> int:
    """How many steps take about this many seconds if one step takes `one`; every chunk has whole periods."""
    steps = max(LEAST, ceil(seconds / one))
    return steps if period == 1 else ceil(steps / (CHUNKS * period)) * CHUNKS * period


def host_seconds() -> float:
    """The processor seconds so far of all processes on this host, with a resolution of one tick (10 ms)."""
    here = os.stat("/proc/self/ns/net").st_ino
    return sum(_of_process(folder, here) for folder in Path("/proc").iterdir() if folder.name.isdecimal())


def _of_process(folder: Path, here: int) -> float:
    try:
        if os.stat(folder / "ns/net").st_ino != here:
            return 0.0
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended, or belongs to another user
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_seconds() -> float:
    """The processor seconds so far in which the machine was not idle."""
    user, nice, system, _idle, _waiting, *interrupts = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:8]
    return sum(map(int, (user, nice, system, *interrupts))) / os.sysconf("SC_CLK_TCK")
