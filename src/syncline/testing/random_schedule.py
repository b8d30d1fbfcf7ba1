"""Run one shard under a random schedule: workers push in random order, one may crash, every answer is recorded."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Effect, Received, Send, SetTimer, Timer
from syncline.layout import Bucket, Values
from syncline.messages import COORDINATOR, Member, Params, Push, Taken, View, worker_id
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.rules import Memory
from syncline.sync import Release, SyncModel

BUCKET = Bucket(0, 1)

MOST_RINGS = 1000
"""After so many timers in a row without an answer, a waiting worker counts as waiting forever."""


@dataclass(frozen=True)
class Count:
    """A rule that counts how many updates changed each value."""

    of_gradients: bool = True
    keeps: bool = True

    def start(self, params: Values) -> Memory:
        return {}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        params += update != 0


@dataclass
class RandomSchedule:
    """One shard with one bucket, some workers, and the results of their pushes."""

    model: SyncModel
    release: Release
    workers: int
    iterations: int
    draw: Draw
    values: int = 0
    """How many values the bucket has at least."""
    next: dict[int, int] = field(default_factory=dict)
    """The iteration that each live worker does next."""
    waiting: dict[int, int] = field(default_factory=dict)
    """The iteration that each waiting worker has pushed."""
    answered: list[tuple[int, int, int]] = field(default_factory=list)
    """(worker, iteration, V at the answer) of every push that was answered and not too late."""
    taken: list[tuple[int, int]] = field(default_factory=list)
    """(worker, iteration) of every push that the shard accepted."""
    turn: float = 0
    """The time in seconds: a push takes one."""
    pushes: int = 0
    timers: list[tuple[float, Timer]] = field(default_factory=list)
    """The timers that the shard has set, and when they expire."""

    def __post_init__(self) -> None:
        self._view = View(0, tuple(Member(worker, 0, 0) for worker in range(self.workers)), ((BUCKET,),))
        terms = ShardTerms(self.model, Count(), Dense(), self.draw, self.release)
        self.params = np.zeros(max(self.workers * self.iterations, self.values), np.float32)
        self.shard = Shard(0, {BUCKET: self.params}, terms, self._view)
        self.next = dict.fromkeys(range(self.workers), 0)

    @property
    def bucket_v(self) -> int:
        return self.shard.buckets[BUCKET].v

    def ready(self) -> list[int]:
        """The live workers that do not wait and have not finished."""
        return [w for w, i in sorted(self.next.items()) if w not in self.waiting and i < self.iterations]

    def push(self, worker: int) -> None:
        """Let this worker push its next iteration."""
        i = self.next[worker]
        update = np.zeros_like(self.params)
        update[worker * self.iterations + i] = 1
        self.waiting[worker] = i
        before = self.shard.tally.updates
        push = Push(self._view.view, 0, i, BUCKET, 0)
        self._perform(self.shard.handle(Received(worker_id(worker), push, update), self.turn))
        self.turn += 1
        if self.shard.tally.updates > before:
            self.taken.append((worker, i))

    def crash(self, worker: int) -> None:
        """Remove this worker, and tell the shard with a new view."""
        self.next.pop(worker)
        self.waiting.pop(worker, None)
        members = tuple(member for member in self._view.members if member.worker != worker)
        self._view = View(self._view.view + 1, members, self._view.holders)
        self._perform(self.shard.handle(Received(COORDINATOR, self._view), self.turn))

    def ring(self) -> bool:
        """Let timers expire until a worker is answered; return False if none is."""
        for _ in range(MOST_RINGS):
            if not self.timers or self.ready():
                break
            due, timer = first = min(self.timers, key=lambda each: each[0])
            self.timers.remove(first)
            self.turn = max(self.turn, due)
            self._perform(self.shard.handle(timer, self.turn))
        return bool(self.ready())

    def _perform(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SetTimer):
                self.timers.append((self.turn + effect.seconds, Timer(effect.key)))
            if not isinstance(effect, Send) or not isinstance(effect.message, (Params, Taken)):
                continue
            worker, answer = effect.to.number, effect.message
            expected = self.waiting.pop(worker, None)
            assert expected == answer.progress, (
                f"worker {worker} got an answer for iteration {answer.progress} but waits for {expected}"
            )
            self.next[worker] = max(answer.progress + 1, answer.v) if answer.late else answer.progress + 1
            if not answer.late:
                self.answered.append((worker, answer.progress, answer.v))

    def run(self, crash_at: int | None = None) -> None:
        """Let random workers push until all have finished; after `crash_at` pushes a random worker crashes."""
        while self.step():
            if self.pushes == crash_at and len(self.next) > 1:
                victims = sorted(self.next)
                self.crash(victims[int(self.draw.uniform("crash", self.pushes) * len(victims))])

    def step(self) -> bool:
        """Let a random worker push; return False if there is none."""
        ready = self.ready() if self.ready() or self.ring() else []
        if ready:
            self.push(ready[int(self.draw.uniform("table", self.pushes) * len(ready))])
            self.pushes += 1
        return bool(ready)
