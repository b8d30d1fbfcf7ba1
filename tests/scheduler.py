"""Random schedules without time: real nodes, messages in flight, and a script that decides what happens next.

The transport may deliver messages in any order and more than once. If workers have patience (they send again after a
timeout), it may also lose a push, a pull or an answer. It never loses a view, a report, a join, a leave or a handover.
It delivers the messages of one node to the coordinator in order, including the news of its death.

Servers can be killed (`Setup.mortal`). Then a worker's memory is given back when the worker gets its answer, not when
the server sends it, because the answer may be lost with the server. Whenever a bucket is restored, it must contain what
any live member has read of it.

To check exactly-once, each (worker, incarnation, iteration) owns a coordinate of every block. Its update is 1 there and
0 elsewhere, and the rule `Count` adds 1 wherever an update is not zero. `Ledger` checks one shard by the messages that
it receives and sends, and knows the expected parameters after every step. As soon as a push is answered, its memory is
filled with NaN.

A worker's application keeps using the buckets that it started with, even if buckets move.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ledger import Books, Ledger, contains, was_dropped
from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import (
    Admit,
    Change,
    Deliver,
    Depart,
    Dismiss,
    Enter,
    Event,
    Fail,
    How,
    Lost,
    Ready,
    Received,
    Restarted,
    Send,
    ServerLost,
    SetTimer,
    Timer,
)
from syncline.errors import UsageError
from syncline.gates import Always, Gate
from syncline.layout import Bucket, Layout, Payload, Values, buckets, within
from syncline.messages import (
    COORDINATOR,
    Gone,
    Member,
    Message,
    Moved,
    NodeId,
    Params,
    Pull,
    Push,
    Taken,
    View,
    server_id,
    worker_id,
)
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.server.bucket import HeldBucket
from syncline.nodes.server.coordinator import Coordinator, Replace
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Phase, Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.placement import Elastic, Placement, checked, replaced
from syncline.rules import Memory, Rule
from syncline.sync import Bsp, Release, SyncModel

WORKERS = 6
INCARNATIONS = 3
MOST_SERVERS = 5
PATIENCE_LIMIT = 20_000


@dataclass(frozen=True)
class Count:
    """A rule that counts in `params` how often each coordinate was updated."""

    of_gradients = True
    keeps = True

    def start(self, params: Values) -> Memory:
        return {}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        params += update != 0


@dataclass(frozen=True)
class Setup:
    """The settings of the run on which a script is played."""

    models: tuple[SyncModel, ...] = (Bsp(), Bsp())
    release: Release = Release.LAZY
    workers: int = 3
    buckets: int = 2
    target: int = 4
    gate: Gate = field(default_factory=Always)
    rule: Rule = field(default_factory=lambda: Count())
    patience: float | None = 1.0
    window: int | None = None
    seed: int = 0
    blocks: int = 1
    """How often a bucket repeats the coordinates. A piece of at least one block contains all of them."""
    placement: Placement | None = None
    """None: buckets are assigned to servers in turn; when servers join or leave, elastic is used."""
    mortal: bool = False
    """Whether servers can be killed."""


# A script is a list of these actions. Numbers are taken modulo the number of candidates, so every script can be played.


@dataclass(frozen=True)
class Arrive:
    """The k-th message in flight arrives."""

    k: int


@dataclass(frozen=True)
class Repeat:
    """The k-th message in flight is duplicated."""

    k: int


@dataclass(frozen=True)
class Lose:
    """The k-th message in flight is lost, if it is a push, a pull or an answer, and workers have patience."""

    k: int


@dataclass(frozen=True)
class Work:
    """A worker finishes the k-th of the buckets that it has not pushed yet."""

    worker: int
    k: int


@dataclass(frozen=True)
class Rush:
    """A worker finishes `steps` buckets, and all messages in flight to and from it arrive immediately."""

    worker: int
    steps: int


@dataclass(frozen=True)
class Tick:
    """A timer of a worker expires."""

    worker: int


@dataclass(frozen=True)
class Ring:
    """The k-th timer of the servers expires."""

    k: int


@dataclass(frozen=True)
class Crash:
    """A worker crashes; bit j of `keep` says whether its j-th message in flight still arrives."""

    worker: int
    keep: int


@dataclass(frozen=True)
class Freeze:
    """A worker freezes; incoming messages are held."""

    worker: int


@dataclass(frozen=True)
class Wake:
    """A frozen worker continues."""

    worker: int


@dataclass(frozen=True)
class Declare:
    """A crashed or frozen worker is declared dead."""

    worker: int


@dataclass(frozen=True)
class Restart:
    """A worker that crashed, froze or failed starts again as its next incarnation."""

    worker: int


@dataclass(frozen=True)
class Enlist:
    """A new worker joins."""


@dataclass(frozen=True)
class Quit:
    """A worker leaves."""

    worker: int


@dataclass(frozen=True)
class Switch:
    """A shard changes to another sync model."""

    shard: int
    model: SyncModel
    release: Release | None = None


@dataclass(frozen=True)
class Grow:
    """A new server is admitted; it gets the sync model of the first server."""


@dataclass(frozen=True)
class Shrink:
    """The k-th server is dismissed, unless it is the last."""

    k: int


@dataclass(frozen=True)
class Kill:
    """The k-th live server is killed; bit j of `keep` says whether its j-th message in flight still arrives."""

    k: int
    keep: int


@dataclass(frozen=True)
class Bury:
    """The k-th dead server is declared lost for good, unless it is the last one."""

    k: int


@dataclass(frozen=True)
class Revive:
    """The k-th dead server is started again, without anything that it held."""

    k: int


Action = (
    Arrive
    | Repeat
    | Lose
    | Work
    | Rush
    | Tick
    | Ring
    | Crash
    | Freeze
    | Wake
    | Declare
    | Restart
    | Enlist
    | Quit
    | Switch
    | Grow
    | Shrink
    | Kill
    | Bury
    | Revive
)


@dataclass(eq=False)
class Flight:
    """A message in flight."""

    source: NodeId
    to: NodeId
    message: Message
    payload: Payload | None = None


@dataclass(eq=False)
class Process:
    """One incarnation of a worker, with its application and its memory."""

    node: Worker
    buffers: dict[Bucket, Values]
    filled: dict[Bucket, int] = field(default_factory=dict)
    todo: list[Bucket] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    inbox: list[Flight] = field(default_factory=list)
    news: list[int] = field(default_factory=list)
    """The servers that have died while it was frozen."""
    delivered: set[tuple[Bucket, int]] = field(default_factory=set)
    left: int = 0
    """The number of values that must still be delivered before the iteration is complete."""
    borrowed: list[Payload] = field(default_factory=list)
    sent: dict[Bucket, tuple[int, Payload]] = field(default_factory=dict)
    empty: set[tuple[Bucket, int]] = field(default_factory=set)
    given: set[tuple[Bucket, int]] = field(default_factory=set)
    """The updates that the application has handed to the node."""
    iteration: int = 0
    pulled: int | None = None
    copies: Values | None = None
    """What this worker has read last, if servers can be killed."""
    alive: bool = True
    frozen: bool = False
    failed: bool = False
    finished: bool = False

    @property
    def moves(self) -> bool:
        return self.alive and not self.frozen

    @property
    def gone(self) -> bool:
        return self.node.phase is Phase.GONE

    @property
    def may_work(self) -> bool:
        return self.moves and bool(self.todo) and self.node.phase is Phase.RUNNING

    @property
    def name(self) -> str:
        return f"worker {self.node.number}.{self.node.incarnation}"


class Schedule:
    """Nodes, messages in flight, and the actions on them."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now = 0.0
        self.block = WORKERS * INCARNATIONS * setup.target
        size = self.block * setup.blocks
        shards = len(setup.models)
        names = [Bucket(size * n, size * (n + 1)) for n in range(shards * setup.buckets)]
        layout = Layout.of([(f"t{n}", (size,)) for n in range(len(names))])
        holders = tuple(tuple(names[n::shards]) for n in range(shards))
        if setup.placement is not None:
            ranges = checked(setup.placement, layout, shards)
            holders = tuple(buckets(layout, each, size) for each in ranges)
            names = sorted(bucket for each in holders for bucket in each)
        view = View(1, tuple(Member(n, 0, 0) for n in range(setup.workers)), holders)
        draw = Draw(setup.seed)
        self.parts = WorkerParts(
            layout, draw, gate=setup.gate, patience=setup.patience, window=setup.window, recovers=setup.mortal
        )
        self.names = names
        placement = setup.placement or Elastic()
        self.coordinator = self._make_coordinator(
            view, lambda held, servers: replaced(placement, layout, held, servers)
        )
        self.books = Books()
        self.ledgers = [self._shard(number, view, setup.models[number], setup.release) for number in range(shards)]
        self.dead: set[int] = set()
        """The servers that were killed, and are neither declared lost nor started again."""
        self.lost: set[int] = set()
        """The servers that were declared lost."""
        self.over = False
        """Whether nobody has a copy of what was lost, so that the run has failed."""
        self.flights: list[Flight] = []
        self.timers: list[tuple[float, Ledger, Timer]] = []
        """(when it expires, the shard that set it, the event)."""
        self.processes: dict[tuple[int, int], Process] = {}
        self.latest: dict[int, Process] = {}
        for number in range(setup.workers):
            self._start(number, 0, view)

    def _make_coordinator(self, view: View, replace: Replace) -> Coordinator:
        return Coordinator(view, replace)

    def _shard(self, number: int, view: View, model: SyncModel, release: Release) -> Ledger:
        held = view.holders[number] if number < len(view.holders) else ()
        pieces = {name: np.zeros(name.size, np.float32) for name in held}
        shard = Shard(number, pieces, self._terms(model, release), view)
        return Ledger(shard, view, self.books, self.parts.draw)

    def _terms(self, model: SyncModel, release: Release) -> ShardTerms:
        return ShardTerms(model, self.setup.rule, Dense(), self.parts.draw, release, recovers=self.setup.mortal)

    @property
    def living(self) -> list[Ledger]:
        """The live servers."""
        gone = self.dead | self.lost
        return [ledger for ledger in self.ledgers if ledger.shard.number not in gone]

    @property
    def held(self) -> list[HeldBucket]:
        return [bucket for ledger in self.living for bucket in ledger.shard.buckets.values()]

    def _start(self, number: int, incarnation: int, view: View) -> Process:
        buffers = {name: np.full(name.size, np.nan, np.float32) for name in self.names}
        process = Process(Worker(number, incarnation, self.parts, view), buffers, left=self.parts.layout.size)
        self.processes[number, incarnation] = self.latest[number] = process
        founder = process.node.phase is Phase.RUNNING
        process.copies = np.full(self.parts.layout.size, 0 if founder else np.nan, np.float32)
        if process.node.phase is Phase.RUNNING:
            process.todo = list(self.names)
        else:
            self._tell(process, Enter())
        return process

    # Playing.

    def play(self, script: Sequence[Action]) -> None:
        """Perform the script, then deliver everything that is left in a fair order until nothing is in flight."""
        for action in script:
            if not self.over:
                self.act(action)
        if not self.over:
            self.settle()

    def act(self, action: Action) -> None:
        match action:
            case Arrive(k) if self.flights:
                self._arrive(self.flights[k % len(self.flights)])
            case Repeat(k) if self._uncertain():
                flight = self._uncertain()[k % len(self._uncertain())]
                self.flights.append(Flight(flight.source, flight.to, flight.message, self._copy(flight)))
            case Lose(k) if self._uncertain() and self.setup.patience is not None:
                self.flights.remove(self._uncertain()[k % len(self._uncertain())])
            case Ring(k) if self.timers:
                self._ring(k % len(self.timers))
            case Switch(number, model, release):
                ledger = self.ledgers[number % len(self.ledgers)]
                if ledger in self.living:
                    self._at_shard(ledger, Change(model, release))
            case Kill(k, keep) if self.setup.mortal and self.living:
                self._kill(self.living[k % len(self.living)], keep)
            case Bury(k) if self.dead:
                self._bury(sorted(self.dead)[k % len(self.dead)])
            case Revive(k) if self.dead:
                self._revive(sorted(self.dead)[k % len(self.dead)])
            case Grow() if len(self.coordinator.servers) < MOST_SERVERS:
                self._grow()
            case Shrink(k) if len(self.coordinator.servers) > 1:
                servers = sorted(self.coordinator.servers)
                self._at_coordinator(Dismiss(servers[k % len(servers)]))
            case Enlist() if len(self.latest) < WORKERS:
                self._start(max(self.latest) + 1, 0, self.coordinator.view)
            case Work() | Rush() | Tick() | Crash() | Freeze() | Wake() | Declare() | Restart() | Quit():
                self._befall(self.latest[action.worker % len(self.latest)], action)

    def _grow(self) -> None:
        terms = self.ledgers[min(self.coordinator.servers)].shard.terms
        number = len(self.ledgers)
        self.ledgers.append(self._shard(number, self.coordinator.view, terms.model, terms.release))
        self._at_coordinator(Admit(number))

    def _kill(self, ledger: Ledger, keep: int) -> None:
        me = server_id(ledger.shard.number)
        self.dead.add(me.number)
        mine = [each for each in self.flights if each.source == me and each.to != COORDINATOR]
        gone = {id(each) for j, each in enumerate(mine) if not keep >> j & 1}
        self.flights = [each for each in self.flights if id(each) not in gone and each.to != me]
        self.timers = [each for each in self.timers if each[1] is not ledger]

    def _bury(self, number: int) -> None:
        self._hear_last(server_id(number))
        self._spread(number)
        try:
            self._at_coordinator(ServerLost(number))
        except UsageError:
            self._revive(number)
        else:
            self.dead.discard(number)
            self.lost.add(number)

    def _spread(self, number: int) -> None:
        """The workers notice that a server is dead."""
        for process in self.processes.values():
            if process.frozen:
                process.news.append(number)
            elif process.alive:
                self._tell(process, ServerLost(number))

    def _revive(self, number: int) -> None:
        self._hear_last(server_id(number))
        self._spread(number)
        self.flights = [each for each in self.flights if each.source != server_id(number)]
        terms = self.ledgers[number].shard.terms
        self.ledgers[number] = self._empty(number, self._terms(terms.model, terms.release))
        self.dead.discard(number)
        self._at_coordinator(Restarted(number, 1))

    def _empty(self, number: int, terms: ShardTerms) -> Ledger:
        """A server that has started again."""
        view = self.coordinator.view
        return Ledger(Shard(number, {}, terms, view), view, self.books, self.parts.draw)

    def _hear_last(self, me: NodeId) -> None:
        """The coordinator gets what this node has sent to it."""
        for flight in [each for each in self.flights if (each.source, each.to) == (me, COORDINATOR)]:
            self._arrive(flight)

    def _befall(self, process: Process, action: Action) -> None:
        match action:
            case Work(k=k) if process.may_work:
                self._finish(process, k)
            case Rush(steps=steps):
                self._rush(process, steps)
            case Tick() if process.moves and process.timers:
                self._tell(process, process.timers.pop(0))
            case Crash(keep=keep) if process.alive and not process.gone:
                self._crash(process, keep)
            case Freeze() if process.alive and not process.gone:
                process.frozen = True
            case Wake():
                for each in self.processes.values():
                    if each.node.number == process.node.number:
                        self._wake(each)
            case Declare() if not process.moves:
                self._declare(process)
            case Restart() if not process.moves or process.gone:
                if process.node.incarnation + 1 < INCARNATIONS:
                    self._start(process.node.number, process.node.incarnation + 1, self.coordinator.view)
            case Quit() if process.moves and process.node.phase is Phase.RUNNING:
                self._tell(process, Depart())

    def _finish(self, process: Process, k: int) -> None:
        """The application hands over one more update, in the worker's own memory."""
        node = process.node
        bucket = process.todo.pop(k % len(process.todo))
        buffer = process.buffers[bucket]
        buffer.fill(0)
        buffer[self._own(bucket, node, node.progress)] = 1
        process.filled[bucket] = node.progress
        process.given.add((bucket, node.progress))
        process.sent = {name: sent for name, sent in process.sent.items() if not contains(bucket, name)}
        self._tell(process, Ready(bucket, buffer, params=np.ones_like(buffer)))

    def _own(self, bucket: Bucket, node: Worker, i: int) -> slice:
        """The place of the coordinate of a worker's iteration in this bucket."""
        assert i < self.setup.target
        coordinate = (node.number * INCARNATIONS + node.incarnation) * self.setup.target + i
        return slice((coordinate - bucket.start) % self.block, None, self.block)

    def _rush(self, process: Process, steps: int) -> None:
        me = worker_id(process.node.number)
        for _ in range(steps):
            if process.may_work:
                self._finish(process, 0)
            for flight in [each for each in self.flights if me in (each.source, each.to)]:
                self._arrive(flight)
            for flight in [each for each in self.flights if each.to == me]:
                self._arrive(flight)

    def _crash(self, process: Process, keep: int) -> None:
        process.alive = process.frozen = False
        me, incarnation = worker_id(process.node.number), process.node.incarnation
        mine = [
            each
            for each in self.flights
            if each.source == me and isinstance(each.message, Push | Pull) and each.message.incarnation == incarnation
        ]
        gone = {id(each) for j, each in enumerate(mine) if not keep >> j & 1}
        self.flights = [each for each in self.flights if id(each) not in gone]

    def _wake(self, process: Process) -> None:
        process.frozen = False
        news, process.news = process.news, []
        for number in news:
            self._tell(process, ServerLost(number))
        inbox, process.inbox = process.inbox, []
        for flight in inbox:
            self._hand(process, flight)

    def _declare(self, process: Process) -> None:
        self._hear_last(worker_id(process.node.number))
        self._at_coordinator(Lost(process.node.number, process.node.incarnation))

    # Messages.

    def _uncertain(self) -> list[Flight]:
        """The messages that may be lost or duplicated; nobody repeats what the coordinator sends."""
        kinds = Push | Pull | Params | Taken | Gone | Moved
        return [each for each in self.flights if each.source != COORDINATOR and isinstance(each.message, kinds)]

    def _copy(self, flight: Flight) -> Payload | None:
        """Copy an answer's payload; a push's payload stays the worker's memory."""
        own = flight.payload is not None and isinstance(flight.message, Params)
        return flight.payload.copy() if own else flight.payload

    def _arrive(self, flight: Flight) -> None:
        if not any(each is flight for each in self.flights):
            return
        if flight.to == COORDINATOR:
            flight = next(each for each in self.flights if (each.source, each.to) == (flight.source, flight.to))
        self.flights = [each for each in self.flights if each is not flight]
        if flight.to == COORDINATOR:
            self._at_coordinator(Received(flight.source, flight.message))
        elif flight.to.role == "server":
            self._at_shard(self.ledgers[flight.to.number], Received(flight.source, flight.message, flight.payload))
        else:
            for (number, _), process in list(self.processes.items()):
                if number == flight.to.number and process.alive:
                    self._hand(process, Flight(flight.source, flight.to, flight.message, self._copy(flight)))

    def _hand(self, process: Process, flight: Flight) -> None:
        if process.frozen:
            process.inbox.append(flight)
        else:
            self._tell(process, Received(flight.source, flight.message, flight.payload))

    def _send(self, source: NodeId, send: Send) -> None:
        flight = Flight(source, send.to, send.message, send.payload)
        flight.payload = self._copy(flight)
        if send.to.role != "server" or send.to.number not in self.dead | self.lost:
            self.flights.append(flight)

    # Nodes.

    def _at_coordinator(self, event: Event) -> None:
        self.now += 1
        before = {member.worker: member for member in self.coordinator.view.members}
        for effect in self.coordinator.handle(event, self.now):
            assert isinstance(effect, Send)
            self._send(COORDINATOR, effect)
        self.books.lose(self.coordinator.view)
        for member in self.coordinator.view.members:
            if member.first is not None and before.get(member.worker, member).first is None:
                away = [account.v for account in self.books.transit.values()]
                highest = max([*away, *(bucket.v for bucket in self.held)], default=0)
                assert member.first >= highest, f"{member} starts in a closed round, V is {highest}"

    def _at_shard(self, ledger: Ledger, event: Event) -> None:
        self.now += 1
        restored = ledger.shard.tally.restored
        effects = ledger.step(event, self.now)
        if ledger.shard.tally.restored > restored:
            self._check_copy(event.message.bucket, event.payload)
        for effect in effects:
            if isinstance(effect, Fail):
                assert not self._anybody_has_copies(), effect.error
                self.over = True
                return
            if isinstance(effect, SetTimer):
                self.timers.append((self.now + effect.seconds, ledger, Timer(effect.key)))
                continue
            assert isinstance(effect, Send), effect
            self._send(server_id(ledger.shard.number), effect)
            answer = isinstance(effect.message, Params | Taken | Gone)
            if effect.to.role == "worker" and answer and not self.setup.mortal:
                process = self.processes[effect.to.number, effect.message.incarnation]
                self._give_back(process, effect.message.bucket, effect.message.progress)

    def _members_alive(self) -> list[Process]:
        members = {(each.worker, each.incarnation) for each in self.coordinator.view.members if each.first is not None}
        return [each for who, each in self.processes.items() if each.alive and not each.gone and who in members]

    def _anybody_has_copies(self) -> bool:
        return any(np.isfinite(each.copies).all() for each in self._members_alive())

    def _check_copy(self, bucket: Bucket, restored: Values) -> None:
        """Check that a restored bucket contains all that any live member has read of it."""
        for process in self._members_alive():
            read = process.copies[bucket.start : bucket.stop]
            assert not (read > restored).any(), f"{process.name} has read more of {bucket} than was restored"

    def _ring(self, k: int) -> None:
        due, ledger, timer = self.timers.pop(k)
        self.now = max(self.now, due)
        self._at_shard(ledger, timer)

    def _give_back(self, process: Process, bucket: Bucket, progress: int) -> None:
        """A push was answered: the worker may reuse its memory, and overwrites it immediately."""
        memory = [(name, i, process.buffers[name]) for name, i in process.filled.items()]
        memory += [(name, *sent) for name, sent in process.sent.items()]
        for name, i, values in memory:
            if i == progress and contains(name, bucket):
                values[within(name, bucket)].fill(np.nan)

    def _tell(self, process: Process, event: Event) -> None:
        self.now += 1
        was_joining = process.node.phase is Phase.JOINING
        effects = process.node.handle(event, self.now)
        if was_joining and process.node.phase is Phase.RUNNING:
            process.iteration = process.pulled = process.node.progress
        for payload in process.borrowed:
            payload.fill(np.nan)
        process.borrowed.clear()
        for effect in effects:
            match effect:
                case Send(message=message, payload=payload):
                    if effect.of_copy:
                        own = process.copies[message.bucket.start : message.bucket.stop].copy()
                        assert np.isfinite(own).all(), f"{process.name} has no copy of {message.bucket}"
                        effect = Send(effect.to, message, own)
                    self._send(worker_id(process.node.number), effect)
                    if isinstance(message, Push) and payload is not None:
                        process.sent[message.bucket] = (message.progress, payload)
                    elif isinstance(message, Push):
                        process.empty.add((message.bucket, message.progress))
                case SetTimer(key):
                    process.timers.append(Timer(key))
                case Deliver():
                    self._deliver(process, effect)
                case Fail():
                    process.failed = True
                    process.todo.clear()

    def _deliver(self, process: Process, deliver: Deliver) -> None:
        node, i = process.node, process.iteration
        mark = (deliver.bucket, i)
        assert not any(
            j == i and other.start < deliver.bucket.stop and deliver.bucket.start < other.stop
            for other, j in process.delivered
        ), f"{process.name}: {mark} was delivered twice"
        process.delivered.add(mark)
        process.left -= deliver.bucket.size
        if deliver.payload is not None:
            assert np.isfinite(deliver.payload).all(), "a payload was delivered after it had been given back"
            self._check_own(process, deliver, i)
            process.borrowed.append(deliver.payload)
            if deliver.how is How.REPLACE:
                process.copies[deliver.bucket.start : deliver.bucket.stop] = deliver.payload
        if self.setup.mortal:
            self._give_back(process, deliver.bucket, i)
        if deliver.next is not None:
            late = any(key[:3] == (node.number, node.incarnation, i) for key in self.books.dropped)
            assert deliver.next == i + 1 or (late and deliver.next > i)
            assert process.left == 0, "an iteration is whole without a bucket"
            process.left = self.parts.layout.size
            process.iteration = deliver.next
            process.finished = deliver.next >= self.setup.target
            process.todo = [] if process.finished or node.phase is not Phase.RUNNING else list(self.names)

    def _check_own(self, process: Process, deliver: Deliver, i: int) -> None:
        """Check that the parameters in an answer contain the worker's own update, if accepted and not held back."""
        node = process.node
        key = (node.number, node.incarnation, i, deliver.bucket)
        empty = any(j == i and contains(name, deliver.bucket) for name, j in process.empty)
        if self._was_taken(*key) and not empty and isinstance(self.setup.gate, Always):
            mine = deliver.payload[self._own(deliver.bucket, node, i)]
            assert (mine == 1).all(), f"{key} reads no own update"

    def _was_taken(self, worker: int, incarnation: int, i: int, bucket: Bucket) -> bool:
        """True if this push, or one that contains it, was accepted."""
        asked = (worker, incarnation, i)
        return (*asked, bucket) in self.books.taken or any(
            key[:3] == asked and contains(key[3], bucket) for key in self.books.taken
        )

    # The end.

    def settle(self) -> None:
        """Deliver everything fairly until all live workers finish; finished workers leave when nothing else moves."""
        for process in list(self.processes.values()):
            if process.frozen:
                self._wake(process)
            if not process.alive:
                self._declare(process)
        for number in sorted(self.dead):
            self._bury(number)
        for _ in range(PATIENCE_LIMIT):
            if self.over:
                return
            if not self._move() and not self._nudge():
                break
        else:
            raise AssertionError("the schedule never gets quiet")
        for process in self.processes.values():
            self._check_end(process)
        self._check_placement()
        for process in self.processes.values():
            self._check_given(process)

    def _check_given(self, process: Process) -> None:
        """Check that all updates of a finished worker are applied, wait for their round, or are held back.

        A worker that crashed or was declared lost while it left is not checked: what it had held back was on its way
        and may be lost.
        """
        node = process.node
        cut_off = process.failed or (not process.alive and node.phase is Phase.LEAVING)
        late = any(key[:2] == (node.number, node.incarnation) for key in self.books.dropped)
        if not process.finished or cut_off or late:
            return
        if self.setup.mortal and not (process.alive and node.phase is Phase.RUNNING and self._fetches_all()):
            return
        accounts = {name: account for ledger in self.living for name, account in ledger.accounts.items()}
        for bucket, i in process.given:
            for piece in bucket_map_of(self.coordinator.view.holders).inside(bucket):
                account, mine = accounts[piece], self._own(piece, node, i)
                there = account.expected.copy()
                for coordinates in account.kept.values():
                    there[coordinates] += 1
                held = {} if node._gating is None else node._gating.held
                for name, (values, _) in held.items():  # a worker that is gone does not know later cuts
                    if contains(name, piece):
                        there += values[within(name, piece)] != 0
                assert (there[mine] == 1).all(), f"{process.name}: the update of iteration {i} is lost in {piece}"

    def _fetches_all(self) -> bool:
        """Whether all answers bring parameters; what is answered without them can be lost with a server."""
        return not getattr(self.setup.gate, "skips_fetches", True)

    def _check_placement(self) -> None:
        """Check that all moves are complete and every server holds the buckets that the last view assigns to it."""
        view = self.coordinator.view
        assert not self.coordinator.moving
        assert not self.books.transit
        assert {n for n, held in enumerate(view.holders) if held} == self.coordinator.servers
        for ledger in self.living:
            number = ledger.shard.number
            given = view.holders[number] if number < len(view.holders) else ()
            assert set(ledger.shard.buckets) == set(given)

    def _move(self) -> bool:
        if self.flights:
            self._arrive(self.flights[0])
            return True
        worker = next((each for each in self.processes.values() if each.may_work), None)
        if worker is not None:
            self._finish(worker, 0)
        return worker is not None

    def _nudge(self) -> bool:
        """Nothing is in flight: let timers expire; if that does not help, let the finished workers leave."""
        before = self._mark()
        for process in self.processes.values():
            timers, process.timers = process.timers, []
            for timer in timers:
                if process.moves:
                    self._tell(process, timer)
        for _ in range(len(self.timers)):
            self._ring(0)
        while self._move():
            pass
        if self._mark() != before:
            return True
        leaving = [p for p in self.processes.values() if p.moves and p.finished and p.node.phase is Phase.RUNNING]
        unfinished = [p for p in self.processes.values() if not self._is_at_rest(p)]
        if leaving and unfinished:
            self._tell(leaving[0], Depart())
        return bool(leaving and unfinished)

    def _mark(self) -> tuple[object, ...]:
        delivered = sum(len(process.delivered) for process in self.processes.values())
        gone = sum(process.gone for process in self.processes.values())
        rounds = tuple(bucket.v for bucket in self.held)
        return delivered, gone, self.coordinator.view.view, rounds

    def _is_at_rest(self, process: Process) -> bool:
        """True if it is dead, gone or finished, or was declared dead before it joined and waits for no answer."""
        if not process.alive or process.gone or process.finished:
            return True
        known = (process.node.number, process.node.incarnation)
        member = known in {(each.worker, each.incarnation) for each in self.coordinator.view.members}
        return process.node.phase is Phase.JOINING and not member

    def _check_end(self, process: Process) -> None:
        node = process.node
        assert self._is_at_rest(process), (
            f"{process.name} is stuck at iteration {node.progress} ({node.phase.name.lower()}); "
            f"V = {[bucket.v for bucket in self.held]}"
        )
        for bucket, i in process.delivered:
            key = (node.number, node.incarnation, i, bucket)
            known = self._was_taken(*key) or was_dropped(self.books, key)
            assert known or i == process.pulled, f"{key} was answered but never judged"
