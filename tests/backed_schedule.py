"""Random schedules of servers with backups (scheduler.py), and what must hold there.

Messages between a server and its backup arrive in order, and a server that is killed leaves a first part of those that
are under way. A push stays in its worker's memory, also on its way to the backup, and the worker fills that memory with
NaN when it gets its answer.

After every event, the parameters have no update twice, the rule remembers exactly the updates that the parameters
contain, and a backup that has handled all events of a server is in the same state. At the end, every update that its
worker knows to be answered is there once, however it was answered. Only what a view calls lost may be missing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ledger import contains, was_dropped
from scheduler import Action, Flight, Kill, Process, Revive, Schedule, Setup
from syncline.codecs import Dense
from syncline.effects import Deliver, Effect, Event, Received, Restarted
from syncline.gates import Always
from syncline.layout import Bucket, Values, within
from syncline.messages import COORDINATOR, NodeId, Params, Taken, View, server_id
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.server.backed_coordinator import BackedCoordinator
from syncline.nodes.server.backed_shard import BackedShard
from syncline.nodes.server.bucket import HeldBucket
from syncline.nodes.server.coordinator import Replace
from syncline.nodes.server.log_messages import LogEntry, LogStart, LogTaken
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Phase
from syncline.rules import Memory
from syncline.sync import Release, SyncModel

LOG = (LogStart, LogEntry, LogTaken)


@dataclass(frozen=True)
class Remember:
    """A rule that counts in `params` and in its memory how often each coordinate was updated."""

    of_gradients = True
    keeps = True

    def start(self, params: Values) -> Memory:
        return {"seen": np.zeros_like(params)}

    def apply(
        self, params: Values, update: Values, memory: Memory, staleness: int, lr: float | None, work: Values
    ) -> None:
        params += update != 0
        memory["seen"] += update != 0


class Watched:
    """A server with a backup; checks the state of its buckets after each event."""

    def __init__(self, node: BackedShard) -> None:
        self.node = node
        self.shard = node.shard

    def step(self, event: Event, now: float) -> list[Effect]:
        before = {name: (bucket.v, bucket.version) for name, bucket in self.shard.buckets.items()}
        effects = self.node.handle(event, now)
        for name, bucket in self.shard.buckets.items():
            assert bucket.params.max() <= 1, f"{name}: an update was applied twice"
            assert before.get(name, (0, 0)) <= (bucket.v, bucket.version), f"{name}: V or the version went back"
        return effects


class BackedSchedule(Schedule):
    """A schedule whose servers have backups. `spaced`: a server is killed only while all backups are complete."""

    def __init__(self, setup: Setup, *, spaced: bool) -> None:
        self.spaced = spaced
        self.lost_something = False
        super().__init__(setup)
        for ledger in self.ledgers:
            self._at_shard(ledger, Received(COORDINATOR, View(1, self.coordinator.view.members, self._first_holders)))

    # Making nodes.

    def _make_coordinator(self, view: View, replace: Replace) -> BackedCoordinator:
        self._first_holders = view.topology
        return BackedCoordinator(view, replace)

    def _terms(self, model: SyncModel, release: Release) -> ShardTerms:
        return ShardTerms(model, self.setup.rule, Dense(), self.parts.draw, release, recovers=True, backed=True)

    def _shard(self, number: int, view: View, model: SyncModel, release: Release) -> Watched:
        held = view.holders[number] if number < len(view.holders) else ()
        pieces = {name: np.zeros(name.size, np.float32) for name in held}
        return self._watched(Shard(number, pieces, self._terms(model, release), view), view)

    def _empty(self, number: int, terms: ShardTerms) -> Watched:
        view = self.coordinator.view
        return self._watched(Shard(number, {}, terms, view), view)

    def _watched(self, shard: Shard, view: View) -> Watched:
        first = None if self.setup.seed % 2 else {name: np.zeros(name.size, np.float32) for name in self.names}
        release = self.setup.release
        return Watched(BackedShard(shard, view, lambda _: self._terms(self.setup.models[0], release), first))

    # Playing.

    def act(self, action: Action) -> None:
        if isinstance(action, Kill) and self.spaced and not self._is_safe():
            return
        if isinstance(action, Revive) and self.lost and not self.dead:
            self._return(sorted(self.lost)[action.k % len(self.lost)])
        super().act(action)

    def _return(self, number: int) -> None:
        """A server starts again after its death was noticed."""
        terms = self.ledgers[number].shard.terms
        self.ledgers[number] = self._empty(number, self._terms(terms.model, terms.release))
        self.lost.discard(number)
        self._at_coordinator(Restarted(number, 1))

    def _is_safe(self) -> bool:
        """Whether all that the live servers hold has a complete backup."""
        view = self.coordinator.view
        if self.dead or view.stand_ins or view.lost:
            return False
        nodes = [each.node for each in self.living]
        complete = {(each.number, log.since) for each in nodes for log in each._logs.values() if log.taken >= 0}
        holding = {number for number, held in enumerate(view.holders) if held}
        for number in holding.union(each.server for each in view.backups):
            mine = [each for each in view.backups if each.server == number]
            if not mine or (number, mine[0].since) not in complete:
                return False
        return True

    def _kill(self, ledger: Watched, keep: int) -> None:
        me = server_id(ledger.shard.number)
        logged = [each for each in self.flights if each.source == me and isinstance(each.message, LOG)]
        left = logged[: keep % (len(logged) + 1)]
        super()._kill(ledger, keep)
        others = [each for each in self.flights if each.source != me or not isinstance(each.message, LOG)]
        self.flights = [*left, *others] if keep % 2 else [*others, *left]

    def _uncertain(self) -> list[Flight]:
        return [each for each in super()._uncertain() if each.source != COORDINATOR]

    def _arrive(self, flight: Flight) -> None:
        if isinstance(flight.message, LOG):
            row = [each for each in self.flights if (each.source, each.to) == (flight.source, flight.to)]
            row = [each for each in row if isinstance(each.message, LOG)]
            if row:
                flight = row[0]
        super()._arrive(flight)

    def _at_coordinator(self, event: Event) -> None:
        super()._at_coordinator(event)
        self.lost_something |= bool(self.coordinator.view.lost)
        if self.spaced:
            assert not self.lost_something, f"something is lost: {self.coordinator.view}"

    def _at_shard(self, ledger: Watched, event: Event) -> None:
        super()._at_shard(ledger, event)
        if not self.lost_something:
            for bucket in ledger.shard.buckets.values():
                seen = bucket.memory.get("seen", bucket.params)
                assert np.array_equal(seen, bucket.params), f"{bucket.name}: the rule has forgotten updates"
        for server, other in [(ledger, each) for each in self.living] + [(each, ledger) for each in self.living]:
            if server is not other:
                check_alike(server.node, other.node)

    def _send(self, source: NodeId, send: object) -> None:
        message = send.message
        if isinstance(message, Params | Taken) and message.late:
            self.books.dropped.add((send.to.number, message.incarnation, message.progress, message.bucket))
        super()._send(source, send)

    # Checks.

    def _check_own(self, process: Process, deliver: Deliver, i: int) -> None:
        node = process.node
        key = (node.number, node.incarnation, i, deliver.bucket)
        empty = any(j == i and contains(name, deliver.bucket) for name, j in process.empty)
        asked = i != process.pulled and not empty and not was_dropped(self.books, key)
        if asked and isinstance(self.setup.gate, Always):
            mine = deliver.payload[self._own(deliver.bucket, node, i)]
            assert (mine == 1).all(), f"{key} reads no own update"

    def _check_end(self, process: Process) -> None:
        vs = [bucket.v for bucket in self.held]
        assert self._is_at_rest(process), f"{process.name} is stuck at {process.node.progress}, V = {vs}"

    def _check_given(self, process: Process) -> None:
        node = process.node
        cut_off = process.failed or (not process.alive and node.phase is Phase.LEAVING)
        late = any(key[:2] == (node.number, node.incarnation) for key in self.books.dropped)
        if not process.finished or cut_off or late:
            return
        if self.lost_something and not (process.alive and node.phase is Phase.RUNNING and self._fetches_all()):
            return
        here = {bucket.name: bucket for bucket in self.held}
        held = {} if node._gating is None else node._gating.held
        for bucket, i in process.given:
            for piece in bucket_map_of(self.coordinator.view.holders).inside(bucket):
                there = _updates_at(here[piece])
                for name, (values, _) in held.items():
                    if contains(name, piece):
                        there += values[within(name, piece)] != 0
                mine = there[self._own(piece, node, i)]
                assert (mine == 1).all(), f"{process.name}: the update of iteration {i} is lost in {piece}"


def _updates_at(bucket: HeldBucket) -> Values:
    """How often each coordinate was updated, or will be when its round closes."""
    there = bucket.params.copy()
    for _, _, update in bucket._kept.everything():
        if update.payload is not None:
            there += bucket.optimised.decoded(update.payload) != 0
    return there


def check_alike(server: BackedShard, backup: BackedShard) -> None:
    """A backup that has handled all events of a server is in the same state."""
    follower = backup._followers.get(server.number)
    if follower is None or not follower.is_complete or follower.number != server._count:
        return
    if follower.since not in server._logs:
        return
    one, other = server.shard, follower.shard
    assert one.state() == other.state()
    assert one.buckets.keys() == other.buckets.keys()
    assert _waiting(one) == _waiting(other)
    for name, bucket in one.buckets.items():
        copy = other.buckets[name]
        for fact, (mine, its) in enumerate(zip(_facts(bucket), _facts(copy), strict=True)):
            assert mine == its, f"{name}: the backup differs in fact {fact}: {its} instead of {mine}"
        assert bucket.params.tobytes() == copy.params.tobytes(), f"{name}: the backup has other parameters"
        assert _same(bucket.memory, copy.memory), f"{name}: the backup remembers something else"


def _waiting(shard: Shard) -> list[object]:
    """The requests that wait, without those of former members, which are refused when their turn comes."""
    present, view = shard.terms.present, shard.terms.view
    return [
        (each.source, each.message)
        for each in shard.waiting()
        if each.message.view > view or (each.source.number, each.message.incarnation) in present
    ]


def _same(one: Mapping[str, Values], other: Mapping[str, Values]) -> bool:
    return all(one[name].tobytes() == other[name].tobytes() for name in one)


def _facts(bucket: HeldBucket) -> Sequence[object]:
    known = bucket.known()
    workers = (known.pushed, known.seen, known.late, known.pulled, known.contained, known.unanswered)
    parked = [(under, each.source, each.message) for under, each in known.lot.everything()]
    kept = sorted((i, who, each.payload is None) for i, who, each in known.kept.everything())
    return (*known[:5], *workers, parked, kept, known.paces.steps(), bucket.missing)


__all__ = ["BackedSchedule", "Bucket", "Remember"]
