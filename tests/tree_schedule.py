"""Random schedules for nodes of the tree strategy: real nodes and workers, and a seed that decides what happens.

At every turn one thing happens: a message arrives (with `lossy` in any order, twice, or never), a timer expires, a
checkpoint is on disk, a worker hands in a bucket, a node crashes, starts again, leaves, or is lost for good, the tree
changes its shape. Messages of the coordinator arrive in order while their receiver lives.

Every update has an element of its own in every bucket, and is 1 there. So a replica shows which updates it contains,
and how often.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from syncline.codecs import Codec, Dense
from syncline.draw import Draw
from syncline.effects import (
    Deliver,
    Depart,
    Effect,
    Enter,
    Event,
    Fail,
    Load,
    Loaded,
    Lost,
    Ready,
    Received,
    Reshape,
    Restarted,
    Save,
    Saved,
    Send,
    ServerLost,
    SetTimer,
    Timer,
)
from syncline.errors import GoneError
from syncline.layout import Bucket, Layout, Values
from syncline.messages import (
    COORDINATOR,
    Member,
    NodeId,
    Params,
    View,
    server_id,
    worker_id,
)
from syncline.nodes.phase import Phase
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.nodes.topologies import Edge, neighbours_of, ordered
from syncline.nodes.tree.coordinator import TreeCoordinator, first_tree
from syncline.nodes.tree.node import TreeNode
from syncline.nodes.tree.plans import TreePlan, merged
from syncline.nodes.tree.round_bucket import RoundBucket
from syncline.nodes.tree.tree_bucket import Checkpoint
from syncline.nodes.tree.tree_terms import Consistency, TreeSettings
from syncline.nodes.tree.worker import TreeWorker

PERIOD = 1.0


@dataclass(frozen=True)
class TreeCase:
    """What is tried; the numbers say how often each thing happens."""

    seed: int
    nodes: int = 4
    workers: int = 4
    steps: int = 4
    buckets: int = 1
    consistency: str = "eventual"
    durable: bool = False
    copies: bool = False
    shared: bool = False
    """Whether nodes can read the checkpoints of lost ones; then nobody keeps copies."""
    lossy: bool = False
    checkpoint: bool = True
    """Whether nodes write checkpoints now and then, without `durable`."""
    crashes: int = 0
    leaves: int = 0
    losses: int = 0
    reshapes: int = 0
    merges: int = 0
    """How often two or three connected nodes are replaced by a new one."""
    adds: int = 0
    absorbs: int = 0
    """How often one of two or three connected nodes takes the place of all."""
    deaths: int = 0
    """How often a worker dies; it may come back."""
    joins: int = 0
    codec: Codec = field(default_factory=Dense)
    hurry: float = 0.3
    """How likely something that changes the tree happens, if it can."""


class NodeProcess:
    """A process of a node; a node that starts again is another process."""

    def __init__(self, node: TreeNode, incarnation: int) -> None:
        self.node, self.incarnation = node, incarnation
        self.alive = True
        self.views: deque[Received] = deque()

    @property
    def id(self) -> NodeId:
        return server_id(self.node.number)


class WorkerProcess:
    """A worker: its node, what it was told, and what it does."""

    def __init__(self, node: TreeWorker, base: int) -> None:
        self.node, self.base = node, base
        self.alive, self.computing, self.done = True, False, False
        self.todo: list[Bucket] = []
        self.inbox: deque[Received] = deque()
        self.joining = node.phase is Phase.JOINING
        self.first = self.pushed = 0
        """How many iterations it has handed in completely."""
        self.acknowledged: dict[Bucket, set[int]] = defaultdict(set)
        self.seen: dict[Bucket, Values] = {}
        self.told = False
        """Whether the coordinator knows that it is dead."""

    @property
    def id(self) -> NodeId:
        return worker_id(self.node.number)

    @property
    def made(self) -> set[int]:
        """The elements of the updates that it has handed in completely."""
        return {self.base + each for each in range(self.pushed - self.first)}


class TreeSchedule:
    """Plays a case to its end and checks what must always hold."""

    def __init__(self, case: TreeCase, edges: tuple[Edge, ...] | None = None) -> None:
        self.case, self.random = case, Random(case.seed)
        self.turns = 0
        self.slots = (case.workers + case.joins + case.deaths) * (case.steps + 2)
        size = self.slots
        self.layout = Layout.of([(f"t{each}", (size,)) for each in range(case.buckets)])
        self.names = tuple(Bucket(each * size, (each + 1) * size) for each in range(case.buckets))
        patience = 5.0 if case.lossy else None
        self.settings = TreeSettings(
            self.layout,
            Draw(case.seed),
            Consistency.of(case.consistency),
            PERIOD,
            case.durable,
            case.codec,
            patience,
            checkpoint=3.0 if case.checkpoint and not case.durable else None,
            divides=False,
            shared=case.shared,
        )
        self.parts = WorkerParts(self.layout, Draw(case.seed), patience=patience)
        if edges is None:
            edges = tuple((self.random.randrange(node), node) for node in range(1, case.nodes))
        copies = case.copies and not case.shared
        tree = first_tree(edges, case.nodes, range(case.workers), copies)
        members = tuple(Member(worker, 0, 0) for worker in range(case.workers))
        view = View(0, members, tree)
        self.coordinator = TreeCoordinator(view, copies, shared=case.shared)
        self.to_coordinator: deque[Received] = deque()
        self.network: defaultdict[tuple[NodeId, NodeId], list[Received]] = defaultdict(list)
        self.timers: list[tuple[NodeProcess | WorkerProcess, tuple[object, ...]]] = []
        self.saves: list[tuple[NodeProcess, Save]] = []
        self.loads: list[tuple[NodeProcess, Load]] = []
        self.disk: dict[int, dict[Bucket, Checkpoint]] = defaultdict(dict)
        self.nodes: dict[int, NodeProcess] = {}
        self.workers: dict[int, WorkerProcess] = {}
        self.all_workers: list[WorkerProcess] = []
        self.lost: set[int] = set()
        self.after_round: dict[tuple[Bucket, int], Values] = {}
        self.shown: dict[tuple[int, Bucket], Values] = {}
        """The last replica that was seen of each node."""
        self.left = {
            "crash": case.crashes,
            "leave": case.leaves,
            "lose": case.losses,
            "reshape": case.reshapes,
            "merge": case.merges,
            "add": case.adds,
            "absorb": case.absorbs,
            "die": case.deaths,
            "join": case.joins,
        }
        self.next_node, self.next_worker, self.next_base = case.nodes, case.workers, 0
        for number in range(case.nodes):
            self.nodes[number] = NodeProcess(TreeNode(number, self._first(), self.settings, view), 0)
            self.nodes[number].views.append(Received(COORDINATOR, view))
        for number in range(case.workers):
            self._begin(self._start_worker(number, 0, view))

    def _first(self) -> dict[Bucket, Values]:
        return {name: np.zeros(self.slots, np.float32) for name in self.names}

    def _start_worker(self, number: int, incarnation: int, view: View) -> WorkerProcess:
        node = TreeWorker(number, incarnation, self.parts, view, self.names)
        process = self.workers[number] = WorkerProcess(node, self.next_base)
        self.next_base += self.case.steps + 2
        self.all_workers.append(process)
        return process

    @property
    def now(self) -> float:
        return self.turns * 0.05

    @property
    def forgets(self) -> bool:
        """Whether updates may get lost: something crashes that has not stored them."""
        case = self.case
        return not case.durable and bool(case.crashes or case.losses)

    @property
    def is_planned(self) -> bool:
        """Whether nothing that happens may take an update from a replica."""
        return not self.forgets and not self.coordinator.orphaned

    @property
    def may_show_twice(self) -> bool:
        """Whether a lost update may still be in old mirrors while its worker sends it again to another node."""
        case = self.case
        return bool(
            self.coordinator.orphaned or (self.forgets and (case.losses or case.leaves or case.merges or case.absorbs))
        )

    @property
    def has_rounds(self) -> bool:
        return self.case.consistency == "bsp"

    def _contents(self, values: Values) -> Values:
        """1 for every update that a replica contains; with rounds they are divided by the pushes of their round."""
        return (values > 1e-6).astype(np.float64) if self.has_rounds else np.asarray(values, np.float64).round(6)

    def _check_round(self, worker: WorkerProcess, bucket: Bucket, values: Values, following: int) -> None:
        """With bsp, a worker gets exactly the rounds that it has finished, of all; each is a mean."""
        if not self.has_rounds:
            return
        self._check_means(values, following)
        if not self.coordinator.orphaned:
            before = self.after_round.setdefault((bucket, following), np.array(values))
            np.testing.assert_allclose(values, before, rtol=0, atol=1e-5)

    def _check_means(self, values: Values, following: int) -> None:
        """A replica contains rounds before this one only, and of each round the mean of its pushes."""
        rounds: defaultdict[int, list[float]] = defaultdict(list)
        for each in self.all_workers:
            for step in range(self.case.steps + 2):
                value = float(values[each.base + step])
                if value:
                    rounds[each.first + step].append(value)
        assert all(number < following for number in rounds), (following, sorted(rounds))
        for number, found in rounds.items():
            assert np.allclose(found, 1 / len(found), rtol=1e-5), (number, found)

    # What can happen.

    def play(self) -> None:
        while actions := self._actions():
            self.random.choice(actions)()
            self.turns += 1
            assert self.turns < 20_000, "no end in sight"
            if self.turns % 5 == 0:
                self.check_replicas()
        self.check_replicas()
        self.check_end()

    def _actions(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        if self.to_coordinator:
            found.append(self._coordinate)
        for process in self.nodes.values():
            if process.alive and process.views:
                found.append(lambda process=process: self._tell(process, process.views.popleft()))
        for worker in self.workers.values():
            if worker.alive and worker.inbox:
                found.append(lambda worker=worker: self._tell(worker, worker.inbox.popleft()))
            if worker.alive and worker.computing:
                found.append(lambda worker=worker: self._work(worker))
        for key, bag in self.network.items():
            if bag:
                found.append(lambda key=key: self._arrive(key))
        for timer in self.timers:
            if not (timer[1][0] in ("repeat", "resend") and found and self.random.random() < 0.9):
                found.append(lambda timer=timer: self._expire(timer))
        for save in self.saves:
            found.append(lambda save=save: self._save(save))
        for load in self.loads:
            found.append(lambda load=load: self._load(load))
        down = [number for number, process in self.nodes.items() if not process.alive and number not in self.lost]
        for number in down:
            if not found or self.random.random() < 0.2:
                found.append(lambda number=number: self._restart(number))
        dead = [each for each in self.workers.values() if not each.alive and not each.told]
        found.extend(lambda each=each: self._notice(each) for each in dead)
        if self.random.random() < self.case.hurry / 5:
            found.extend(self._disturbances())
        return found

    def _disturbances(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = []
        live = [process for process in self.nodes.values() if process.alive]
        inside = sorted(self.coordinator.servers)
        for what, left in self.left.items():
            if left <= 0:
                continue
            if what == "crash" and live:
                found.append(lambda: self._crash(self.random.choice(live)))
            elif what == "leave" and len(inside) > 1:
                found.append(lambda: self._leave(self.random.choice(inside)))
            elif what == "lose" and len(inside) > 2 and not self._moving_copies():
                found.append(lambda: self._lose(self.random.choice([each.node.number for each in live] or inside)))
            elif what == "reshape" and len(inside) > 2:
                found.append(self._reshape)
            elif what == "merge" and len(inside) > 2:
                found.append(self._merge)
            elif what == "absorb" and len(inside) > 2:
                found.append(self._absorb)
            elif what == "add":
                found.append(self._add)
            elif what == "die":
                found.append(self._die)
            elif what == "join":
                found.append(self._join)
        return found

    def _moving_copies(self) -> bool:
        """Whether a node has no whole copy elsewhere at the moment; a loss would then be a second failure."""
        coordinator = self.coordinator
        if not self.case.copies or self.case.shared:
            return False
        down = any(not each.alive and number not in self.lost for number, each in self.nodes.items())
        return down or not all(any(each.whole for each in keepers) for keepers in coordinator._keepers.values())

    def _coordinate(self) -> None:
        self._perform(COORDINATOR, self.coordinator.handle(self.to_coordinator.popleft(), self.now))
        for number, process in self.nodes.items():
            if number not in self.coordinator._incarnations and number not in self.lost:
                self._kill(process)  # it has given everything away, and ends
                self.lost.add(number)

    def _work(self, worker: WorkerProcess) -> None:
        bucket = worker.todo.pop()
        if not worker.todo:
            worker.computing = False
            worker.pushed = worker.node.progress + 1
        update = np.zeros(self.slots, np.float32)
        update[worker.base + worker.node.progress - worker.first] = 1
        self._tell(worker, Ready(bucket, update))

    def _begin(self, worker: WorkerProcess) -> None:
        worker.computing, worker.todo = True, list(self.names)

    def _arrive(self, key: tuple[NodeId, NodeId]) -> None:
        bag = self.network[key]
        place = 0
        if self.case.lossy:
            place = self.random.randrange(len(bag))
            chance = self.random.random()
            if chance < 0.1:
                del bag[place]
                return
            if chance < 0.2 and len(bag) < 50:
                bag.append(bag[place])
        event = bag.pop(place)
        process = self._process(key[1])
        if process is not None and process.alive:
            self._tell(process, event)

    def _process(self, id: NodeId) -> NodeProcess | WorkerProcess | None:
        return self.nodes.get(id.number) if id.role == "server" else self.workers.get(id.number)

    def _expire(self, timer: tuple[NodeProcess | WorkerProcess, tuple[object, ...]]) -> None:
        self.timers.remove(timer)
        if timer[0].alive:
            self._tell(timer[0], Timer(timer[1]))

    def _save(self, save: tuple[NodeProcess, Save]) -> None:
        self.saves.remove(save)
        process, effect = save
        if process.alive:
            assert effect.payload is not None
            self.disk[process.node.number][effect.bucket] = Checkpoint(effect.state, effect.payload)
            self._tell(process, Saved(effect.bucket, effect.serial))

    def _load(self, load: tuple[NodeProcess, Load]) -> None:
        self.loads.remove(load)
        process, (name, number) = load[0], (load[1].bucket, load[1].server)
        if process.alive:
            found = self.disk[number].get(name)
            self._tell(process, Loaded(name, number, *((None, None) if found is None else found)))

    # Disturbances.

    def _crash(self, process: NodeProcess) -> None:
        self.left["crash"] -= 1
        self._kill(process)

    def _kill(self, process: NodeProcess) -> None:
        process.alive = False
        for each, effect in [save for save in self.saves if save[0] is process]:
            self.saves.remove((each, effect))
            if self.random.random() < 0.5:  # it was on disk, but the process did not learn of it
                assert effect.payload is not None
                self.disk[process.node.number][effect.bucket] = Checkpoint(effect.state, effect.payload)
        self.timers = [each for each in self.timers if each[0] is not process]
        for key, bag in self.network.items():
            if process.id in key and (key[1] == process.id or self.random.random() < 0.5):
                bag.clear()

    def _restart(self, number: int) -> None:
        before = self.nodes[number]
        node = TreeNode(
            number, self._first(), self.settings, self.coordinator.view, fresh=False, checkpoint=self.disk[number]
        )
        self.nodes[number] = NodeProcess(node, before.incarnation + 1)
        if number in self.coordinator._incarnations:
            self._perform(COORDINATOR, self.coordinator.handle(Restarted(number, before.incarnation + 1), self.now))

    def _leave(self, number: int) -> None:
        self.left["leave"] -= 1
        plan = self.coordinator.without(number)
        self._perform(COORDINATOR, self.coordinator.handle(Reshape(plan), self.now))

    def _lose(self, number: int) -> None:
        if number not in self.coordinator._incarnations or not (self.coordinator.servers - {number}):
            return
        self.left["lose"] -= 1
        self._kill(self.nodes[number])
        self.lost.add(number)
        if not self.case.shared:
            self.disk.pop(number, None)
        self._perform(COORDINATOR, self.coordinator.handle(ServerLost(number), self.now))

    def _reshape(self) -> None:
        self.left["reshape"] -= 1
        inside = sorted(self.coordinator.servers)
        self.random.shuffle(inside)
        edges = tuple(ordered(inside[self.random.randrange(place)], inside[place]) for place in range(1, len(inside)))
        self._perform(COORDINATOR, self.coordinator.handle(Reshape(TreePlan(edges, frozenset(inside))), self.now))

    def _new_node(self) -> int:
        number, self.next_node = self.next_node, self.next_node + 1
        node = TreeNode(number, self._first(), self.settings, self.coordinator.view, fresh=False)
        self.nodes[number] = NodeProcess(node, 0)
        self.coordinator.ready(number)
        return number

    def _merge(self) -> None:
        """Replace a few connected nodes by a new one."""
        self.left["merge"] -= 1
        gone = self._connected()
        new = self._new_node()
        self.replace(gone, new)

    def _absorb(self) -> None:
        """Let one of a few connected nodes take the place of all."""
        self.left["absorb"] -= 1
        gone = self._connected()
        if len(gone) > 1:
            plan = merged(self.coordinator.edges, self.coordinator.servers, gone, self.random.choice(sorted(gone)))
            self._perform(COORDINATOR, self.coordinator.handle(Reshape(plan), self.now))

    def _connected(self) -> set[int]:
        """A few connected nodes."""
        around = neighbours_of(self.coordinator.edges)
        gone = {self.random.choice(sorted(around))}
        for _ in range(self.random.randrange(3)):
            near = sorted({each for node in gone for each in around[node]} - gone)
            if near and len(gone) + 1 < len(around):
                gone.add(self.random.choice(near))
        return gone

    def replace(self, gone: set[int], new: int) -> None:
        """Let a new node take the place of these connected nodes."""
        edges = self.coordinator.edges
        outer = {ordered(*(new if each in gone else each for each in edge)) for edge in edges if not gone >= {*edge}}
        nodes = frozenset({*self.coordinator.servers, new} - gone)
        plan = TreePlan(tuple(sorted(outer)), nodes, dict.fromkeys(gone, new))
        self._perform(COORDINATOR, self.coordinator.handle(Reshape(plan), self.now))

    def _add(self) -> None:
        self.left["add"] -= 1
        near = self.random.choice(sorted(self.coordinator.servers))
        new = self._new_node()
        edges = (*self.coordinator.edges, ordered(near, new))
        plan = TreePlan(edges, frozenset({*self.coordinator.servers, new}))
        self._perform(COORDINATOR, self.coordinator.handle(Reshape(plan), self.now))

    def _die(self) -> None:
        live = [each for each in self.workers.values() if each.alive and not each.done]
        if len(live) < 2:
            return
        self.left["die"] -= 1
        worker = self.random.choice(live)
        worker.alive = worker.computing = False
        self.timers = [each for each in self.timers if each[0] is not worker]

    def _notice(self, worker: WorkerProcess) -> None:
        worker.told = True
        lost = Lost(worker.node.number, worker.node.incarnation)
        self._perform(COORDINATOR, self.coordinator.handle(lost, self.now))
        if self.random.random() < 0.5:
            number, incarnation = worker.node.number, worker.node.incarnation + 1
            self._tell(self._start_worker(number, incarnation, self.coordinator.view), Enter())

    def _join(self) -> None:
        self.left["join"] -= 1
        number, self.next_worker = self.next_worker, self.next_worker + 1
        self._tell(self._start_worker(number, 0, self.coordinator.view), Enter())

    # The host of the nodes.

    def _tell(self, process: NodeProcess | WorkerProcess, event: Event) -> None:
        self._perform(process.id, process.node.handle(event, self.now), process)

    def _perform(self, me: NodeId, effects: list[Effect], process: NodeProcess | WorkerProcess | None = None) -> None:
        for effect in effects:
            match effect:
                case Send(to, message, payload):
                    travels = payload is not None and payload.size > 0  # a frame without bytes has no payload
                    self._send(me, to, Received(me, message, payload.copy() if travels else None))
                case SetTimer(key):
                    assert process is not None
                    self.timers.append((process, key))
                case Save():
                    assert isinstance(process, NodeProcess)
                    self.saves.append((process, effect))
                case Load():
                    assert isinstance(process, NodeProcess)
                    self.loads.append((process, effect))
                case Deliver():
                    assert isinstance(process, WorkerProcess)
                    self._deliver(process, effect)
                case Fail(GoneError()):
                    assert isinstance(process, WorkerProcess)
                    process.alive = process.computing = False
                    process.told = True
                case _:
                    raise AssertionError(effect)

    def _send(self, me: NodeId, to: NodeId, event: Received) -> None:
        if to == COORDINATOR:
            self.to_coordinator.append(event)
        elif me == COORDINATOR:
            process = self._process(to)
            if isinstance(process, NodeProcess) and process.alive:
                process.views.append(event)
            elif isinstance(process, WorkerProcess) and process.alive:
                process.inbox.append(event)
        else:
            if me.role == "server" and isinstance(event.message, Params):
                self._check_answer(me.number, to.number, event.message)
            self.network[me, to].append(event)

    def _deliver(self, worker: WorkerProcess, deliver: Deliver) -> None:
        if deliver.payload is not None:
            before = worker.seen.get(deliver.bucket)
            values = self._contents(deliver.payload)
            if deliver.next is not None:
                self._check_round(worker, deliver.bucket, deliver.payload, deliver.next)
            if self.is_planned:
                assert before is None or (values >= before).all(), "a worker got a replica that lacks what it had"
                pushed = worker.acknowledged[deliver.bucket]
                assert all(values[each] == 1 for each in pushed), "an acknowledged update is missing"
            worker.seen[deliver.bucket] = values
        if deliver.next is None:
            return
        if worker.joining:
            worker.first, worker.joining = deliver.next, False
            worker.pushed = deliver.next
        for name in self.names:
            worker.acknowledged[name] = worker.made
        if worker.done:
            return
        self._check_bound(worker, deliver.next)
        if worker.pushed - worker.first >= self.case.steps:
            worker.done = True
            self._tell(worker, Depart())
        else:
            self._begin(worker)

    # What must hold.

    def _check_bound(self, worker: WorkerProcess, following: int) -> None:
        """With ssp, no worker begins an iteration too far ahead of a live one."""
        kind = self.settings.consistency
        if kind.kind != "ssp":
            return
        firsts = {each.worker: (each.incarnation, each.first) for each in self.coordinator.view.members}
        for other in self.workers.values():
            known = firsts.get(other.node.number)
            if not other.alive or other.done or known is None or known[0] != other.node.incarnation or known[1] is None:
                continue
            done = max(other.pushed, known[1])
            assert following - done <= kind.s, (worker.id, following, other.id, done)

    def _check_answer(self, number: int, worker: int, params: Params) -> None:
        """With approximate, no node answers that contains too much that another one lacks."""
        kind, case = self.settings.consistency, self.case
        if kind.kind != "approximate" or case.buckets > 1 or case.crashes or case.losses or case.deaths or case.joins:
            return
        terms = self.nodes[number].node.terms
        own = self.nodes[number].node.buckets[params.bucket].answered_at[worker]
        for node in terms.tree.nodes:
            live = [
                each
                for each in terms.workers_of(node.number)
                if not self.workers[each.worker].done and self.workers[each.worker].alive
            ]
            if live:
                other = sum(self.nodes[node.number].node.buckets[params.bucket].contained().values())
                assert own - other < kind.s, (number, own, node.number, other)

    def check_replicas(self) -> None:
        """No replica contains an update twice; no replica lacks what it had, if all that happens is planned."""
        for number, process in self.nodes.items():
            for name, bucket in process.node.buckets.items():
                if not process.alive or not bucket.serves:
                    continue
                values = self._contents(bucket.theta)
                if self.case.codec == Dense() and not self.may_show_twice:
                    assert np.isin(values, (0, 1)).all(), (number, name, values)
                before = self.shown.get((number, name))
                if before is not None and self.is_planned and self.case.codec == Dense() and not self.has_rounds:
                    assert (values >= before).all(), (number, name, np.flatnonzero(values < before))
                self.shown[number, name] = values

    def check_end(self) -> None:
        """At rest all replicas are the same, and contain all that was pushed and not lost."""
        coordinator = self.coordinator
        assert not coordinator._leaving, coordinator._leaving
        for worker in self.workers.values():
            if worker.alive:
                assert worker.node.phase is Phase.GONE, (worker.id, worker.node.phase, worker.node.progress)
        inside = [self.nodes[number].node for number in sorted(coordinator.servers)]
        for name in self.names:
            oracle = self._oracle(name, inside)
            for node in inside:
                bucket = node.buckets[name]
                assert bucket.serves, node.number
                close = 1e-6 if self.has_rounds else 1e-12
                np.testing.assert_allclose(bucket.theta, oracle, rtol=0, atol=close, err_msg=str(node.number))
                if self.case.codec == Dense() and not self.has_rounds:
                    assert np.array_equal(bucket.theta, oracle)
            oracle = self._contents(oracle)
            assert np.isin(oracle, (0, 1)).all()
            self._check_contents(name, oracle)
        for node in inside:
            assert node._is_quiet
            assert not node._deferred
            assert not node._waiting

    def _oracle(self, name: Bucket, nodes: list[TreeNode]) -> Values:
        """The sum of all updates; with rounds, the replica after the last round, which must consist of means."""
        buckets = [node.buckets[name] for node in nodes]
        rounds = [each for each in buckets if isinstance(each, RoundBucket)]
        if not rounds:
            return sum((each.values for one in buckets for each in one.held.by_origin.values()), np.zeros(self.slots))
        last = max(rounds, key=lambda each: each.closed)
        self._check_means(last.theta, last.closed + 1)
        return last.theta

    def _check_contents(self, name: Bucket, oracle: Values) -> None:
        for worker in self.all_workers:
            mine = worker.made
            if not self.forgets and not self.coordinator.orphaned:
                assert all(oracle[each] == 1 for each in worker.acknowledged[name]), worker.id
                if worker.done:
                    assert all(oracle[each] == 1 for each in mine)
            beyond = set(range(worker.base, worker.base + self.case.steps + 2)) - mine
            assert all(oracle[each] == 0 for each in beyond if worker.done)


def play(case: TreeCase) -> TreeSchedule:
    schedule = TreeSchedule(case)
    schedule.play()
    return schedule
