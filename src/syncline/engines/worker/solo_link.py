"""A run of one, in this process: the same nodes, and nothing between them. A program started by itself has it."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from syncline.draw import Draw
from syncline.effects import Change, Deliver, Depart, Effect, Event, Fail, Ready, Received, Send
from syncline.engines.net.control import Begin, Declare, layout_of
from syncline.engines.net.shared_memory import LaneMemory
from syncline.errors import SynclineError
from syncline.layout import Bucket, Values
from syncline.messages import Member, NodeId, View, server_id, worker_id
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.worker import Worker
from syncline.placement import checked
from syncline.strategies.server.strategy import Mode, part_of
from syncline.strategies.server.sync_change import written
from syncline.strategies.settings import settle, strategy_of

ME, SHARD = worker_id(0), server_id(0)


class SoloLink:
    """A worker's link to the one shard of its model."""

    def __init__(self) -> None:
        self.error: SynclineError | None = None
        self.following: int | None = None
        self.fresh: set[Bucket] = set()
        self.members: tuple[int, ...] = (0,)
        self._remembered: dict[str, Values] = {}
        self.v = 0
        self.changed: dict[str, str] = {}
        """The settings that have changed since it began."""

    def begin(self, declare: Declare) -> Begin:
        found = settle({"the program": declare.wishes}, 1, 1)
        words = {key: word for key, (word, _) in found.items()}
        layout = layout_of(declare.tables)
        self.strategy = strategy_of(words, 1)
        (ranges,) = checked(self.strategy.placement, layout, 1)
        held = self.strategy.buckets(layout, ranges)
        self.buckets = held[::-1]
        self.memory = LaneMemory(layout.size)
        self._draw = Draw(int(words["seed"]))
        self._view = View(0, (Member(0, 0, 0),), (held,))
        self._layout = layout
        self._worker = Worker(0, 0, self.strategy.parts(layout, self._draw), self._view)
        origins = {key: origin for key, (_, origin) in found.items()}
        return Begin(declare.tables, words, self._view, (), 0, declare.model, origins)

    def seed(self) -> None:
        """The shard starts with what lies in the updates."""
        terms = self.strategy.terms(0, self._layout, self._draw)
        pieces = {bucket: self.memory.update(bucket).copy() for bucket in self.buckets}
        self._shard = Shard(0, pieces, terms, self._view)
        for name, vector in self._remembered.items():
            for bucket, held in self._shard.buckets.items():
                held.optimised.remember(name, vector[bucket.start : bucket.stop])

    @property
    def residuals(self) -> dict[Bucket, dict[str, Values]]:
        return self._worker.memories

    def go_on_from(self, iteration: int) -> None:
        self._worker.earlier = iteration

    def remind(self, name: str) -> None:
        self._remembered[name] = self.memory.updates.copy()

    def recall(self, name: str) -> None:
        for bucket, held in self._shard.buckets.items():
            self.memory.update(bucket)[:] = held.memory[name]

    def join(self) -> None:
        raise AssertionError("a run of one has nobody to join")

    def sit(self) -> None:
        """Everyone is there."""

    def handle(self, event: Event) -> None:
        """Tell the worker something; whatever follows from it happens at once."""
        self._settle(ME, self._worker.handle(event, monotonic()))

    def change(self, models: tuple[str, ...], sync: tuple[str, ...], release: str) -> None:
        """Go on under another sync model, which was checked; `models`: this one."""
        model = part_of("sync", sync[0]) if sync else self._shard.terms.model
        change = Change(model, part_of("release", release) if release else None)
        self._settle(SHARD, self._shard.handle(change, monotonic()))
        words = {"sync": written(sync), "release": release}
        self.changed |= {key: word for key, word in words.items() if word}

    def _settle(self, source: NodeId, effects: list[Effect]) -> None:
        """Perform these effects of a node, and all that follows from them."""
        now = monotonic()
        waiting = [(source, effect) for effect in effects]
        while waiting:
            source, effect = waiting.pop(0)
            if type(effect) is Send:
                if effect.to.role == "coordinator":
                    continue  # the membership of one
                node = self._shard if effect.to == SHARD else self._worker
                answer = node.handle(Received(source, effect.message, effect.payload), now)
                waiting += [(effect.to, each) for each in answer]
            else:
                self._perform(effect)

    def _perform(self, effect: Effect) -> None:
        if type(effect) is Deliver:
            self.fresh.add(effect.bucket)
            if effect.payload is not None:
                self.memory.param(effect.bucket)[:] = effect.payload
            elif self.strategy.mode is Mode.GRADIENTS:
                self.memory.param(effect.bucket)[:] = 0  # nobody had a gradient
            if effect.next is not None:
                self.v = self.following = effect.next
        elif type(effect) is Fail:
            raise effect.error
        else:
            raise SynclineError(f"a run of one cannot perform {effect}")

    def unfetched(self, ready: Ready) -> list[Bucket]:
        return self._worker.unfetched(ready)

    def wait(self, done: Callable[[], bool]) -> None:
        assert done(), "in a run of one everything has happened already"

    def leave(self) -> None:
        self.handle(Depart())

    def read_final(self) -> None:
        for bucket, held in self._shard.buckets.items():
            self.memory.param(bucket)[:] = held.params

    def close(self) -> None:
        """There is nothing to close."""
