"""Runs real processes on this host, and checks the servers' traces against the synchronisation rules.

Run by `syncline run`, this file is a worker that sends random updates:

    syncline run tests/lanes.py DIRECTORY ITERATIONS [uneven]

The worker writes its final parameters to DIRECTORY/worker0.npy. `uneven`: worker r begins an iteration only after
worker r - 1 has sent its update, so that the first worker is ahead of all others. All workers then leave together, so
that the membership does not change while a round is open.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import ceil, exp, inf
from pathlib import Path
from time import sleep
from typing import Any, NamedTuple

import numpy as np

import syncline
from syncline.draw import Draw
from syncline.layout import Bucket, Values
from syncline.sync import Psp

SEED = 7
SHAPES = {"w": (90, 100), "v": (4000,), "b": (7,)}
"""About 13,000 values: many buckets of 4 KiB, some of which hold two tables."""

SECONDS = 120
"""A timeout that only a run that hangs reaches."""


# The updates are the same in every engine.


def first_values(rank: int) -> dict[str, Values]:
    """The initial values that a worker declares; all workers start with the leader's."""
    return _draw(SEED, rank)


def drawn_updates(rank: int, iteration: int) -> dict[str, Values]:
    return _draw(SEED, rank, iteration)


def vector(tables: Mapping[str, Values]) -> Values:
    return np.concatenate([tables[name].ravel() for name in SHAPES])


def _draw(*key: int) -> dict[str, Values]:
    random = np.random.default_rng(key)
    return {name: random.standard_normal(shape, np.float32) for name, shape in SHAPES.items()}


def work(directory: Path, iterations: int, uneven: bool = False) -> None:
    """Run a worker: draw updates, send them, and write the final parameters."""
    session = syncline.connect()
    tables = session.tables(first_values(session.rank))
    means = session.settings["mode"] == "gradients"
    params = {name: table.copy() for name, table in tables.items()}
    queue = Queue(directory, session.rank)
    while (iteration := session.iteration) < iterations:
        if uneven:
            queue.wait_for(session.rank - 1, iteration + 1)
        for name, update in drawn_updates(session.rank, iteration).items():
            session.update(name, update)
        session.clock()
        queue.has_done(iteration + 1)
        session.sync()
        if means:  # the worker's optimizer: plain SGD
            for name, mean in tables.items():
                params[name] -= np.float32(0.1) * mean
    queue.has_done(iterations + 1)
    if uneven:
        for rank in range(session.size):
            queue.wait_for(rank, iterations + 1)
    session.close()
    np.save(directory / f"worker{session.rank}.npy", vector(params if means else tables))


class Queue:
    """Tells workers how many updates each has sent; the number is the length of a file."""

    def __init__(self, directory: Path, rank: int) -> None:
        self._directory = directory
        self._own = self._file(rank)
        self._own.touch()

    def _file(self, rank: int) -> Path:
        return self._directory / f"handed-in{rank}"

    def has_done(self, iterations: int) -> None:
        os.truncate(self._own, iterations)

    def wait_for(self, rank: int, iterations: int) -> None:
        """Wait until this worker has sent this many updates; a negative rank never waits."""
        file = self._file(rank)
        while rank >= 0 and not (file.exists() and file.stat().st_size >= iterations):
            sleep(0.001)


# A run.


@dataclass(frozen=True)
class Ran:
    """A finished run: exit code, output and files."""

    directory: Path
    code: int
    output: str
    errors: str

    @property
    def report(self) -> dict[str, Any]:
        return dict(json.loads((self.directory / "report.json").read_text()))

    def trace(self, server: int) -> list[Line]:
        return read_trace(self.directory / f"server{server}.csv")

    def params(self, worker: int) -> Values:
        return np.load(self.directory / f"worker{worker}.npy")  # type: ignore[no-any-return]


def environment() -> dict[str, str]:
    """The environment in which programs can import this file, whatever the current directory of pytest."""
    paths = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "syncline", "run", *map(str, words)]


