"""When each bucket of one step was ready, pushed, summed, answered and applied, and when each link was busy.

Workers and servers write traces; a process on each host samples its link (link_samples.py). All times are from the
machine's monotonic clock, which the hosts share.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.experiment import Experiment, System
from benchmarks.cluster.link_samples import busy_spans, read_samples, samples_of, shares
from benchmarks.cluster.predict import GOODPUT
from benchmarks.cluster.window import StepTimes, Window

from syncline.errors import RunError

PARTS = 100
"""A link's utilisation is given for this many equal parts of the step."""


@dataclass(frozen=True)
class BucketTimes:
    """One bucket of one worker in one step; its values are [start, stop) of the model vector."""

    start: int
    stop: int
    server: int
    ready: float
    """The worker has computed the update."""
    pushed: float
    """The worker sends it."""
    arrived: float
    """The server has received it."""
    answered: float
    """The server has closed the round and sends its answer."""
    applied: float
    """The worker has the answer."""


@dataclass(frozen=True)
class WorkerStep:
    """One step of one worker, and how busy its host's link was."""

    parts: StepTimes
    stop: float
    """The end of the step."""
    buckets: tuple[BucketTimes, ...]
    """In the order of the model; empty without servers."""
    sent: tuple[float, ...]
    received: tuple[float, ...]
    """For each part of the step, the fraction of it for which the link was busy in this direction."""


@dataclass(frozen=True)
class Timeline:
    """One step of all workers."""

    case: str
    experiment: Experiment
    step: int
    """The number of the step among the measured ones, from 0."""
    steps: int
    start: float
    stop: float
    workers: tuple[WorkerStep, ...]


Moments = Mapping[tuple[str, str, int], tuple[float, int]]
"""For (sender, receiver, first value of a bucket): the time of the first such message, and the end of the bucket."""


def timeline(case: str, experiment: Experiment, windows: Sequence[Window], folder: Path) -> Timeline:
    """The step in the middle of the measurement; with a gate that skips steps, the next one with pushes."""
    steps = windows[0].steps
    for step in range(steps // 2, steps):
        buckets = _buckets_of_all(experiment, windows, folder, step)
        if not _has_servers(experiment) or all(buckets):
            break
    else:
        raise RunError("the traces have no step in which all workers pushed")
    start = min(window.parts[step].begun for window in windows)
    applied = [bucket.applied for found in buckets for bucket in found]
    stop = max([*(window.marks[step + 1] for window in windows), *applied])
    workers = []
    for number, (window, found) in enumerate(zip(windows, buckets, strict=True)):
        sent, received = _link(samples_of(folder, number), experiment.rate * GOODPUT, start, stop)
        workers.append(WorkerStep(window.parts[step], window.marks[step + 1], found, sent, received))
    return Timeline(case, experiment, step, steps, start, stop, tuple(workers))


def _has_servers(experiment: Experiment) -> bool:
    return experiment.system is System.SYNCLINE and experiment.servers > 0


def _link(file: Path, rate: float, start: float, stop: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    samples = read_samples(file)
    sent = busy_spans(((time, sent) for time, sent, _ in samples), rate)
    received = busy_spans(((time, received) for time, _, received in samples), rate)
    return tuple(shares(sent, start, stop, PARTS)), tuple(shares(received, start, stop, PARTS))


def _buckets_of_all(
    experiment: Experiment, windows: Sequence[Window], folder: Path, step: int
) -> list[tuple[BucketTimes, ...]]:
    """For each worker, the buckets that it pushed in a step, in the order of the model."""
    if not _has_servers(experiment):
        return [() for _ in windows]
    progress = experiment.warm + 1 + step
    servers = {f"server{n}": moments(folder / f"server{n}.csv", progress) for n in range(experiment.hosts)}
    found = []
    for number, window in enumerate(windows):
        mine = moments(folder / f"worker{number}.csv", progress)
        found.append(_buckets(f"worker{number}", mine, servers, ready_times(experiment, window.parts[step])))
    return found


def _buckets(
    me: str, mine: Moments, servers: Mapping[str, Moments], ready: Mapping[tuple[int, int], float]
) -> tuple[BucketTimes, ...]:
    found = []
    for (source, server, start), (pushed, stop) in mine.items():
        if source == me:
            there, back = (me, server, start), (server, me, start)
            if there in servers[server] and back in servers[server] and back in mine:
                computed = max(when for (first, last), when in ready.items() if first < stop and last > start)
                times = (computed, pushed, servers[server][there][0], servers[server][back][0], mine[back][0])
                found.append(BucketTimes(start, stop, int(server.removeprefix("server")), *times))
    return tuple(sorted(found, key=lambda bucket: bucket.start))


def ready_times(experiment: Experiment, parts: StepTimes) -> dict[tuple[int, int], float]:
    """When the update of each table was ready; a table is [start, stop) of the model vector."""
    tables = experiment.layers.layout.tables
    return {(table.start, table.stop): when for table, when in zip(tables, reversed(parts.ready), strict=True)}


def moments(trace: Path, progress: int) -> Moments:
    """The pushes and answers of one iteration in a trace."""
    found: dict[tuple[str, str, int], tuple[float, int]] = {}
    with trace.open(newline="") as lines:
        for line in csv.DictReader(lines):
            if line["progress"] == str(progress) and line["kind"] in ("push", "params", "taken"):
                key = (line["from"], line["to"], int(line["start"]))
                found.setdefault(key, (float(line["time"]), int(line["stop"])))
    return found
