"""One model on a server: its shard, the workers that train it, and what lies between them.

1. The leader's parameters come in bucket by bucket (`Seed`), before them what the rule remembers of an earlier run, if
   there was one. What arrives before they are whole waits.
2. A worker on the same host hands over its memory with its first frame: a push is read where it lies, an answer is
   written where it is used. From any other worker, payloads ride on the wire.
3. Whatever a worker sends is checked before anything is written or judged; a bad frame costs its sender the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite
from time import monotonic
from typing import Protocol

import numpy as np

from syncline.draw import Draw
from syncline.effects import Effect, Event, Received, Send
from syncline.engines.control import Begin, Figures, Noted, Read, Seed, Whole, layout_of
from syncline.engines.frames import Frame
from syncline.engines.memory import Memory
from syncline.engines.settings import strategy_of
from syncline.engines.tracing import Tracing
from syncline.engines.wire import Wire
from syncline.errors import PeerError, SynclineError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values
from syncline.messages import COORDINATOR, NodeId, Pull, Push, View
from syncline.nodes.meter import Meter
from syncline.nodes.shard import Shard
from syncline.nodes.terms import Terms
from syncline.rules import LARGEST

FAR = 1 << 20
"""No pull is for an iteration that is further than this from what a shard has closed."""


@dataclass(eq=False, slots=True)
class Peer:
    """A worker as a server knows it, on its connection for one model."""

    id: NodeId
    incarnation: int
    wire: Wire
    memory: Memory
    shared: bool
    asked: set[Bucket] = field(default_factory=set)
    """Where a push or pull is not answered yet: there is no second one, so nothing that it sends can pile up."""
    early: list[Push | Pull] = field(default_factory=list)
    """Of these, what waits for the first parameters, or for a view that is not there yet; gone with the peer."""

    @property
    def who(self) -> tuple[int, int]:
        return self.id.number, self.incarnation


class Out(Protocol):
    """How a holding sends: at once, or as soon as the socket takes it."""

    def __call__(self, wire: Wire, message: Frame, payload: memoryview | None = None) -> None: ...


class Holding:
    """The buckets of one model that this server holds."""

    def __init__(
        self, id: NodeId, begin: Begin, coordinator: Wire, tracing: Tracing, out: Out, lose: Callable[[Wire, str], None]
    ) -> None:
        self.id = id
        self.name = begin.model
        self.coordinator = coordinator
        self.layout = layout_of(begin.tables)
        self.workers: dict[tuple[int, int], Peer] = {}
        self._out = out
        self._lose = lose
        self._tracing = tracing
        self._meter = Meter()
        self._begin = begin
        self._shard: Shard | None = None
        self._pieces = {bucket: np.zeros(bucket.size, np.float32) for bucket in begin.view.holders[id.number]}
        self._unseeded = set(self._pieces)
        self._strategy = strategy_of(begin.settings, len(begin.servers))
        self._remembered: dict[Bucket, dict[str, Values]] = {}
        """What the rule remembers from an earlier run."""
        self._buckets = frozenset(bucket for held in begin.view.holders for bucket in held)
        self._leader = next((each for each in begin.view.members if each.worker == begin.leader), None)
        self._views: list[View] = []
        self._pushed = 0
        self._pulled = 0
        if not self._unseeded:
            self._open()

    @property
    def is_open(self) -> bool:
        """Are the first parameters whole?"""
        return self._shard is not None

    def _open(self) -> None:
        """The first parameters are whole: make the shard, and let in what has waited."""
        begin, number = self._begin, self.id.number
        strategy = self._strategy
        draw = Draw(int(begin.settings["seed"]))
        terms = Terms(strategy.sync[number], strategy.rule, strategy.codec, draw, strategy.release)
        self._shard = Shard(number, self._pieces, terms, begin.view)
        for bucket, memory in self._remembered.items():
            for name, values in memory.items():
                self._shard.buckets[bucket].memory[name][:] = values
        self._remembered.clear()
        views, self._views = self._views, []
        for view in views:
            self._handle(Received(COORDINATOR, view))
        self._catch_up()

    def is_member(self, peer: Peer) -> bool:
        member = self._shard.terms.members.get(peer.id.number) if self._shard is not None else None
        return member is not None and member.incarnation == peer.incarnation

    def see(self, view: View) -> None:
        """A new view."""
        if self._shard is None:
            self._views.append(view)
        else:
            self._handle(Received(COORDINATOR, view))
            self._catch_up()

    def _catch_up(self) -> None:
        """Judge what has waited for this view; what is wrong with it costs its sender, not whoever brought the view."""
        for peer in list(self.workers.values()):
            early, peer.early = peer.early, []
            try:
                for message in early:
                    self._request(peer, message)
            except PeerError as error:
                self._lose(peer.wire, str(error))

    # From workers.

    def sink(self, peer: Peer, message: Frame, size: int) -> memoryview:
        """Where the payload of this message goes."""
        if peer.shared or not isinstance(message, Push | Seed):
            raise PeerError(f"{type(message).__name__} with a payload")
        bucket = message.bucket
        self._check(peer, message, True)
        if size != bucket.size * VALUE_BYTES:
            raise PeerError(f"{type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        return peer.memory.update(bucket).data.cast("B")

    def _check(self, peer: Peer, message: Push | Pull | Seed, carried: bool) -> None:
        """May this worker send this, now?"""
        if message.bucket not in self._buckets:
            raise PeerError(f"{message.bucket} is no bucket of this model")
        if isinstance(message, Seed):
            if not self._awaits(peer, message.bucket):
                raise PeerError(f"a seed of {message.bucket} that nobody waits for")
            if message.memory and message.memory not in self._strategy.rule.start(np.zeros(0, np.float32)):
                raise PeerError(f"a seed of {message.memory!r}, which this rule does not remember")
        elif message.incarnation != peer.incarnation:
            raise PeerError(f"{type(message).__name__} of incarnation {message.incarnation} from {peer.incarnation}")
        elif message.bucket in peer.asked:
            raise PeerError(f"{type(message).__name__} of {message.bucket} before the last one was answered")
        if isinstance(message, Push):
            self._check_push(message)
        carries = not peer.shared and (isinstance(message, Seed) or (isinstance(message, Push) and not message.empty))
        if carried != carries:
            raise PeerError(f"{type(message).__name__} {'with' if carried else 'without'} a payload")

    def _check_push(self, push: Push) -> None:
        if push.progress < 0:
            raise PeerError(f"a push for iteration {push.progress}")
        if push.lr is not None and not (isfinite(push.lr) and 0 <= push.lr <= LARGEST):
            raise PeerError(f"a push with the learning rate {push.lr}")

    def _awaits(self, peer: Peer, bucket: Bucket) -> bool:
        leader = self._leader
        return leader is not None and peer.who == (leader.worker, leader.incarnation) and bucket in self._unseeded

    def frame(self, peer: Peer, message: Frame, carried: bool) -> None:
        """A worker's frame; `carried`: its payload was read, and the frame checked, already."""
        if isinstance(message, Push | Pull | Seed):
            if not carried:
                self._check(peer, message, False)
            if isinstance(message, Seed):
                self._seed(peer, message)
            else:
                peer.asked.add(message.bucket)
                self._request(peer, message)
        elif isinstance(message, Read) and self._shard is not None:
            self._read(peer, message.bucket, message.memory)
        else:
            raise PeerError(f"{type(message).__name__} from a worker")

    def _seed(self, peer: Peer, seed: Seed) -> None:
        bucket = seed.bucket
        if seed.memory:
            self._remembered.setdefault(bucket, {})[seed.memory] = peer.memory.update(bucket).copy()
            self._out(peer.wire, Noted(bucket))
            return
        self._pieces[bucket][:] = peer.memory.update(bucket)
        self._unseeded.discard(bucket)
        if not self._unseeded:
            self._open()

    def _request(self, peer: Peer, message: Push | Pull) -> None:
        if self._shard is None or message.view > self._shard.terms.view:
            peer.early.append(message)
            return
        if isinstance(message, Pull):
            closed = max((bucket.v for bucket in self._shard.buckets.values()), default=0)
            if not -1 <= message.progress < closed + FAR:
                raise PeerError(f"a pull of iteration {message.progress}, where {closed} are closed")
        payload: Payload | None = None
        if isinstance(message, Push) and not message.empty:
            payload = peer.memory.update(message.bucket)
            self._pushed += payload.nbytes
        self._handle(Received(peer.id, message, payload))

    def _read(self, peer: Peer, bucket: Bucket, name: str) -> None:
        assert self._shard is not None
        held = self._shard.buckets.get(bucket)
        if held is None:
            raise PeerError(f"{bucket} is not here")
        if not name:
            self._give(peer, Whole(bucket), held.params, peer.memory.param(bucket))
        elif name in held.memory:
            self._give(peer, Whole(bucket, name), held.memory[name], peer.memory.update(bucket))
        else:
            raise PeerError(f"nothing called {name!r} is remembered of {bucket}")

    # The node.

    def _handle(self, event: Event) -> None:
        assert self._shard is not None
        now = monotonic()
        effects = self._shard.handle(event, now)
        self._meter.handled(self.id.number, event, effects, now)
        if self._tracing.on:
            self._tracing.event(event, now)
        self._perform(effects, now)

    def _perform(self, effects: list[Effect], now: float) -> None:
        for effect in effects:
            if type(effect) is not Send:
                raise SynclineError(f"a server cannot perform {effect}")
            to, message, payload = effect.to, effect.message, effect.payload
            if self._tracing.on:
                self._tracing.effect(effect, now)
            if to.role == "coordinator":
                self._out(self.coordinator, message)
                continue
            peer = self.workers.get((to.number, message.incarnation))  # type: ignore[union-attr]
            if peer is None:
                continue
            peer.asked.discard(message.bucket)  # type: ignore[union-attr]
            if payload is None:
                self._out(peer.wire, message)
            else:
                self._pulled += payload.nbytes
                self._give(peer, message, payload, peer.memory.param(message.bucket))  # type: ignore[union-attr]

    def _give(self, peer: Peer, message: Frame, values: Payload, place: Values) -> None:
        """Values to a worker: into this place of its memory, or over the wire."""
        if peer.shared:
            place[:] = values
            self._out(peer.wire, message)
        else:
            self._out(peer.wire, message, values.data)

    def finish(self) -> Figures | None:
        """It is over: what was counted, if anything began."""
        self._tracing.close()
        shard = self._shard
        if shard is None:
            return None
        least = min((bucket.v for bucket in shard.buckets.values()), default=0)
        return Figures(
            self.id.number,
            shard.tally.updates,
            shard.tally.dropped,
            self._meter.delayed_pulls,
            least,
            self._pushed,
            self._pulled,
            self.name,
        )
