"""One model on a server: its shard, the workers that train it, and the messages between them.

1. The leader sends the initial parameters bucket by bucket (`Seed`). If the run continues an earlier one, the leader
   sends the rule's state before them. Requests that arrive before the parameters are complete wait.
2. A worker on the same host sends a descriptor of its memory with its first frame. The server reads a push from that
   memory and writes the answer into it. Other workers send and receive payloads over the connection.
3. The server checks every frame of a worker before it writes or handles anything. After an invalid frame it closes the
   connection of the sender.
4. When the placement changes, servers hand over buckets to each other (handovers.py). The server keeps an answer to a
   member that has not connected yet.
5. A strategy can have messages between servers (server_links.py), and checkpoints (checkpoint_folder.py). A server that
   starts again begins with its last checkpoints instead of the leader's parameters.
6. A server that joins gets the initial parameters from another server, if it will hold buckets from the start
   (first_values.py). Its node waits for the view that names it.
7. If a server of strategy `server` dies, workers report what they have read of its buckets, and send copies of it
   (nodes/server/recovery.py). Copies always travel over the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from time import monotonic

import numpy as np

from syncline.draw import Draw
from syncline.effects import (
    Change,
    Deliver,
    Event,
    Fail,
    Load,
    Loaded,
    Received,
    Reject,
    Save,
    Saved,
    Send,
    ServerLost,
    SetTimer,
    Timer,
    kept,
)
from syncline.engines.message_trace import MessageTrace
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    Abort,
    Begin,
    Figures,
    First,
    Laid,
    Lifted,
    NodeAddress,
    Noted,
    Read,
    Seed,
    Take,
    TakeFirst,
    Whole,
    layout_of,
)
from syncline.engines.net.frames import Frame
from syncline.engines.process import say
from syncline.engines.server.checkpoint_folder import CheckpointFolder
from syncline.engines.server.first_values import FirstInbox, give_first
from syncline.engines.server.handovers import HandoverInbox, HandoverOutbox
from syncline.engines.server.mapped_workers import MappedWorkers
from syncline.engines.server.server_links import ServerLinks
from syncline.engines.server.worker_peer import Out, WorkerPeer, check_push
from syncline.errors import PeerError, RunError, SynclineError
from syncline.layout import VALUE_BYTES, Bucket, Payload, Values
from syncline.messages import (
    COORDINATOR,
    PAYLOAD,
    BucketCopy,
    CopyReport,
    CopyRequest,
    Handover,
    Message,
    Moved,
    NodeId,
    Params,
    Pull,
    Push,
    View,
    server_id,
    worker_id,
)
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.driver import Deciding, ObservedDriver, Observer
from syncline.nodes.protocol import Keeper
from syncline.nodes.staleness import condensed
from syncline.strategies.protocol import Job
from syncline.strategies.settings import strategy_in

FAR = 1 << 20
"""A pull may be at most this many iterations ahead of what the shard has closed."""

MOST_GUESTS = 128
"""How many workers may be connected that have never been in a view: they join, or left before this server joined."""

MOST_EARLY_WRITERS = 8
"""How many of them may send payloads, which costs memory for each. Only a view that is on its way here allows it."""

GIVER_SECONDS = 45.0
"""Seconds that a server waits for the view that says that another one is dead, before the run fails."""

LOG_SECONDS = 5.0
"""Seconds that a server waits for the view that says that its backup is dead, before it asks for another log."""

MOST_EARLY = 1 << 10
"""How many requests for buckets that are not known here yet may wait, in addition to one per bucket."""

_FROM_WORKERS = (Push, Pull, Seed)


class HeldModel:
    """The buckets of one model that this server holds."""

    def __init__(
        self,
        id: NodeId,
        begin: Begin,
        coordinator: Connection,
        trace: MessageTrace,
        out: Out,
        lose: Callable[[Connection, str], None],
        call: Callable[[HeldModel, int, Callable[[str], None]], None],
        later: Callable[[float, Callable[[], None]], None],
        drop: Callable[[Connection], None],
        checkpoints: str,
        run: str,
    ) -> None:
        """`call`: connect to another server (`givers` has it then), and call a function with the problem, or "".

        `later`: call a function after this many seconds. `drop`: close a connection to another server. `checkpoints`:
        the folder for them. `run`: the identity of the run.
        """
        self.id = id
        self.name = begin.model
        self.coordinator = coordinator
        self.layout = layout_of(begin.tables)
        self.workers: dict[tuple[int, int], WorkerPeer] = {}
        self._out = out
        self._lose = lose
        self._trace = trace
        self._later = later
        self._begin = begin
        self._keeper: Keeper | None = None
        self._view = begin.view
        self.strategy = strategy_in(begin.settings)
        self._buckets = self.strategy.buckets(self.layout, begin.view.topology)
        shared = self.strategy.shared_folder
        self._saved = CheckpointFolder(checkpoints, id, begin.model, self.strategy.saved_state, shared, run)
        held = self.strategy.held_by(id.number, begin.view, self._buckets)
        self.restarted = begin.leader < 0 and id.number in self.strategy.servers_of(begin.view)
        """Whether another process was this server before."""
        if self.restarted and self.strategy.restores_servers:
            self._pieces = {}
        elif self.restarted:
            self._pieces = self._saved.read_first(held)
        else:
            self._pieces = {bucket: np.zeros(bucket.size, np.float32) for bucket in held}
        self._joins = begin.leader < 0 and not self.restarted
        if self._joins:
            self._saved.check_joined()
        self._unseeded = set() if self.restarted else set(self._pieces)
        self._first = FirstInbox(self._pieces if self._joins else {}, sorted(self.strategy.servers_of(begin.view)))
        self._first_wanted: list[Connection] = []
        """The connections of joining servers that wait for the initial parameters."""
        self.word = begin.word
        self.places: dict[int, NodeAddress] = dict(enumerate(begin.servers))
        self.givers: dict[int, Connection] = {}
        """The connections that this server has opened to other servers."""
        self._call = call
        self._meter = self.strategy.meter()
        self._inbox = HandoverInbox(id.number, begin.view.holders, self.strategy.memory_types)
        self._outbox = HandoverOutbox()
        lost = self._log_lost if self.strategy.has_backups else None
        self._mapped = MappedWorkers(out, later, self.strategy.passed_on) if self.strategy.has_backups else None
        self.links = ServerLinks(
            self.strategy, self.givers, out, partial(call, self), drop, self.layout.size, lost, self._mapped
        )
        self.links.adopt(self._linked(begin.view))
        self._early: list[Received] = []
        """Messages of other servers that wait for the initial parameters."""
        self.handled = 0
        """How many events the node has handled."""
        self._owed: dict[tuple[int, int], list[tuple[Frame, Payload | None]]] = {}
        """Answers to members that are not connected yet."""
        self._rememberable = (*self.strategy.remembers, *self.strategy.reply_memory)
        self._remembered: dict[Bucket, dict[str, Values]] = {}
        """The rule's state from an earlier run."""
        self._cut = bucket_map_of(self.strategy.holders_for(id, begin.view, self._buckets))
        self._leader = next((each for each in begin.view.members if each.worker == begin.leader), None)
        self._views: list[View] = []
        self._members = {(each.worker, each.incarnation) for each in begin.view.members}
        self._ever = set(self._members)
        """All members of the views so far."""
        self._named = set(self._members)
        """The members whose first iteration is known."""
        self._reports: dict[tuple[tuple[int, int], Bucket], CopyReport] = {}
        """Reports on lost buckets that wait for the view that names these."""
        self._finished = False
        self._taken_over = 0
        """The buckets of dead servers that were mentioned."""
        self._restored = 0
        """The restored buckets that were mentioned."""
        self._pushed = 0
        self._pulled = 0
        if not self._unseeded:
            self._open()

    @property
    def is_open(self) -> bool:
        """Are the initial parameters complete?"""
        return self._keeper is not None

    def _open(self) -> None:
        """The initial parameters are complete: make the node, and handle the requests that have waited."""
        begin = self._begin
        draw = Draw(int(begin.settings["seed"]))
        job = Job(self.layout, draw, remote=True, own_workers=begin.own_workers, room=self.links.room)
        self._keeper = self._node(job)
        observers: list[Observer] = [self._trace] if self._trace.on else []
        if isinstance(self._keeper, Deciding):
            self._keeper.observe(self.id, self._meter)
        else:
            observers = [self._meter, *observers]
        self._driver = ObservedDriver(self.id, self._keeper, self, observers)
        for bucket, memory in self._remembered.items():
            for name, values in memory.items():
                self._keeper.remember(bucket, name, values)
        self._remembered.clear()
        views, self._views = self._views, []
        if self.strategy.announces and not self.restarted and not self._joins:
            self._handle(Received(COORDINATOR, begin.view))
        for view in views:
            self.see(view)
        early, self._early = self._early, []
        for event in early:
            self._handle(event)
        self._catch_up()
        self._give_first()

    def _node(self, job: Job) -> Keeper:
        """The node: fresh, from its checkpoints, or, if it joins and holds the model, without any."""
        number, view, pieces = self.id.number, self._begin.view, self._pieces
        if self.restarted:
            found = {bucket: self._saved.read(bucket) for bucket in pieces}
            saved = {bucket: save for bucket, save in found.items() if save is not None}
            return self.strategy.restored(number, job, view, pieces, saved)
        if self.strategy.saved_state is not None:
            self._saved.write_first(pieces)
        if self._joins and pieces:
            return self.strategy.restored(number, job, view, pieces, {})
        return self.strategy.keeper(number, job, view, pieces)

    @property
    def at_rest(self) -> bool:
        """Whether the node owes other servers nothing."""
        return self._keeper is not None and self._keeper.at_rest

    def is_member(self, peer: WorkerPeer) -> bool:
        return self._has_member(peer.who)

    def may_ask(self, peer: WorkerPeer) -> bool:
        """Is this worker a member, or about to be one?"""
        return peer.who in self._members

    def _has_member(self, who: tuple[int, int]) -> bool:
        return self._keeper is not None and who in self._named

    def see(self, view: View) -> None:
        """Adopt a view."""
        if self._keeper is None:
            self._views.append(view)
            return
        if view.view <= self._view.view:
            return
        self._view = view
        self._members = {(each.worker, each.incarnation) for each in view.members}
        self._ever |= self._members
        self._named = {(each.worker, each.incarnation) for each in view.members if each.first is not None}
        givers = self._inbox.adopt(view)
        self.links.adopt(self._linked(view))
        self._handle(Received(COORDINATOR, view))
        for bucket in [each for each in self._inbox.expected() if self._keeper.param(each) is not None]:
            self._inbox.arrived(bucket)  # this server stands in for a dead one, and had it
        if view.stand_ins:
            self._mention(self._keeper)
        cut = bucket_map_of(self.strategy.holders_for(self.id, view, self._buckets))
        if cut is not self._cut:
            self._cut = cut
            for peer in self.workers.values():
                self._forget_moved(peer)
        self._owed = {who: answers for who, answers in self._owed.items() if self._has_member(who)}
        for number in givers:
            self._call(self, number, partial(self._take_from, number))
        reports, self._reports = self._reports, {}
        for (who, _), report in reports.items():
            self._hear_report(worker_id(who[0]), report, who)
        self._catch_up()

    def _mention(self, keeper: Keeper) -> None:
        """Say what this server has taken over as a backup."""
        count = keeper.counts().taken_over
        if count > self._taken_over:
            say(f"{self.id}: took over {count - self._taken_over} buckets as the backup of a dead server")
            self._taken_over = count

    def _linked(self, view: View) -> frozenset[int]:
        """The servers to which this one may have messages of the strategy."""
        return self.strategy.servers_of(view).union(each.server for each in view.backups)

    def _take_from(self, number: int, problem: str) -> None:
        """Ask a server for the buckets that it must hand over, now that it is connected; `problem`: why it is not."""
        if problem:
            self._giver_failed(number, f"{self.id}: {problem}")
        else:
            self._out(self.givers[number], Take(self._inbox.view))

    def change(self, change: Change) -> None:
        """Change the sync model. The coordinator asks for that only after all have the initial parameters."""
        self._handle(change)

    def _forget_moved(self, peer: WorkerPeer) -> None:
        """Forget requests for buckets that have moved to another server, so that the worker may send them again."""
        me = self.id
        peer.asked = {name: asked for name, asked in peer.asked.items() if self._cut.holder.get(name) == me}

    # Other servers.

    def hear(self, number: int, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        """Another server has sent a message of the strategy, or asks for the buckets that now belong to it."""
        if isinstance(message, Laid | Lifted):
            self.links.on_memory(wire, message)
            return
        if isinstance(message, Message) and self.links.accepts(message):
            laid = self.links.laid(wire, message) if payload is None else None
            found = payload if laid is None else laid
            if found is None:
                found = self.links.read_in_place(message)
            event = self.links.received(number, message, found)
            if self._keeper is None:
                self._early.append(kept(event))
            else:
                self._handle(event)
            if laid is not None:
                self.links.lift(wire)
            return
        if isinstance(message, TakeFirst) and self.strategy.takes_servers:
            self._first_wanted.append(wire)
            self._give_first()
            return
        if not isinstance(message, Take):
            raise PeerError(f"it sent {type(message).__name__} instead of Take")
        self._outbox.ask(number, wire, message.view)
        self._deliver()

    def taker_lost(self, number: int, wire: Connection) -> None:
        self._outbox.forget(number, wire)
        self._first_wanted = [each for each in self._first_wanted if each is not wire]

    def giver_lost(self, number: int, reason: str) -> None:
        """The connection to a server has ended. If buckets were expected from it, they are lost, and the run fails."""
        self.givers.pop(number, None)
        if self.strategy.has_backups:
            self._log_lost(number)
        if self._first.lost(number):
            self.ask_first()
        if self._inbox.awaits(number):
            what = f"{server_id(number)} is gone before it handed over all its buckets{reason and ': ' + reason}"
            self._giver_failed(number, what)

    def _giver_failed(self, number: int, what: str) -> None:
        """A server does not hand over its buckets: the run fails, unless a view soon says that they are lost."""
        if not self.strategy.restores_servers:
            self._out(self.coordinator, Abort(what))
            return

        def check() -> None:
            if self._inbox.awaits(number):
                self._out(self.coordinator, Abort(what))

        self._later(GIVER_SECONDS, check)

    def _log_lost(self, number: int) -> None:
        """The connection to a server has ended: if no view soon names another log for it, its log has a gap."""
        then, me = self._view.view, self.id.number

        def check() -> None:
            view = self._view
            same = any((each.server, each.backup) == (me, number) and each.since <= then for each in view.backups)
            if self._keeper is not None and not self._finished and (same or view.view == then):
                self._handle(ServerLost(number))

        self._later(LOG_SECONDS, check)

    def _deliver(self) -> None:
        for wire, message, payload in self._outbox.due():
            self._out(wire, message, payload.data, lasting=True)

    def handover_sink(self, number: int, message: Frame, size: int) -> memoryview:
        if isinstance(message, First):
            self._first.check(number, message, size)
            return memoryview(bytearray(size))
        if not isinstance(message, Handover):
            raise PeerError(f"it sent {type(message).__name__} with a payload instead of a handover")
        self._inbox.check(number, message, size)
        return memoryview(bytearray(size))

    # The initial parameters, if this server joins.

    def ask_first(self) -> None:
        """Ask another server for the initial parameters, unless they are there or not needed."""
        self._first.ask(self.givers, self._out)

    @property
    def has_first(self) -> bool:
        return self._first.complete

    def take_first(self, number: int, message: First, payload: memoryview | None) -> None:
        """Another server has sent initial parameters; with the last of them the node begins."""
        self._first.take(number, message, payload)
        if self._first.complete:
            self._unseeded.clear()
            self._open()

    def _give_first(self) -> None:
        if self._keeper is not None:
            wanted, self._first_wanted = self._first_wanted, []
            give_first(wanted, self._pieces, self._out)

    # Handovers.

    def take_over(self, number: int, message: Frame, payload: memoryview | None) -> None:
        """A handover has arrived; `handover_sink` has checked it if it has a payload."""
        if not isinstance(message, Handover) or payload is None:
            raise PeerError(f"it sent {type(message).__name__} instead of a handover with a payload")
        self._handle(Received(server_id(number), message, np.frombuffer(payload, np.uint8)))
        self._inbox.arrived(message.bucket)
        self._catch_up()

    def enter(self, peer: WorkerPeer) -> None:
        """A worker has connected: send it the answers that were kept for it."""
        if peer.who not in self._ever and len(self._guests()) >= MOST_GUESTS:
            raise PeerError(f"{MOST_GUESTS} workers are connected that have never been members")
        for other in [each for each in self.workers.values() if each.id == peer.id]:
            if other.incarnation < peer.incarnation:
                self._lose(other.wire, f"its incarnation {peer.incarnation} has connected")
        self.workers[peer.who] = peer
        if self._mapped is not None:
            self._mapped.enter(peer)
        for message, payload in self._owed.pop(peer.who, ()):
            self._answer(peer, message, payload)

    def leave(self, peer: WorkerPeer) -> None:
        """A worker's connection has ended."""
        self.workers.pop(peer.who, None)
        if self._mapped is not None:
            self._mapped.leave(peer)

    def _guests(self) -> list[WorkerPeer]:
        """The connected workers that have never been in a view."""
        return [each for each in self.workers.values() if each.who not in self._ever]

    def _check_guest(self, peer: WorkerPeer, message: Push | Seed) -> None:
        """Raise `PeerError` if this worker, which has never been in a view, may not send a payload."""
        early = isinstance(message, Push) and message.view > self._view.view
        if not early or sum(each.wrote for each in self._guests()) >= MOST_EARLY_WRITERS:
            raise PeerError(f"it sent {type(message).__name__} with a payload before it was a member")

    def _catch_up(self) -> None:
        """Handle the requests that have waited; close the connection of a worker whose request is invalid."""
        for peer in list(self.workers.values()):
            early, peer.early = peer.early, []
            reads, peer.reads = peer.reads, []
            try:
                for message in early:
                    self._request(peer, message)
                for read in reads:
                    self._read(peer, read)
            except PeerError as error:
                self._lose(peer.wire, str(error))

    # Workers.

    def sink(self, peer: WorkerPeer, message: Frame, size: int) -> memoryview:
        """Return memory for the payload of this message, or raise `PeerError`."""
        if isinstance(message, BucketCopy):
            return self._copy_sink(peer, message, size)
        if peer.shared or not isinstance(message, Push | Seed):
            raise PeerError(f"it sent {type(message).__name__} with a payload")
        bucket = message.bucket
        if not peer.wrote and peer.who not in self._ever:
            self._check_guest(peer, message)
        self._check(peer, message, True)
        peer.wrote = True
        written = message.size if isinstance(message, Push) else 0
        if size != (written or bucket.size * VALUE_BYTES):
            raise PeerError(f"it sent {type(message).__name__} of {bucket} with a payload of {size:,} bytes")
        return peer.memory.update(bucket).data.cast("B")[:size]

    def _check(self, peer: WorkerPeer, message: Push | Pull | Seed, carried: bool) -> None:
        """Raise `PeerError` if this worker may not send this message now."""
        if message.bucket not in self._cut.holder:
            self._check_name(peer, message)
        if isinstance(message, Seed):
            if not self._awaits(peer, message.bucket):
                raise PeerError(f"it sent initial values of {message.bucket}, which are not expected from it")
            if message.memory and message.memory not in self._rememberable:
                raise PeerError(f"it sent {message.memory!r}, which is not part of this rule's state")
        elif message.incarnation != peer.incarnation:
            problem = f"with incarnation {message.incarnation} instead of {peer.incarnation}"
            raise PeerError(f"it sent {type(message).__name__} {problem}")
        elif peer.asked.get(message.bucket, message.progress) != message.progress:
            raise PeerError(f"it sent {type(message).__name__} of {message.bucket} before the last was answered")
        if isinstance(message, Push):
            check_push(message)
        carries = not peer.shared and (isinstance(message, Seed) or (isinstance(message, Push) and not message.empty))
        if carried != carries:
            raise PeerError(f"it sent {type(message).__name__} {'with' if carried else 'without'} a payload")

    def _check_name(self, peer: WorkerPeer, message: Push | Pull | Seed) -> None:
        """Raise `PeerError` unless this can be a bucket of an earlier view, or of a later one that the worker knows."""
        name, cut = message.bucket, self._cut
        view = -1 if self._keeper is None else self._view.view
        if name.start >= name.stop or isinstance(message, Seed):
            raise PeerError(f"it named {name}, which is not a bucket of this model")
        if not cut.is_row(name) and (message.view <= view or cut.around(name) is None):
            raise PeerError(f"it named {name}, which is not a bucket of this model")
        if len(peer.asked) > len(cut.holder) + MOST_EARLY:
            raise PeerError("it sent too many requests for buckets that are not known yet")

    def _awaits(self, peer: WorkerPeer, bucket: Bucket) -> bool:
        leader = self._leader
        return leader is not None and peer.who == (leader.worker, leader.incarnation) and bucket in self._unseeded

    # Lost buckets.

    def _check_member(self, peer: WorkerPeer, message: CopyReport | BucketCopy) -> None:
        """Raise `PeerError` unless this worker may send messages about this bucket."""
        if not self.may_ask(peer) or message.incarnation != peer.incarnation:
            raise PeerError(f"it sent {type(message).__name__}, which only a member may send")
        if message.bucket not in self._cut.holder:
            raise PeerError(f"it named {message.bucket}, which is not a bucket of this model")

    def _copy_sink(self, peer: WorkerPeer, copy: BucketCopy, size: int) -> memoryview:
        self._check_member(peer, copy)
        if size != copy.bucket.size * VALUE_BYTES:
            raise PeerError(f"it sent a copy of {copy.bucket} with a payload of {size:,} bytes")
        peer.copy = np.empty(copy.bucket.size, np.float32)
        return peer.copy.data.cast("B")

    def _hear_report(self, source: NodeId, report: CopyReport, who: tuple[int, int]) -> None:
        if report.view > self._view.view or self._keeper is None:
            self._reports[who, report.bucket] = report
        else:
            self._handle(Received(source, report))

    def _take_copy(self, peer: WorkerPeer, copy: BucketCopy) -> None:
        values, peer.copy = peer.copy, None
        if values is None or self._keeper is None:
            raise PeerError(f"it sent a copy of {copy.bucket} without values")
        self._handle(Received(peer.id, copy, values))
        counts = self._keeper.counts()
        if counts.restored > self._restored and not counts.restoring:
            lost = f"; up to {counts.lost} updates of buckets are lost" if counts.lost else ""
            say(f"{self.id}: {counts.restored - self._restored} buckets were restored from the workers' copies{lost}")
            self._restored = counts.restored

    def frame(self, peer: WorkerPeer, message: Frame, carried: bool) -> None:
        """Handle a worker's frame; `carried`: it has a payload, and `sink` has checked it."""
        if isinstance(message, CopyReport) and not carried:
            self._check_member(peer, message)
            self._hear_report(peer.id, message, peer.who)
        elif isinstance(message, BucketCopy):
            self._take_copy(peer, message)
        elif isinstance(message, _FROM_WORKERS):
            if not carried:
                self._check(peer, message, False)
            if isinstance(message, Seed):
                self._seed(peer, message)
            else:
                peer.asked[message.bucket] = message.progress
                self._request(peer, message)
        elif isinstance(message, Read) and self._keeper is not None:
            if len(peer.reads) > len(self._cut.holder):
                raise PeerError("it sent more reads than there are buckets")
            self._read(peer, message)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a worker may not send now")

    def _seed(self, peer: WorkerPeer, seed: Seed) -> None:
        bucket = seed.bucket
        if seed.memory:
            self._remembered.setdefault(bucket, {})[seed.memory] = peer.memory.update(bucket).copy()
            self._out(peer.wire, Noted(bucket))
            return
        self._pieces[bucket][:] = peer.memory.update(bucket)
        self._unseeded.discard(bucket)
        if not self._unseeded:
            self._open()

    def _request(self, peer: WorkerPeer, message: Push | Pull) -> None:
        if self._keeper is None:
            peer.early.append(message)
            return
        if isinstance(message, Pull):
            closed = self._keeper.counts().progress
            if not -1 <= message.progress < closed + FAR:
                raise PeerError(f"it sent a pull for iteration {message.progress}, and only {closed} are closed")
        payload: Payload | None = None
        if isinstance(message, Push) and not message.empty:
            payload = peer.memory.update(message.bucket)
            if message.size:
                payload = payload.view(np.uint8)[: message.size]
            self._pushed += payload.nbytes
        self._handle(Received(peer.id, message, payload))

    def _read(self, peer: WorkerPeer, read: Read) -> None:
        assert self._keeper is not None
        bucket, name = read.bucket, read.memory
        held, view = self._keeper.param(bucket), self._view.view
        if read.view > view or bucket in self._inbox:
            peer.reads.append(read)
            return
        if held is None:
            if not self._cut.is_row(bucket) or read.view == view:
                raise PeerError(f"it asked for {bucket}, which this server does not hold")
            self._out(peer.wire, Moved(view, peer.incarnation, -1, bucket))
            return
        if not name:
            self._give(peer, Whole(bucket), held, peer.memory.param(bucket))
        elif name in self._rememberable:
            self._give(peer, Whole(bucket, name), self._keeper.remembered(bucket)[name], peer.memory.update(bucket))
        else:
            raise PeerError(f"it asked for {name!r}, which is not part of this rule's state")

    # The node.

    def _handle(self, event: Event) -> None:
        self.handled += 1
        self._driver.tell(event, monotonic())

    def send(self, me: NodeId, send: Send) -> None:
        to, message, payload = send.to, send.message, send.payload
        if to.role == "coordinator":
            self._out(self.coordinator, message)
        elif type(message) is Handover:
            self._hand_over(to.number, message, payload)
        elif to.role == "server":
            self.links.send(to.number, message, payload)
        else:
            who = (to.number, message.incarnation)  # type: ignore[attr-defined]
            peer = self.workers.get(who)
            if type(message) is CopyRequest:
                if peer is not None:  # else a view without it is on its way
                    self._out(peer.wire, message)
            elif peer is not None:
                self._answer(peer, message, payload)
            elif self._has_member(who):
                self._owed.setdefault(who, []).append((message, None if payload is None else payload.copy()))

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        raise SynclineError(f"a server has no application, so it cannot deliver {deliver}")

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        self._later(timer.seconds, lambda: self._handle(Timer(timer.key)))

    def save(self, me: NodeId, save: Save) -> None:
        try:
            self._saved.write(save)
        except RunError as error:
            self._out(self.coordinator, Abort(f"{self.id}: {error}"))
            return
        self._later(0.0, lambda: self._handle(Saved(save.bucket, save.serial)))

    def load(self, me: NodeId, load: Load) -> None:
        try:
            found = self._saved.read(load.bucket, server_id(load.server))
        except RunError as error:
            self._out(self.coordinator, Abort(f"{self.id}: {error}"))
            return
        state, payload = (None, None) if found is None else (found.state, found.payload)
        self._later(0.0, lambda: self._handle(Loaded(load.bucket, load.server, state, payload)))

    def reject(self, me: NodeId, reject: Reject) -> None:
        for peer in [each for each in self.workers.values() if each.id == reject.peer]:
            self._lose(peer.wire, reject.reason)

    def fail(self, me: NodeId, fail: Fail) -> None:
        """The node cannot restore a bucket."""
        self._out(self.coordinator, Abort(f"{self.id}: {fail.error}"))

    def _hand_over(self, server: int, message: Handover, payload: Payload | None) -> None:
        assert payload is not None
        if bucket_map_of(self._view.holders).holder.get(message.bucket) != server_id(server):
            return  # the receiver has died since then
        if payload.nbytes > PAYLOAD:
            what = f"{message.bucket} cannot move: it takes {payload.nbytes:,} bytes with the updates that wait in it"
            self._out(self.coordinator, Abort(what))
            return
        self._outbox.put(server, message, payload)
        self._deliver()

    def _answer(self, peer: WorkerPeer, message: Frame, payload: Payload | None) -> None:
        bucket = message.bucket  # type: ignore[union-attr]
        peer.asked.pop(bucket, None)
        if payload is None:
            self._out(peer.wire, message)
        else:
            if message.progress >= 0:  # type: ignore[union-attr]  # initial parameters are not counted
                self._pulled += payload.nbytes
            place: Payload = peer.memory.param(bucket)
            if payload.dtype != place.dtype:
                place = place.view(payload.dtype)[: payload.size]
            self._give(peer, message, payload, place)

    def _give(self, peer: WorkerPeer, message: Frame, values: Payload, place: Payload) -> None:
        """Send values to a worker: write them to this place in shared memory, or send them over the connection."""
        if peer.shared:
            if type(message) is Params:
                peer.memory.mark(message.bucket)
            place[:] = values
            self._out(peer.wire, message)
        else:
            self._out(peer.wire, message, values.data)

    def finish(self) -> Figures | None:
        """Close the trace, and return the counters if training began."""
        self._finished = True
        self._trace.close()
        keeper = self._keeper
        if keeper is None:
            return None
        counts = keeper.counts()
        return Figures(
            self.id.number,
            counts.updates,
            counts.dropped,
            self._meter.delayed_pulls,
            counts.progress,
            self._pushed,
            self._pulled,
            self.name,
            not keeper.params(),
            counts.pushes_skipped,
            counts.fetches_skipped,
            self._trace.lost,
            condensed(counts.staleness),
            restored_buckets=counts.restored,
            lost_updates=counts.lost,
        )
