"""A run with one worker inside this process: the same nodes without a network. A program started directly uses it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from time import monotonic, sleep

from syncline.draw import Draw
from syncline.effects import (
    Change,
    Collect,
    Deliver,
    Depart,
    Event,
    Fail,
    Fetch,
    Load,
    Received,
    Reject,
    Save,
    Saved,
    Send,
    SetTimer,
    Timer,
)
from syncline.engines.net.control import Begin, Declare, layout_of
from syncline.engines.net.shared_memory import LaneMemory
from syncline.errors import PeerError, SynclineError
from syncline.layout import Bucket, Table, Values
from syncline.messages import COORDINATOR, Member, NodeId, View, server_id, worker_id
from syncline.nodes.driver import Driver
from syncline.nodes.protocol import Collected, Collector, Keeper, Trainer
from syncline.spec import one_of, parse
from syncline.strategies.protocol import Job
from syncline.strategies.settings import settle, strategy_of
from syncline.strategies.sync_change import written
from syncline.sync import Release

ME, SERVER = worker_id(0), server_id(0)


class SoloLink:
    """The link of the only worker, and the host of its node and of the server's, if the strategy has one."""

    def __init__(self) -> None:
        self.error: SynclineError | None = None
        self.following: int | None = None
        self.members: tuple[int, ...] = (0,)
        self.node: Trainer | None = None
        self._keeper: Keeper | None = None
        self._remembered: dict[str, Values] = {}
        self._flying: deque[tuple[NodeId, Event]] = deque()
        """Messages in flight."""
        self._timers: list[tuple[float, NodeId, Timer]] = []
        """(when it expires, whose it is, the event) of each timer."""
        self.changed: dict[str, str] = {}
        """The settings that have changed since the run began."""

    def begin(self, declare: Declare) -> Begin:
        found = settle({"the program": declare.wishes}, None, 1)
        words = {key: word for key, (word, _) in found.items()}
        layout = layout_of(declare.tables)
        self.strategy = strategy_of(words, None).fitted(1)
        self.strategy.check_real()
        self._job = Job(layout, Draw(int(words["seed"])))
        self._view = View(0, (Member(0, 0, 0),), self.strategy.topology(self._job, range(self.strategy.servers)))
        self.memory = LaneMemory(layout.size)
        self.node = self.strategy.trainer(0, 0, self._job, self._view)
        self.buckets = self.node.buckets
        self._drivers = {ME: Driver(ME, self.node, self)}
        origins = {key: origin for key, (_, origin) in found.items()}
        return Begin(declare.tables, words, self._view, (), 0, declare.model, origins)

    def seed(self) -> None:
        """Start with the values in the update memory, on the server or, without one, on this worker."""
        if not self.strategy.servers:
            self.memory.params[:] = self.memory.updates
            return
        pieces = {bucket: self.memory.update(bucket).copy() for bucket in self.buckets}
        self._keeper = keeper = self.strategy.keeper(0, self._job, self._view, pieces)
        self._drivers[SERVER] = Driver(SERVER, keeper, self)
        for name, vector in self._remembered.items():
            for bucket in self.buckets:
                keeper.remember(bucket, name, vector[bucket.start : bucket.stop])

    def take_first(self) -> None:
        assert self.node is not None
        if self.strategy.servers:
            self.handle(Fetch(-1))
        else:
            self.following = self.node.progress

    @property
    def residuals(self) -> dict[Bucket, dict[str, Values]]:
        assert self.node is not None
        return self.node.memories

    def go_on_from(self, iteration: int) -> None:
        assert self.node is not None
        self.node.earlier = iteration

    def keep_base(self, table: Table, base: Values) -> None:
        """Nothing can be lost here."""

    def taken(self, name: str) -> None:
        """Nothing can be lost here."""

    def collect(self) -> Collected | None:
        if not isinstance(self.node, Collector):
            return None
        self.handle(Collect())
        return self.node.collected

    def resume(self, clocks: Mapping[int, int]) -> None:
        if isinstance(self.node, Collector):
            self.node.resume(clocks)

    def remind(self, name: str) -> None:
        self._remembered[name] = self.memory.updates.copy()

    def recall(self, name: str) -> None:
        assert self._keeper is not None
        for bucket in self.buckets:
            if name:
                self.memory.update(bucket)[:] = self._keeper.remembered(bucket)[name]
            else:
                self.memory.param(bucket)[:] = self._keeper.params()[bucket]

    def join(self) -> None:
        raise AssertionError("a run with one worker cannot be joined")

    def sit(self) -> None:
        """There are no other workers to wait for."""

    # The host of the nodes.

    def handle(self, event: Event) -> None:
        """Pass an event to the worker's node, and perform all its consequences at once."""
        self._perform(ME, event)

    def change(self, models: tuple[str, ...], sync: tuple[str, ...], release: str) -> None:
        """Change the sync model or the release, which were checked; there is only one model."""
        assert self._keeper is not None
        model = parse("sync", sync[0]) if sync else self._keeper.in_force().model
        self._perform(SERVER, Change(model, one_of(Release, release, "release") if release else None))
        words = {"sync": written(sync), "release": release}
        self.changed |= {key: word for key, word in words.items() if word}

    def _perform(self, to: NodeId, event: Event) -> None:
        """Pass an event to a node, and deliver all messages that follow from it."""
        now = monotonic()
        self._flying = deque([(to, event)])
        while self._flying:
            to, event = self._flying.popleft()
            if to != COORDINATOR:  # the membership never changes
                self._drivers[to].tell(event, now)

    def send(self, me: NodeId, send: Send) -> None:
        self._flying.append((send.to, Received(me, send.message, send.payload)))

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        self.memory.deliver(deliver)
        if deliver.next is not None:
            self.following = deliver.next

    def save(self, me: NodeId, save: Save) -> None:
        """Write nothing: the node lives as long as its worker."""
        self._flying.append((me, Saved(save.bucket, save.serial)))

    def load(self, me: NodeId, load: Load) -> None:
        raise SynclineError(f"server {load.server} cannot be lost: this run has one process")

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        self._timers.append((monotonic() + timer.seconds, me, Timer(timer.key)))

    def reject(self, me: NodeId, reject: Reject) -> None:
        raise PeerError(reject.reason)

    def fail(self, me: NodeId, fail: Fail) -> None:
        raise fail.error

    def ungiven(self) -> list[Bucket]:
        assert self.node is not None
        return [] if self.following is not None else [each for each in self.buckets if not self.node.is_given(each)]

    def wait(self, done: Callable[[], bool]) -> None:
        """Wait for timers: in a run with one worker everything else has happened already."""
        while not done() and self._timers:
            first = min(self._timers, key=lambda each: each[0])
            self._timers.remove(first)
            sleep(max(first[0] - monotonic(), 0.0))
            self._perform(*first[1:])
        assert done(), "in a run with one worker nothing is left to wait for"

    def finish(self) -> None:
        """Do nothing: there are no other workers to wait for."""

    @property
    def sent_bytes(self) -> int:
        return 0

    def leave(self) -> None:
        self.handle(Depart())

    def read_final(self) -> None:
        assert self._keeper is not None
        for bucket, params in self._keeper.params().items():
            self.memory.param(bucket)[:] = params

    def close(self) -> None:
        """Do nothing: there are no connections."""
