"""Random schedules without time: real nodes, a bag of messages in flight, and a script that decides what happens next.

What the transport may do to a message: deliver it after any other, deliver it twice, and, if workers have patience,
lose a push, a pull or an answer. What it may not do: lose a view, a report, a join or a leave, or hand the coordinator
the messages of one worker (the news of its death included) in another order than they were sent.

How exactly-once is seen: each (worker, incarnation, iteration) owns a coordinate, its update is one-hot there, and the
rule `Count` adds 1 wherever an update is not zero. `Ledger` follows one shard from outside (what came in, what went
out) and knows at each step what every parameter must be. As soon as a push is answered its memory is filled with NaN.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import (
    Change,
    Deliver,
    Depart,
    Effect,
    Enter,
    Event,
    Fail,
    Lost,
    Ready,
    Received,
    Send,
    SetTimer,
    Timer,
)
from syncline.gates import Always, Gate
from syncline.layout import Bucket, Layout, Payload, Values
from syncline.messages import (
    COORDINATOR,
    AnyMessage,
    Gone,
    Member,
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
from syncline.nodes.coordinator import Coordinator
from syncline.nodes.shard import Shard
from syncline.nodes.terms import Terms
from syncline.nodes.worker import Phase, Worker, WorkerParts
from syncline.rules import Memory
from syncline.sync import Bsp, Drop, Dsps, Pssp, Release, Ssp, SyncModel

WORKERS = 6
INCARNATIONS = 3
PATIENCE_LIMIT = 20_000

Key = tuple[int, int, int, Bucket]
"""Which request: (worker, incarnation, progress, bucket)."""


@dataclass(frozen=True)
class Count:
    """A rule that counts in `params` how often each coordinate was updated."""

    of_gradients = True
    keeps = True

    def start(self, params: Values) -> Memory:
        return {}

    def apply(self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None) -> None:
        params += update != 0


@dataclass(frozen=True)
class Setup:
    """The run that a script is played on."""

    models: tuple[SyncModel, ...] = (Bsp(), Bsp())
    release: Release = Release.LAZY
    workers: int = 3
    buckets: int = 2
    target: int = 4
    gate: Gate = field(default_factory=Always)
    patience: float | None = 1.0
    seed: int = 0


# Actions: what a script is made of. Numbers are taken modulo what there is, so any script can be played.


@dataclass(frozen=True)
class Arrive:
    """The k-th message in flight arrives."""

    k: int


@dataclass(frozen=True)
class Repeat:
    """The k-th message in flight exists twice."""

    k: int


@dataclass(frozen=True)
class Lose:
    """The k-th message in flight is lost, if it is a push, a pull or an answer, and workers have patience."""

    k: int


@dataclass(frozen=True)
class Work:
    """A worker finishes the k-th of the buckets that it has still to push."""

    worker: int
    k: int


@dataclass(frozen=True)
class Rush:
    """A worker finishes `steps` buckets, and all that is on its way to and from it arrives at once."""

    worker: int
    steps: int


@dataclass(frozen=True)
class Tick:
    """A timer of a worker runs out."""

    worker: int


@dataclass(frozen=True)
class Crash:
    """A worker dies; bit j of `keep` says whether its j-th message in flight still arrives."""

    worker: int
    keep: int


@dataclass(frozen=True)
class Freeze:
    """A worker stands still; what comes in is held."""

    worker: int


@dataclass(frozen=True)
class Wake:
    """A frozen worker goes on."""

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
    """A shard goes on under another model."""

    shard: int
    model: SyncModel
    release: Release | None = None


Action = (
    Arrive | Repeat | Lose | Work | Rush | Tick | Crash | Freeze | Wake | Declare | Restart | Enlist | Quit | Switch
)


@dataclass(eq=False)
class Flight:
    """A message on its way."""

    source: NodeId
    to: NodeId
    message: AnyMessage
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
    delivered: set[tuple[Bucket, int]] = field(default_factory=set)
    borrowed: list[Payload] = field(default_factory=list)
    sent: dict[Bucket, Payload] = field(default_factory=dict)
    empty: set[tuple[Bucket, int]] = field(default_factory=set)
    iteration: int = 0
    pulled: int | None = None
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


class Ledger:
    """What one shard must do, followed from outside; every step of the shard is checked against it."""

    def __init__(self, shard: Shard, view: View, coordinates: Callable[[Payload], list[int]], draw: Draw) -> None:
        self.shard = shard
        self.view = view
        self.limit = inf
        self.deferred: list[Received] = []
        self.taken: set[Key] = set()
        self.dropped: set[Key] = set()
        self._draw = draw
        self._coordinates = coordinates
        self._last: dict[tuple[Bucket, int, int], int] = {}
        self._open: set[Key] = set()
        self._pushed: dict[tuple[Bucket, int], set[tuple[int, int]]] = {}
        self._kept: dict[Bucket, dict[int, list[int]]] = {name: {} for name in shard.buckets}
        self._expected = {name: np.zeros_like(bucket.params) for name, bucket in shard.buckets.items()}

    @property
    def members(self) -> dict[int, Member]:
        return {member.worker: member for member in self.view.members if member.first is not None}

    def step(self, event: Event, now: float) -> list[Effect]:
        """Let the shard handle an event, and check all that follows."""
        before = {name: bucket.v for name, bucket in self.shard.buckets.items()}
        carried = self._carried(event)
        judged = self._judged(event, before)
        at_close = self.shard.terms.model.at_close
        effects = self.shard.handle(event, now)
        if isinstance(event, Change):
            if not self.shard.terms.model.at_close:
                self._settle_all()
            at_close = self.shard.terms.model.at_close
        answers = self._answers(effects)
        repeats = self._judge(judged, carried, answers, at_close, before)
        self._check_answers(answers, repeats)
        self._check_rounds(before)
        self._check_params()
        self._check_versions(effects)
        return effects

    # What the event was.

    def _carried(self, event: Event) -> dict[int, list[int]]:
        """The coordinates in each push that may be judged now, read before anything is answered."""
        events = [*self.deferred, event]
        pushes = [each for each in events if isinstance(each, Received) and isinstance(each.message, Push)]
        return {id(each): [] if each.payload is None else self._coordinates(each.payload) for each in pushes}

    def _judged(self, event: Event, before: dict[Bucket, int]) -> list[Received]:
        if not isinstance(event, Received):
            return []
        if isinstance(event.message, View):
            if event.message.view <= self.view.view:
                return []
            self.view = event.message
            joiner = any(member.first is None for member in self.view.members)
            self.limit = max(before.values()) if joiner else inf
            judged = [each for each in self.deferred if each.message.view <= self.view.view]
            self.deferred = [each for each in self.deferred if each.message.view > self.view.view]
            return judged
        if event.message.view > self.view.view:
            self.deferred.append(event)
            return []
        return [event]

    def _judge(
        self,
        judged: list[Received],
        carried: dict[int, list[int]],
        answers: list[tuple[Key, Params | Taken | Gone]],
        at_close: bool,
        before: dict[Bucket, int],
    ) -> Counter[Key]:
        """Enter what was judged; count the requests that may be answered although they are not open."""
        late = {key for key, answer in answers if not isinstance(answer, Gone) and answer.late}
        repeats: Counter[Key] = Counter()
        for each in judged:
            worker, message = each.source.number, each.message
            key = (worker, message.incarnation, message.progress, message.bucket)
            member = self.members.get(worker)
            if member is None or member.incarnation != message.incarnation:
                repeats[key] += 1
                assert any(other == key and isinstance(answer, Gone) for other, answer in answers), "no Gone"
                continue
            mark = (message.bucket, worker, message.incarnation)
            if message.progress <= self._last.get(mark, -1):
                if key in self._open:
                    assert len(judged) > 1 or not answers, f"the repeat of a parked push was answered: {key}"
                else:
                    assert any(other == key for other, _ in answers), f"an answered push was not answered again: {key}"
                repeats[key] += 1
                continue
            self._last[mark] = message.progress
            self._open.add(key)
            if isinstance(message, Push):
                self._enter(key, carried[id(each)], key in late, at_close, before[message.bucket])
        return repeats

    def _enter(self, key: Key, coordinates: list[int], late: bool, at_close: bool, v: int) -> None:
        worker, incarnation, i, bucket = key
        if late:
            assert at_close, f"{key} is too late under a model that applies on arrival"
            assert i < self.shard.buckets[bucket].v, f"{key} is not too late"
            self.dropped.add(key)
            return
        assert not at_close or i >= v, f"{key} is too late"
        self.taken.add(key)
        self._pushed.setdefault((bucket, i), set()).add((worker, incarnation))
        if at_close:
            self._kept[bucket].setdefault(i, []).extend(coordinates)
        else:
            self._expected[bucket][coordinates] += 1

    def _settle_all(self) -> None:
        for bucket, kept in self._kept.items():
            for coordinates in kept.values():
                self._expected[bucket][coordinates] += 1
            kept.clear()

    # What the shard did.

    def _answers(self, effects: Sequence[Effect]) -> list[tuple[Key, Params | Taken | Gone]]:
        found = []
        for effect in effects:
            assert isinstance(effect, Send), effect
            if effect.to.role == "worker":
                answer = effect.message
                assert not isinstance(answer, Moved)
                found.append(((effect.to.number, answer.incarnation, answer.progress, answer.bucket), answer))
        return found

    def _check_answers(self, answers: list[tuple[Key, Params | Taken | Gone]], repeats: Counter[Key]) -> None:
        for key, answer in answers:
            if key in self._open:
                self._open.discard(key)
                if not isinstance(answer, Gone):
                    assert answer.late == (key in self.dropped)
                    self._check_lead(key, answer)
            else:
                assert repeats[key] > 0, f"{key} was answered twice"
                repeats[key] -= 1
        for key in self._open:
            known = any(key[:2] == (each.worker, each.incarnation) for each in self.members.values())
            assert known, f"{key} of a non-member was left parked"

    def _check_lead(self, key: Key, answer: Params | Taken) -> None:
        """Nobody is further ahead than the model allows."""
        worker, _, i, bucket = key
        model, lead = self.shard.terms.model, i - answer.v
        soft = self.shard.terms.release is Release.SOFT
        if answer.late or (soft and isinstance(model, Pssp)):
            return
        match model:
            case Bsp() | Drop():
                assert lead < 0, f"{key} answered at V = {answer.v}"
            case Ssp(s) | Dsps(_, s):
                assert lead < s, f"{key} answered at V = {answer.v}"
            case Pssp(s) if model.alpha != "significance":
                lucky = self._draw.uniform("pssp", worker, i) >= model.probability(self.shard.buckets[bucket], lead)
                assert lead < s or lucky, f"{key} answered at V = {answer.v}"

    def _check_rounds(self, before: dict[Bucket, int]) -> None:
        for name, bucket in self.shard.buckets.items():
            assert bucket.v >= before[name], "V went back"
            for i in range(before[name], bucket.v):
                assert self.members, "a round closed while nobody lives"
                assert i <= self.limit, f"{name}: round {i} closed past the limit {self.limit}"
                assert self._may_close(name, i), f"{name}: round {i} closed too early"
            open_for_no_reason = self.members and bucket.v <= self.limit and self._may_close(name, bucket.v)
            assert not open_for_no_reason, f"{name}: round {bucket.v} should have been closed"

    def _may_close(self, bucket: Bucket, i: int) -> bool:
        pushed = self._pushed.get((bucket, i), set())
        model = self.shard.terms.model
        if isinstance(model, Drop) and len(pushed) >= model.k:
            return True
        return all(
            (worker, member.incarnation) in pushed for worker, member in self.members.items() if member.first <= i
        )

    def _check_params(self) -> None:
        for name, bucket in self.shard.buckets.items():
            kept = self._kept[name]
            for i in [i for i in kept if i < bucket.v]:
                self._expected[name][kept.pop(i)] += 1
            assert np.array_equal(bucket.params, self._expected[name]), (
                f"{name}: parameters {np.flatnonzero(bucket.params != self._expected[name])} are "
                f"{bucket.params[bucket.params != self._expected[name]]}, not as taken"
            )
            assert self._expected[name].max() <= 1

    def _check_versions(self, effects: Sequence[Effect]) -> None:
        """A payload is the parameters of the version that its header names."""
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Params):
                bucket = self.shard.buckets[effect.message.bucket]
                fresh = effect.message.version == bucket.version
                assert fresh or not np.shares_memory(effect.payload, bucket.params), (
                    f"{effect.message} carries the parameters of version {bucket.version}"
                )
                assert not fresh or np.array_equal(effect.payload, bucket.params)


class Schedule:
    """Nodes, messages in flight, and the actions on them."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.now = 0.0
        size = WORKERS * INCARNATIONS * setup.target
        shards = len(setup.models)
        names = [Bucket(size * n, size * (n + 1)) for n in range(shards * setup.buckets)]
        holders = tuple(tuple(names[n::shards]) for n in range(shards))
        view = View(1, tuple(Member(n, 0, 0) for n in range(setup.workers)), holders)
        draw = Draw(setup.seed)
        layout = Layout.of([(f"t{n}", (size,)) for n in range(len(names))])
        self.parts = WorkerParts(layout, draw, gate=setup.gate, patience=setup.patience)
        self.names = names
        self.coordinator = Coordinator(view)
        self.ledgers = [self._shard(number, view, draw) for number in range(shards)]
        self.flights: list[Flight] = []
        self.processes: dict[tuple[int, int], Process] = {}
        self.latest: dict[int, Process] = {}
        for number in range(setup.workers):
            self._start(number, 0, view)

    def _shard(self, number: int, view: View, draw: Draw) -> Ledger:
        pieces = {name: np.zeros(name.size, np.float32) for name in view.holders[number]}
        terms = Terms(self.setup.models[number], Count(), Dense(), draw, self.setup.release)
        shard = Shard(number, pieces, terms, view)
        return Ledger(shard, view, lambda payload: [int(c) for c in np.flatnonzero(payload)], draw)

    def _start(self, number: int, incarnation: int, view: View) -> Process:
        buffers = {name: np.full(name.size, np.nan, np.float32) for name in self.names}
        process = Process(Worker(number, incarnation, self.parts, view), buffers)
        self.processes[number, incarnation] = self.latest[number] = process
        if process.node.phase is Phase.RUNNING:
            process.todo = list(self.names)
        else:
            self._tell(process, Enter())
        return process

    # Playing.

    def play(self, script: Sequence[Action]) -> None:
        """Perform the script, then everything that is left in a fair order, until all is quiet."""
        for action in script:
            self.act(action)
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
            case Switch(number, model, release):
                self._at_shard(self.ledgers[number % len(self.ledgers)], Change(model, release))
            case Enlist() if len(self.latest) < WORKERS:
                self._start(max(self.latest) + 1, 0, self.coordinator.view)
            case Work() | Rush() | Tick() | Crash() | Freeze() | Wake() | Declare() | Restart() | Quit():
                self._befall(self.latest[action.worker % len(self.latest)], action)

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
        """The application has one more update, in the worker's own memory."""
        node = process.node
        bucket = process.todo.pop(k % len(process.todo))
        buffer = process.buffers[bucket]
        buffer.fill(0)
        buffer[self.coordinate(node.number, node.incarnation, node.progress)] = 1
        process.filled[bucket] = node.progress
        self._tell(process, Ready(bucket, buffer))

    def coordinate(self, worker: int, incarnation: int, i: int) -> int:
        assert i < self.setup.target
        return (worker * INCARNATIONS + incarnation) * self.setup.target + i

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
        inbox, process.inbox = process.inbox, []
        for flight in inbox:
            self._hand(process, flight)

    def _declare(self, process: Process) -> None:
        me = worker_id(process.node.number)
        for flight in [each for each in self.flights if (each.source, each.to) == (me, COORDINATOR)]:
            self._arrive(flight)
        self._at_coordinator(Lost(process.node.number, process.node.incarnation))

    # Messages.

    def _uncertain(self) -> list[Flight]:
        """What may be lost or come twice."""
        return [each for each in self.flights if isinstance(each.message, Push | Pull | Params | Taken | Gone)]

    def _copy(self, flight: Flight) -> Payload | None:
        """An answer's payload is a snapshot, a push's payload is the worker's memory."""
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
        self.flights.append(flight)

    # Nodes.

    def _at_coordinator(self, event: Event) -> None:
        self.now += 1
        before = {member.worker: member for member in self.coordinator.view.members}
        for effect in self.coordinator.handle(event, self.now):
            assert isinstance(effect, Send)
            self._send(COORDINATOR, effect)
        for member in self.coordinator.view.members:
            if member.first is not None and before.get(member.worker, member).first is None:
                highest = max(bucket.v for ledger in self.ledgers for bucket in ledger.shard.buckets.values())
                assert member.first >= highest, f"{member} starts in a closed round, V is {highest}"

    def _at_shard(self, ledger: Ledger, event: Event) -> None:
        self.now += 1
        for effect in ledger.step(event, self.now):
            assert isinstance(effect, Send)
            self._send(server_id(ledger.shard.number), effect)
            if effect.to.role == "worker":
                self._give_back(effect.to.number, effect.message)

    def _give_back(self, worker: int, answer: AnyMessage) -> None:
        """A push was answered: its memory is the worker's again, which writes something else there at once."""
        process = self.processes[worker, answer.incarnation]
        if process.filled.get(answer.bucket) == answer.progress:
            process.buffers[answer.bucket].fill(np.nan)
            del process.filled[answer.bucket]
            if answer.bucket in process.sent:
                process.sent.pop(answer.bucket).fill(np.nan)

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
                    self._send(worker_id(process.node.number), effect)
                    if isinstance(message, Push) and payload is not None:
                        process.sent[message.bucket] = payload
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
        assert mark not in process.delivered, f"{process.name}: {mark} was delivered twice"
        process.delivered.add(mark)
        if deliver.payload is not None:
            assert np.isfinite(deliver.payload).all(), "a payload was delivered after it had been given back"
            self._check_own(process, deliver, i)
            process.borrowed.append(deliver.payload)
        if deliver.next is not None:
            key = (node.number, node.incarnation, i)
            late = any((*key, bucket) in ledger.dropped for ledger in self.ledgers for bucket in self.names)
            assert deliver.next == i + 1 or (late and deliver.next > i)
            assert all((name, i) in process.delivered for name in self.names), "an iteration is whole without a bucket"
            process.iteration = deliver.next
            process.finished = deliver.next >= self.setup.target
            process.todo = [] if process.finished or node.phase is not Phase.RUNNING else list(self.names)

    def _check_own(self, process: Process, deliver: Deliver, i: int) -> None:
        """Whoever is answered with parameters finds its own update in them, if it was taken and held back nowhere."""
        node = process.node
        key = (node.number, node.incarnation, i, deliver.bucket)
        taken = any(key in ledger.taken for ledger in self.ledgers) and (deliver.bucket, i) not in process.empty
        if taken and isinstance(self.setup.gate, Always):
            assert deliver.payload[self.coordinate(node.number, node.incarnation, i)] == 1, f"{key} reads no own update"

    # The end.

    def settle(self) -> None:
        """Deliver everything fairly; whoever has finished leaves when nothing else moves; all live workers finish."""
        for process in list(self.processes.values()):
            if process.frozen:
                self._wake(process)
            if not process.alive:
                self._declare(process)
        for _ in range(PATIENCE_LIMIT):
            if not self._move() and not self._nudge():
                break
        else:
            raise AssertionError("the schedule never gets quiet")
        for process in self.processes.values():
            self._check_end(process)

    def _move(self) -> bool:
        if self.flights:
            self._arrive(self.flights[0])
            return True
        worker = next((each for each in self.processes.values() if each.may_work), None)
        if worker is not None:
            self._finish(worker, 0)
        return worker is not None

    def _nudge(self) -> bool:
        """Nothing is in flight: let timers run out, and if that does not help, let those who have finished leave."""
        before = self._mark()
        for process in self.processes.values():
            timers, process.timers = process.timers, []
            for timer in timers:
                if process.moves:
                    self._tell(process, timer)
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
        rounds = tuple(bucket.v for ledger in self.ledgers for bucket in ledger.shard.buckets.values())
        return delivered, gone, self.coordinator.view.view, rounds

    def _is_at_rest(self, process: Process) -> bool:
        """Dead, gone, or finished; or it was declared dead before it had joined, and nobody owes it an answer."""
        if not process.alive or process.gone or process.finished:
            return True
        known = (process.node.number, process.node.incarnation)
        member = known in {(each.worker, each.incarnation) for each in self.coordinator.view.members}
        return process.node.phase is Phase.JOINING and not member

    def _check_end(self, process: Process) -> None:
        node = process.node
        assert self._is_at_rest(process), (
            f"{process.name} is stuck at iteration {node.progress} ({node.phase.name.lower()}); "
            f"V = {[bucket.v for ledger in self.ledgers for bucket in ledger.shard.buckets.values()]}"
        )
        for bucket, i in process.delivered:
            key = (node.number, node.incarnation, i, bucket)
            known = any(key in ledger.taken or key in ledger.dropped for ledger in self.ledgers)
            assert known or i == process.pulled, f"{key} was answered but never judged"