def run(directory: Path, *words: object) -> Ran:
    """Run `syncline run` to its end, with traces and a report; `words`: options, the program and its arguments."""
    outputs = ("--trace", directory, "--report", directory / "report.json")
    done = subprocess.run(
        command(*outputs, *words),
        cwd=directory,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    return Ran(directory, done.returncode, done.stdout, done.stderr)


def run_drawn(directory: Path, iterations: int, *options: object, uneven: bool = False) -> Ran:
    """Run random updates with these options; the run must succeed."""
    ran = run(directory, *options, __file__, directory, iterations, *["uneven"] * uneven)
    assert ran.code == 0, ran.output + ran.errors
    return ran


# Traces.


class Line(NamedTuple):
    """A message that a server received or sent."""

    time: float
    source: str
    to: str
    kind: str
    progress: int
    bytes: int
    bucket: Bucket | None
    version: int | None
    """In a push: the version that the worker read; in an answer: the version that the server sent."""
    v: int | None


def read_trace(path: Path) -> list[Line]:
    with path.open(newline="") as file:
        return [_line(row) for row in csv.DictReader(file)]


def _line(row: Mapping[str, str]) -> Line:
    bucket = Bucket(int(row["start"]), int(row["stop"])) if row["start"] else None
    version, v = (int(row[key]) if row[key] else None for key in ("version", "v"))
    return Line(
        float(row["time"]), row["from"], row["to"], row["kind"], int(row["progress"]), int(row["bytes"]), bucket,
        version, v,
    )  # fmt: skip


def handled(trace: Iterable[Line]) -> Iterator[tuple[Line, list[Line]]]:
    """Each received message, with everything that the server sent because of it.

    A trace lists the event first and then its effects in order, all with the time of the event.
    """
    event: Line | None = None
    effects: list[Line] = []
    for line in trace:
        if line.to.startswith("server"):
            if event is not None:
                yield event, effects
            event, effects = line, []
        else:
            assert event is not None, f"sent before anything came in: {line}"
            assert line.time == event.time, f"sent for {event} at another time: {line}"
            effects.append(line)
    if event is not None:
        yield event, effects


# A second, independent implementation of the synchronisation rules, for runs in which no worker dies or joins.


@dataclass
class Steps:
    """For dsps: the durations of the last 8 steps of each worker, from an answer to the next push."""

    answered: dict[str, float] = field(default_factory=dict)
    last: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=8)))

    def bound(self, bound: float, lo: int, hi: int) -> float:
        means = [sum(each) / len(each) for each in self.last.values()]
        if not means:
            return bound
        ratio = max(means) / min(means) if min(means) else inf if max(means) else 1.0
        return min(max(ceil(min(ratio, hi) - 1e-9), lo), hi)


ASKED_AGAIN = -2
"""No round: pulls under it wait until the model, asked again, allows them."""


@dataclass
class OneBucket:
    """A bucket of one server under one sync model, with this number of workers."""

    model: tuple[Any, ...]
    soft: bool
    workers: int
    v: int = 0
    version: int = 0
    pushed: dict[int, set[str]] = field(default_factory=lambda: defaultdict(set))
    parked: dict[int, list[Line]] = field(default_factory=lambda: defaultdict(list))
    steps: Steps = field(default_factory=Steps)

    def __post_init__(self) -> None:
        name, *settings = self.model
        self.at_close = name in ("bsp", "drop")
        self.bound: float = 0 if self.at_close else inf if name == "asp" else settings[name == "psp"]

    def answers(self, asked: Line) -> list[tuple[str, int, int, int]]:
        """The answers that this message must cause, in order: (to, progress, version, V)."""
        told: list[tuple[str, int, int, int]] = []

        def answer(line: Line) -> None:
            self.steps.answered.setdefault(line.source, asked.time)
            told.append((line.source, line.progress, self.version, self.v))

        if asked.kind == "push":
            if self.at_close and asked.progress < self.v:
                answer(asked)  # too late
                return told
            self._take(asked)
            while self._may_close():
                for line in self._close():
                    answer(line)
            for line in self._allowed_now():
                answer(line)
        if self._may_answer(asked):
            answer(asked)
        else:
            under = self.v if self.soft else asked.progress
            self.parked[ASKED_AGAIN if self.model[0] == "psp" else under].append(asked)
        return told

    def _allowed_now(self) -> list[Line]:
        """Remove and return the pulls that psp, asked again, allows now."""
        waiting = self.parked.pop(ASKED_AGAIN, [])
        allowed = [line for line in waiting if self._may_answer(line)]
        self.parked[ASKED_AGAIN] = [line for line in waiting if line not in allowed]
        return allowed

    def _take(self, push: Line) -> None:
        if push.source in self.steps.answered:
            self.steps.last[push.source].append(push.time - self.steps.answered.pop(push.source))
        self.pushed[push.progress].add(push.source)
        self.version += not self.at_close and push.bytes > 0

    def _may_close(self) -> bool:
        needed = self.model[1] if self.model[0] == "drop" else self.workers
        return len(self.pushed[self.v]) >= needed

    def _close(self) -> list[Line]:
        closed = self.v
        self.version += self.at_close
        self.v += 1
        if self.model[0] == "dsps":
            self.bound = self.steps.bound(self.bound, *self.model[1:])
        return self.parked.pop(closed, [])

    def _may_answer(self, asked: Line) -> bool:
        i = asked.progress
        if i < self.v + self.bound:
            return True
        worker = int(asked.source.removeprefix("worker"))
        if self.model[0] == "psp":
            sample = Psp(*self.model[1:]).sampled(range(self.workers), worker, i, Draw(SEED))
            return all(f"worker{peer}" in self.pushed[i - self.model[2]] for peer in sample)
        if self.model[0] != "pssp":
            return False
        s, p, alpha = self.model[1:]
        waits = float(p if alpha is None else min(alpha / (1 + exp(s - (i - self.v))), 1.0))
        return Draw(SEED).uniform("pssp", worker, i) >= waits


