"""Random schedules for workers of the exchange strategy: real nodes, FIFO links, and a seed that decides what happens.

At every turn one thing happens: a worker finishes one bucket of its step, a link delivers its next message, a worker
learns that a link is idle, a worker crashes, the coordinator notices, a worker leaves or joins. Links deliver in order.
What a crashed worker has sent may be lost from some message on.

Updates are whole numbers that can be divided by any number of workers. So sums are exact, and `expected` can be
compared with a replica bit by bit.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field
from random import Random

import numpy as np

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.effects import (
    Collect,
    Deliver,
    Depart,
    Effect,
    Enter,
    Event,
    Fail,
    Finish,
    How,
    Idle,
    Lost,
    Ready,
    Received,
    Send,
)
from syncline.errors import GoneError
from syncline.layout import Bucket, Layout, Values, buckets, within
from syncline.messages import COORDINATOR, Member, Mesh, NodeId, View, worker_id
from syncline.nodes.exchange.membership import PeerMembership
from syncline.nodes.exchange.messages import Farewell, Grant, Partitioning, RangeSum
from syncline.nodes.exchange.peer import ExchangeWorker
from syncline.nodes.exchange.terms import ExchangeTerms
from syncline.nodes.phase import Phase
from syncline.nodes.protocol import Collected

WHOLE = 60 * 7 * 8 * 3
"""Can be divided by every number of workers up to 10."""

Who = tuple[int, int]


@dataclass(frozen=True)
class Case:
    """What is tried; probabilities per turn are in thousandths."""

    seed: int
    workers: int = 3
    parts: int = 2
    tau: int = 0
    size: int = 7
    steps: int = 6
    busy: float = 0.5
    """How likely messages and idle links wait."""
    buffered: bool = False
    """Whether a link counts as idle before its messages have arrived, as if the operating system had taken them."""
    crashes: int = 0
    joins: int = 0
    leaves: int = 0
    changes: int = 0
    """How often all workers are told to use another number of ranges."""
    saves: int = 0
    """How often a worker collects all updates for a checkpoint; every second time a new run goes on with it."""
    whole: bool = True
    """Whether updates are whole numbers; else they are any float32."""
    codec: Codec = field(default_factory=Dense)
    accumulate: bool = True


class Process:
    """One worker: its node, its replica, and every update that it has made."""

    def __init__(self, node: ExchangeWorker, replica: Values) -> None:
        self.node, self.replica = node, replica
        self.updates: list[Values] = []
        """What it has added to its own replica, as it was sent."""
        self.first = 0
        """The number of its first update, less one."""
        self.alive = True
        self.told = False
        """Whether the coordinator knows that it is dead."""
        self.collecting: tuple[set[Who], set[Who]] | None = None
        """While its program saves its state: itself with the workers that it asks, and those that were gone before."""
        self.computing = False
        self.todo: list[Bucket] = []
        self.ending = False
        self.before: dict[Who, tuple[int, ...]] = {}
        """What its first replica contained of workers that were gone by then."""
        self.entered = 0
        """The turn in which it got its first replica."""
        self.gone: int | None = None
        """The turn in which it left."""
        self.complete: set[Who] = set()
        """The workers of which it has everything, by their own word."""

    @property
    def is_between_steps(self) -> bool:
        """Whether its program could save its state now."""
        return self.computing and self.collecting is None and len(self.todo) == len(self.node.buckets)

    @property
    def who(self) -> Who:
        return self.node.number, self.node.incarnation

    @property
    def id(self) -> NodeId:
        return worker_id(self.node.number)


class ExchangeSchedule:
    """Plays a case to its end and checks what must always hold."""

    def __init__(self, case: Case) -> None:
        self.case, self.random = case, Random(case.seed)
        self.layout = Layout.of([("a", (case.size,))])
        self.terms = ExchangeTerms(
            self.layout,
            Draw(case.seed),
            within,
            case.parts,
            case.tau,
            case.accumulate,
            case.codec,
            at_once=case.seed % 4,
        )
        self.buckets = buckets(self.layout, [Bucket(0, case.size)], max(1, case.size // 3))
        members = tuple(Member(worker, 0, 0) for worker in range(case.workers))
        self.coordinator = PeerMembership(View(0, members, Mesh()))
        self.links: defaultdict[tuple[NodeId, NodeId], deque[Received]] = defaultdict(deque)
        self.idle: set[tuple[NodeId, NodeId]] = set()
        self.all: dict[Who, Process] = {}
        self.granted: dict[tuple[Who, Who], tuple[dict[Who, tuple[int, ...]], set[Who]]] = {}
        """For each joiner and donor: what the replica contained of workers that were gone, and who was complete."""
        self.left = {
            "crash": case.crashes,
            "join": case.joins,
            "leave": case.leaves,
            "change": case.changes,
            "save": case.saves,
        }
        self.next_number = case.workers
        self.base = np.zeros(case.size, np.float32)
        """The values with which the run began."""
        for member in members:
            self._start(member.worker, 0, self.coordinator.view)
        self.turns = 0
        for process in list(self.all.values()):
            self._begin(process)

    def _start(self, number: int, incarnation: int, view: View) -> Process:
        node = ExchangeWorker(number, incarnation, self.terms, self.buckets, view)
        process = Process(node, self.base.copy())
        self.all[number, incarnation] = process
        return process

    def process(self, id: NodeId) -> Process | None:
        """The newest process with this number, if it is alive."""
        found = [each for each in self.all.values() if each.id == id and each.alive]
        return found[-1] if found else None

    @property
    def live(self) -> list[Process]:
        return [each for each in self.all.values() if each.alive]

    # What can happen.

    def play(self) -> None:
        while actions := self._actions():
            self.random.choice(actions)()
            self.turns += 1
            for process in [each for each in self.live if each.collecting is not None]:
                self._go_on_if_saved(process)
            assert self.turns < 200_000, "no end in sight"
        self._check_end()

    def _actions(self) -> list[object]:
        found: list[object] = []
        for process in self.live:
            if process.computing and process.collecting is None:
                found.append(lambda process=process: self._step(process))
        slow = self.random.random() < self.case.busy
        links = [key for key, queue in self.links.items() if queue]
        if not slow or not found:
            found += [lambda key=key: self._deliver(key) for key in links]
            found += [lambda key=key: self._say_idle(key) for key in sorted(self.idle)]
        for process in self.all.values():
            if not process.alive and not process.told:
                found.append(lambda process=process: self._notice(process))
        if found and self.random.random() < 0.05:
            found += self._faults()
        return found

    def _faults(self) -> list[object]:
        found: list[object] = []
        seated = [each for each in self.live if each.node.phase is Phase.RUNNING]
        if self.left["crash"] and len(self.live) > 1:
            found += [lambda process=process: self._crash(process) for process in self.live]
        if self.left["join"] and seated:
            found.append(self._join)
        if self.left["leave"] and len(seated) > 1:
            found += [
                lambda process=process: self._leave(process)
                for process in seated
                if process.collecting is None and not process.ending
            ]
        if self.left["change"] and seated:
            found.append(self._change)
        if self.left["save"]:
            ready = [each for each in seated if each.is_between_steps]
            found += [lambda process=process: self._collect(process) for process in ready]
        return found

    def _collect(self, process: Process) -> None:
        """The program of this worker saves its state; it makes no step meanwhile."""
        self.left["save"] -= 1
        asked = {(number, peer.incarnation) for number, peer in process.node.receiver.peers.items()}
        known = {*process.before, *_losses(process), *process.complete}
        process.collecting = {process.who} | asked, known
        self._tell(process, Collect())

    def _saved(self, process: Process, found: Collected) -> Values:
        """What the program saves, which is all updates up to the clocks, and nothing else."""
        values = process.replica if found.waiting is None else process.replica + found.waiting
        assert process.collecting is not None
        asked, known = process.collecting
        most = None if found.waiting is not None else process.node.progress
        total, lost = self.base.astype(np.float64), {**process.before, **_losses(process)}
        for who, other in self.all.items():
            if who in asked and who[0] in found.clocks:
                total += _sum(other.updates[: found.clocks[who[0]] - other.first], self.case.size)
            elif who not in asked | known:
                pass  # it joined later
            elif who in lost:
                marks = lost[who] if most is None else tuple(min(mark, most) for mark in lost[who])
                total += _reached(other, marks, self.case.size)
            elif who in process.complete:
                total += _sum(other.updates, self.case.size)
        expected = total.astype(np.float32)
        if self.case.whole:
            assert np.array_equal(values, expected), (process.who, found.clocks, values, expected)
        else:
            np.testing.assert_allclose(values, expected, rtol=0, atol=1e-4)
        return values

    def _go_on_if_saved(self, process: Process) -> None:
        found = process.node.collected
        if found is None:
            return
        values = self._saved(process, found)
        process.collecting = None
        if self.left["save"] % 2:
            self._restore(values, found.clocks)

    def _restore(self, values: Values, clocks: dict[int, int]) -> None:
        """Begin a new run with what was saved."""
        going = [each.node.number for each in self.live if each.node.number in clocks and not each.ending]
        members = tuple(Member(number, 0, 0) for number in sorted(going))
        self.base, self.all = values.copy(), {}
        self.coordinator = PeerMembership(View(0, members, Mesh()))
        self.links.clear()
        self.idle.clear()
        for member in members:
            process = self._start(member.worker, 0, self.coordinator.view)
            process.replica, process.first = values.copy(), clocks[member.worker]
            process.node.resume(clocks)
        for process in list(self.all.values()):
            if process.node.may_start:
                self._begin(process)

    def _begin(self, process: Process) -> None:
        node = process.node
        assert not process.computing
        if node.progress >= self.case.steps:
            self._tell(process, Finish())
            process.ending = True
            self._tell(process, Depart())
            return
        self._check_bound(process)
        process.computing = True
        process.todo = list(node.buckets)
        process.updates.append(np.zeros(self.case.size, np.float32))

    def _step(self, process: Process) -> None:
        """The worker hands in one more bucket of its update."""
        bucket = process.todo.pop(0)
        size = bucket.stop - bucket.start
        if self.case.whole:
            made = np.array([self.random.randrange(-9, 10) * WHOLE for _ in range(size)], np.float32)
        else:
            made = np.array([self.random.uniform(-1, 1) for _ in range(size)], np.float32)
        n = sum(member.first is not None for member in process.node.view.members)
        process.updates[-1][bucket.start : bucket.stop] = made / np.float32(max(n, 1))
        process.computing = bool(process.todo)
        self._tell(process, Ready(bucket, made))

    def _deliver(self, key: tuple[NodeId, NodeId]) -> None:
        source, to = key
        event = self.links[key].popleft()
        if not self.links[key] and source.role == to.role == "worker":
            self.idle.add(key)
        if to == COORDINATOR:
            self._perform(COORDINATOR, self.coordinator.handle(event, 0.0))
            return
        process = self.process(to)
        if process is not None:
            match event.message:
                case Grant():
                    self._note_grant(process, source, event.message)
                case Farewell(incarnation=incarnation, heard=False):
                    process.complete.add((source.number, incarnation))
            self._tell(process, event)

    def _note_grant(self, process: Process, source: NodeId, grant: Grant) -> None:
        donor = self.all[source.number, grant.incarnation]
        mine = grant.joiner_incarnation == process.node.incarnation  # else it is for one that has died
        if mine and process.node.phase is Phase.JOINING:
            process.before, complete = self.granted[process.who, donor.who]
            process.complete |= complete
            process.first = grant.clock
            process.entered = self.turns

    def _say_idle(self, key: tuple[NodeId, NodeId]) -> None:
        self.idle.discard(key)
        process = self.process(key[0])
        if process is not None and (self.case.buffered or not self.links[key]):
            self._tell(process, Idle(key[1]))

    def _crash(self, process: Process) -> None:
        self.left["crash"] -= 1
        process.alive = process.computing = False
        for (source, _), queue in self.links.items():
            if source == process.id and queue and self.random.random() < 0.5:
                for _ in range(self.random.randrange(len(queue) + 1)):
                    queue.pop()

    def _notice(self, process: Process) -> None:
        process.told = True
        self._perform(COORDINATOR, self.coordinator.handle(Lost(*process.who), 0.0))

    def _join(self) -> None:
        self.left["join"] -= 1
        gone = [each for each in self.all.values() if not each.alive and each.told]
        gone = [each for each in gone if (each.who[0], each.who[1] + 1) not in self.all]
        if gone and self.random.random() < 0.5:
            number, incarnation = gone[0].who[0], gone[0].who[1] + 1
            for key in list(self.links):
                if worker_id(number) in key:
                    self.links[key].clear()  # the connections of the dead process are closed
                    self.idle.discard(key)
        else:
            number, incarnation, self.next_number = self.next_number, 0, self.next_number + 1
        self._tell(self._start(number, incarnation, self.coordinator.view), Enter())

    def _leave(self, process: Process) -> None:
        self.left["leave"] -= 1
        process.ending, process.computing = True, False
        if process.todo and len(process.todo) == len(process.node.buckets):
            process.updates.pop()  # nothing of it was handed in
        process.todo = []
        self._tell(process, Depart())

    def _change(self) -> None:
        self.left["change"] -= 1
        parts = self.random.randrange(1, 8)
        for process in self.live:
            for number, peer in list(process.node.receiver.peers.items())[:1]:
                message = Partitioning(process.node.view.view, peer.incarnation, parts)
                self._tell(process, Received(worker_id(number), message))

    # The host of the nodes.

    def _tell(self, process: Process, event: Event) -> None:
        self._perform(process.id, process.node.handle(event, 0.0), process)
        if process.node.phase is Phase.GONE and process.gone is None:
            process.gone = self.turns

    def _perform(self, me: NodeId, effects: list[Effect], process: Process | None = None) -> None:
        for effect in effects:
            match effect:
                case Send(to, message, payload, of_replica):
                    if of_replica:
                        assert process is not None
                        payload = process.replica.copy()
                        assert isinstance(message, Grant)
                        joiner = (to.number, message.joiner_incarnation)
                        before = {**process.before, **_losses(process)}
                        self.granted[joiner, process.who] = (before, set(process.complete))
                    kept = None if payload is None else payload.copy()
                    if isinstance(message, RangeSum) and not self.case.buffered:
                        sums = [each for each in self.links[me, to] if isinstance(each.message, RangeSum)]
                        assert not sums, "a link carries one sum at a time"
                    self.links[me, to].append(Received(me, message, kept))
                    self.idle.discard((me, to))
                    if self.case.buffered and me.role == to.role:
                        self.idle.add((me, to))
                case Deliver(bucket, payload, following, how):
                    assert process is not None
                    self._take(process, bucket, payload, how)
                    if following is not None:
                        assert following == process.node.progress
                        self._begin(process)
                case Fail(GoneError()):
                    assert process is not None
                    process.alive = process.computing = False
                    process.told = True
                case _:
                    raise AssertionError(effect)

    def _take(self, process: Process, bucket: Bucket, payload: Values | None, how: How) -> None:
        assert not process.computing, "nothing is applied inside a step"
        place = process.replica[bucket.start : bucket.stop]
        if payload is not None and how is How.ADD:
            place += payload
        elif payload is not None:
            place[:] = payload

    # What must hold.

    def _check_bound(self, process: Process) -> None:
        """No worker begins a step too far ahead of any live worker that takes part."""
        node = process.node
        for number, peer in node.receiver.peers.items():
            other = self.all[number, peer.incarnation]
            if other.alive and not other.ending and other.node.phase is Phase.RUNNING:
                ahead = node.progress - other.node.progress
                assert ahead < node.parts + self.case.tau, (process.who, other.who, ahead)

    def _check_end(self) -> None:
        """All that live have done all their steps, and their replicas contain what they must."""
        for process in self.live:
            assert process.node.phase is Phase.GONE, (process.who, process.node.phase, process.node.progress)
        for process in self.staying:
            expected = self.expected(process)
            if self.case.whole:
                assert np.array_equal(process.replica, expected), (process.who, process.replica, expected)
            else:
                np.testing.assert_allclose(process.replica, expected, rtol=0, atol=1e-4)

    @property
    def staying(self) -> list[Process]:
        """Those that lived to the end of their steps, and did not leave before."""
        return [each for each in self.live if each.node.finished]

    def expected(self, process: Process) -> Values:
        """All updates of all workers, except what of the dead has not reached this one."""
        lost = {**process.before, **_losses(process)}
        total = self.base.astype(np.float64)
        for who, other in self.all.items():
            marks = lost.get(who)
            if process.gone is not None and other.entered > process.gone:
                continue
            if who == process.who or (marks is None and (other.alive or who in process.complete)):
                total += _sum(other.updates, self.case.size)
            elif marks is not None:
                total += _reached(other, marks, self.case.size)
        return total.astype(np.float32)


def _sum(updates: list[Values], size: int) -> Values:
    return sum(updates, np.zeros(size, np.float64))  # type: ignore[no-any-return]


def _losses(process: Process) -> dict[Who, tuple[int, ...]]:
    return {(each.worker, each.incarnation): each.marks for each in process.node.losses}


def _reached(process: Process, marks: tuple[int, ...], size: int) -> Values:
    """The sum of those updates of a dead worker that these marks name."""
    total = np.zeros(size, np.float64)
    parts = len(marks)
    for part, mark in enumerate(marks):
        place = slice(size * part // parts, size * (part + 1) // parts)
        for update in process.updates[: max(0, mark - process.first)]:
            total[place] += update[place]
    return total
