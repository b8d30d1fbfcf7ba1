"""A slow and plain model of the server strategy, written from the design alone, to compare the simulator with.

Compute times are a table (a row per worker, a column per iteration). Messages take no time, no worker dies. A sync
model is a tuple: ("bsp",), ("asp",), ("ssp", s), ("dsps", lo, hi), ("drop", k) or ("pssp", s, p) with p 0 or 1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf
from typing import Any

Model = tuple[Any, ...]
Rows = Sequence[Sequence[float]]


@dataclass(frozen=True)
class Figures:
    """What the report says about a run."""

    virtual_seconds: float
    delayed_pulls: int
    waiting_seconds: float
    dropped_updates: int
    updates: int
    train_progress: int


def simulate(rows: Rows, models: Sequence[Model], release: str = "lazy") -> Figures:
    """Run every worker through its row, with one server per model."""
    return _Run(rows, models, release).figures()


def _first_bound(name: str, *settings: Any) -> float:
    """A pull is answered at once if i < V + this."""
    if name in ("bsp", "drop"):
        return 0
    if name == "asp" or (name == "pssp" and settings[1] == 0):  # r >= 0, always
        return inf
    return settings[0]


class _Server:
    """A shard of one bucket."""

    def __init__(self, model: Model, release: str, workers: int) -> None:
        self.model, self.release = model, release
        self.needed = model[1] if model[0] == "drop" else workers  # pushes that close a round
        self.bound = _first_bound(*model)
        self.v = 0
        self.pushed: dict[int, set[int]] = defaultdict(set)
        self.parked: dict[int, list[int]] = defaultdict(list)  # under an iteration: workers
        self.answered_at: dict[int, float] = {}
        self.steps: dict[int, list[float]] = defaultdict(list)  # of each worker: from an answer to the next push

    def take(self, now: float, worker: int, i: int) -> list[tuple[int, int]]:
        """Take a push; return the workers whose parked pulls it answers, each with the V in the answer."""
        if worker in self.answered_at:
            self.steps[worker].append(now - self.answered_at[worker])
        self.pushed[i].add(worker)
        released = []
        while len(self.pushed[self.v]) >= self.needed:
            released += [(parked, self.v + 1) for parked in self.parked.pop(self.v, [])]
            self.v += 1
            self.adapt()
        return released

    def adapt(self) -> None:
        """After a close, dsps only. A worker without a step yet does not count; rounding errors count as equal."""
        means = [sum(steps[-8:]) / len(steps[-8:]) for steps in self.steps.values()]
        if self.model[0] == "dsps" and means:
            lo, hi = self.model[1:]
            ratio = max(means) / min(means) if min(means) > 0 else inf if max(means) > 0 else 1
            self.bound = hi if ratio > hi else max(ceil(ratio - 1e-9), lo)


class _Run:
    """Events are ordered by (time, worker number, sequence); every message is one."""

    def __init__(self, rows: Rows, models: Sequence[Model], release: str) -> None:
        self.rows = rows
        self.servers = [_Server(model, release, len(rows)) for model in models]
        self.heap: list[tuple[float, int, int, Any, tuple[int, ...]]] = []
        self.sequence = 0
        self.finished = [0] * len(rows)  # the iteration whose answers a worker waits for
        self.told: list[list[int]] = [[] for _ in rows]  # the V in the answers so far
        self.late = [False] * len(rows)  # was any push of this iteration dropped?
        self.parked = [0] * len(rows)  # how many of a worker's pulls are parked now, and since when
        self.parked_since = [0.0] * len(rows)
        self.end = self.waiting = 0.0
        self.delayed = self.dropped = self.updates = 0

    def figures(self) -> Figures:
        for worker, row in enumerate(self.rows):
            self.post(row[0], worker, self.computed, 0)
        while self.heap:
            now, worker, _, handle, details = heappop(self.heap)
            handle(now, worker, *details)
        progress = min(server.v for server in self.servers)
        return Figures(self.end, self.delayed, self.waiting, self.dropped, self.updates, progress)

    def post(self, time: float, worker: int, handle: Any, *details: int) -> None:
        heappush(self.heap, (time, worker, self.sequence, handle, details))
        self.sequence += 1

    def computed(self, now: float, worker: int, i: int) -> None:
        self.finished[worker], self.told[worker], self.late[worker] = i, [], False
        for number in reversed(range(len(self.servers))):  # backward: last layers first
            self.post(now, worker, self.push_arrives, i, number)

    def push_arrives(self, now: float, worker: int, i: int, number: int) -> None:
        server = self.servers[number]
        if i < server.v:  # too late; it happens only under drop
            self.dropped += 1
            self.late[worker] = True
            self.answer(now, worker, number, server.v)
            return
        self.updates += 1
        for other, v in server.take(now, worker, i):
            self.parked[other] -= 1
            if self.parked[other] == 0:
                self.waiting += now - self.parked_since[other]
            self.answer(now, other, number, v)
        if i < server.v + server.bound:
            self.answer(now, worker, number, server.v)
            return
        self.delayed += 1
        if self.parked[worker] == 0:
            self.parked_since[worker] = now
        self.parked[worker] += 1
        server.parked[i if server.release == "lazy" else server.v].append(worker)

    def answer(self, now: float, worker: int, number: int, v: int) -> None:
        self.servers[number].answered_at[worker] = now
        self.post(now, worker, self.answer_arrives, v)

    def answer_arrives(self, now: float, worker: int, v: int) -> None:
        self.end = now
        self.told[worker].append(v)
        if len(self.told[worker]) == len(self.servers):
            following = self.finished[worker] + 1
            if self.late[worker]:
                following = max(following, min(self.told[worker]))
            if following < len(self.rows[worker]):
                self.post(now + self.rows[worker][following], worker, self.computed, following)