@dataclass
class Found:
    """The figures of a report, computed from a trace."""

    updates: int
    dropped_updates: int
    delayed_pulls: int
    train_progress: int
    bytes_pushed: int
    bytes_pulled: int


def replay(trace: Iterable[Line], model: tuple[Any, ...], soft: bool, workers: int) -> Found:
    """Check every answer of a server against the rules, and return the figures that the report must contain."""
    buckets: dict[Bucket, OneBucket] = defaultdict(lambda: OneBucket(model, soft, workers))
    taken: set[tuple[str, int]] = set()
    dropped: set[tuple[str, int]] = set()
    delayed: set[tuple[str, int]] = set()
    pushed = pulled = 0
    for event, effects in handled(trace):
        if event.bucket is None:
            assert (event.kind, effects) == ("view", []), f"nobody joins or dies here: {event}, {effects}"
            continue
        bucket, who = buckets[event.bucket], (event.source, event.progress)
        if event.kind == "push":
            late = bucket.at_close and event.progress < bucket.v
            (dropped if late else taken).add(who)
            pushed += event.bytes
        expected = bucket.answers(event)
        found = [(line.to, line.progress, line.version, line.v) for line in effects]
        assert found == expected, f"after {event} the law asks for {expected}, and the server sent {found}"
        assert all(line.bucket == event.bucket and line.kind == "params" for line in effects)
        pulled += sum(line.bytes for line in effects if line.progress >= 0)  # no figure counts the initial parameters
        if all(line.to != event.source for line in effects):
            delayed.add(who)
    left = [line for bucket in buckets.values() for lines in bucket.parked.values() for line in lines]
    assert not left, f"never answered: {left}"
    least = min(bucket.v for bucket in buckets.values())
    return Found(len(taken - dropped), len(dropped), len(delayed), least, pushed, pulled)


# Checks that hold for every sync model and need no replay.


def check_once(trace: Iterable[Line]) -> None:
    """Check that every push and pull is answered exactly once, after it was received."""
    open_ = Counter[tuple[str, int, Bucket | None]]()
    for line in trace:
        if line.kind in ("push", "pull"):
            open_[line.source, line.progress, line.bucket] += 1
        elif line.kind in ("params", "taken"):
            open_[line.to, line.progress, line.bucket] -= 1
            assert open_[line.to, line.progress, line.bucket] >= 0, f"answered before it asked, or twice: {line}"
    assert not +open_, f"never answered: {+open_}"


def check_stale(trace: Iterable[Line], s: float) -> None:
    """Check that no answer has i >= V + s, with the answer's V, and that V and versions never decrease."""
    last: dict[Bucket, tuple[int, int]] = {}
    for line in trace:
        if line.kind in ("params", "taken"):
            assert line.v is not None
            assert line.version is not None
            assert line.bucket is not None
            assert line.progress < line.v + s, f"answered with i >= V + {s}: {line}"
            v, version = last.get(line.bucket, (0, 0))
            assert line.v >= v, f"V has fallen from {v}: {line}"
            assert line.version >= version, f"the version has fallen from {version}: {line}"
            last[line.bucket] = line.v, line.version


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:] == ["uneven"])
