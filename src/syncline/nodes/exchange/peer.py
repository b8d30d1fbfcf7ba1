"""One worker of the exchange strategy (Ako: partial gradient exchange).

1. An update is the change that the worker's optimizer made, divided by the number of workers. The worker adds it to
   its own replica. The worker's clock is the number of its updates.
2. The model is cut into p ranges. After its t-th update a worker sends worker i the range (i + t) mod p, summed over
   all updates that i lacks of it. A message names its range and its updates, first to last. A receiver applies it only
   if `first` follows the last update that it has of that range (its mark), so it applies every value exactly once.
3. While a link is busy, nothing is queued on it. The range stays due, and its sum grows. It is sent as soon as the link
   is free (`Idle`), also while the worker waits.
4. What arrives during a step is applied at its end, never inside it.
5. A worker begins a step only while its clock < (clock of the slowest peer, as seen here) + p + tau. The clock of a
   peer as seen here is min(p - 1 + its least mark, its greatest mark). Before the start, marks are as if the ranges had
   been sent in turn after the updates 0, -1, ..., 1 - p.
6. With p = 1 and tau = 0 workers step in rounds: each message carries one update, and a worker applies it only when it
   has made as many updates itself. So the replicas are those of synchronous SGD.
7. After its last step a worker sends everything that it owes, then `Farewell`, which the others answer. From then on
   nobody waits for it. It goes on receiving until all others have said farewell too. A worker that leaves earlier waits
   only for the answers.
8. Links are FIFO and lose nothing while both ends live. So a worker forgets an update when all live peers have been
   sent all of its values.
9. A peer that dies leaves the clocks. What a worker has of its last updates is recorded (`losses`).
10. joins.py says how a worker joins.
11. A change of p begins with a flush: between two steps every peer gets all that it lacks.
"""

from __future__ import annotations

from dataclasses import dataclass

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
    Finish,
    How,
    Idle,
    Ready,
    Received,
    Reject,
    Send,
)
from syncline.errors import GoneError, NotFinite, PeerError
from syncline.layout import VALUE_BYTES, Bucket, Layout, Payload, Weigh, Within, is_finite
from syncline.messages import COORDINATOR, Gone, LeaveNotice, Message, NodeId, View
from syncline.nodes.exchange.joins import Joins
from syncline.nodes.exchange.marks import Marks
from syncline.nodes.exchange.messages import (
    Entry,
    Farewell,
    Grant,
    Holding,
    NewRanges,
    Partitioning,
    RangeSum,
    SpeedReport,
)
from syncline.nodes.exchange.ranges import FlatMap
from syncline.nodes.exchange.receiving import RangeReceiver, ReceivedRanges
from syncline.nodes.exchange.repartitioning import Repartitioning
from syncline.nodes.exchange.sending import RangeSender
from syncline.nodes.peer_losses import PeerLoss
from syncline.nodes.phase import Phase
from syncline.nodes.protocol import Counts, Trainer
from syncline.nodes.update_writer import bucket_codec

JOINING, RUNNING, LEAVING, GONE = Phase


@dataclass(frozen=True)
class ExchangeTerms:
    """The settings that all workers share."""

    layout: Layout
    draw: Draw
    within: Within
    parts: int
    """How many ranges there are at the start."""
    tau: int
    accumulate: bool = True
    codec: Codec = Dense()
    finite: bool = False
    checks: bool = False
    """Whether values that arrive are checked, unless they are of the run's own workers."""
    own_workers: int = 0
    """Workers with a lower number are the run's own."""
    weigh: Weigh | None = None
    """The bytes of a range on the wire; None: the size of its plain values, or the codec's."""
    at_once: int = 0
    """To how many peers on other hosts a worker sends at a time; 0: to all."""
    measures: bool = False
    """Whether the workers measure how many ranges are best."""
    again: bool = True
    """Whether they measure again after the first choice."""


class ExchangeWorker(Trainer):
    """The node of one worker."""

    def __init__(
        self, number: int, incarnation: int, terms: ExchangeTerms, buckets: tuple[Bucket, ...], view: View
    ) -> None:
        self.number, self.incarnation, self.progress, self.phase = number, incarnation, 0, JOINING
        self.losses: list[PeerLoss] = []
        self._began = 0
        self._terms, self._view = terms, view
        self._flat = FlatMap(buckets, terms.within)
        self._given: set[Bucket] = set()
        """The buckets of the current update that the application has handed in."""
        self._computing = True
        """Whether a step has begun whose update is not complete."""
        self._finished = False
        self._bid: set[int] = set()
        """The peers to which this worker has said farewell."""
        self._has_bid = False
        """Whether it has ever said farewell to anybody."""
        self._heard: set[int] = set()
        """The peers that have answered its farewell: so it has reached them, and all that was sent before it."""
        self._early: list[Received] = []
        """Messages of workers that no view here has named yet."""
        self.sender = RangeSender(number, incarnation, self._flat, terms.layout, terms.draw, terms.codec)
        self.sender.at_once = terms.at_once
        self.receiver = RangeReceiver(self._flat, terms.layout, terms.codec)
        self._joins = Joins(self)
        self._repartitioning = Repartitioning(self, terms.measures, terms.again)
        members = {member.worker: member for member in view.members}
        me = members.pop(number, None)
        if me is not None and me.incarnation == incarnation and me.first is not None:
            self.begin(terms.parts, me.first)
            self.phase = RUNNING
            self._computing = True  # the application begins its first step without asking
            for member in members.values():
                marks = Marks.in_turn(number, me.first, terms.parts)
                self.add_peer(member.worker, ReceivedRanges(member.incarnation, marks))

    def begin(self, parts: int, clock: int) -> None:
        """Begin with the update after `clock`."""
        self.progress = self._began = clock
        self._computing = False
        self.sender.begin(parts, clock, self._terms.accumulate)
        self.sender.view = self._view.view
        self.changed_ranges()

    def changed_ranges(self) -> None:
        """The number of ranges has changed."""
        self.sender.one_by_one = self._in_rounds
        self._update = self.sender.window.empty()

    @property
    def is_leaving(self) -> bool:
        """Whether this worker leaves although it could go on."""
        return self.phase is LEAVING and not self._finished

    def has_bid(self, peer: int) -> bool:
        """Whether this worker has said farewell to this peer; if it is this worker itself, to anybody."""
        return self._has_bid if peer == self.number else peer in self._bid

    @property
    def joins_busy(self) -> bool:
        return self._joins.busy

    def add_peer(self, peer: int, received: ReceivedRanges, sent: Marks | None = None) -> None:
        self.receiver.peers[peer] = received
        self.sender.add_peer(peer, sent)

    # What engines ask.

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return self._flat.buckets[::-1]

    @property
    def flat(self) -> FlatMap:
        return self._flat

    @property
    def view(self) -> View:
        return self._view

    def weight(self, bucket: Bucket) -> int:
        """The bytes that a range takes on the wire."""
        if self._terms.weigh is not None:
            return self._terms.weigh(bucket)[0]
        return bucket_codec(self._terms.codec, self._terms.layout, bucket).size(bucket.size)

    @property
    def between_steps(self) -> bool:
        return not self._computing

    @property
    def parts(self) -> int:
        return self.sender.parts

    @property
    def closed(self) -> int:  # type: ignore[override]
        clocks = [each.marks.clock for each in self.receiver.peers.values() if not each.finished]
        return max(0, min([self.progress, *clocks]))

    @property
    def is_waiting(self) -> bool:
        """A worker always reads: what arrives does not wait for the application."""
        return self.phase is not GONE and bool(self.receiver.peers or self.phase is JOINING)

    def is_given(self, bucket: Bucket) -> bool:
        return bucket in self._given

    def is_answered(self, bucket: Bucket) -> bool:
        return False  # a step ends for all buckets together

    def counts(self) -> Counts:
        return Counts(self.progress - self._began, progress=self.progress)

    def place_of(self, source: NodeId, message: Message, size: int) -> Bucket | None:
        match message:
            case RangeSum():
                peer = self._peer(source, message.incarnation)
                if peer is not None:
                    self.receiver.check(peer, message, size)
                elif size > message.bucket.size * VALUE_BYTES:
                    raise PeerError(f"it sent {message.bucket} with a payload of the wrong size: {size:,} bytes")
            case Grant() if self.phase is JOINING and size == self._flat.whole.size * VALUE_BYTES:
                pass
            case _:
                raise PeerError(f"{type(message).__name__} must not have a payload of {size:,} bytes")
        return None

    # Events.

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: list[Effect] = []
        if self.phase is GONE:
            return out
        self.sender.begin_event()
        match event:
            case Ready():
                self._give(event, now, out)
            case Received(source, message, payload):
                try:
                    self._receive(event, source, message, payload, out)
                except PeerError as error:
                    out.append(Reject(source, str(error)))
            case Idle():
                self._idle(event, now, out)
            case Enter():
                self._joins.enter(out)
            case Finish():
                self._finish(out)
            case Depart():
                self._depart(out)
            case _:
                raise PeerError(f"worker {self.number} does not accept this event: {event}")
        self._go_on(now, out)
        self.sender.send_waiting(out)
        self._repartitioning.watch(out, now)
        return out

    def _receive(
        self, event: Received, source: NodeId, message: Message, payload: Payload | None, out: list[Effect]
    ) -> None:
        if source == COORDINATOR:
            self._from_coordinator(message, out)
        elif type(message) is RangeSum:
            self._take(event, message, payload, out)
        elif self._is_early(source, message):
            self._keep(event)
        elif type(message) is Grant:
            self._joins.granted(source.number, message, payload, out)
        elif type(message) is Entry:
            self._joins.entered(source.number, message, out)
        else:
            self._control(source, message, out)

    def _keep(self, event: Received) -> None:
        """Keep a message for a later view; the payload may not stay where it is."""
        payload = None if event.payload is None else event.payload.copy()
        self._early.append(Received(event.source, event.message, payload))

    def _is_early(self, source: NodeId, message: Message) -> bool:
        """Whether this comes from a worker, or from a donor, that only a later view names."""
        unknown = source.number not in self.receiver.peers or type(message) is Grant
        return message.view > self._view.view and unknown

    def _from_coordinator(self, message: Message, out: list[Effect]) -> None:
        if type(message) is View:
            self._adopt(message, out)
        elif type(message) is Gone and message.incarnation == self.incarnation:
            self.phase = GONE
            out.append(Fail(GoneError(self.number, self.incarnation, self.progress)))

    def _control(self, source: NodeId, message: Message, out: list[Effect]) -> None:
        peer = self._peer(source, getattr(message, "incarnation", -1))
        if peer is None:
            return
        match message:
            case Farewell(heard=True):
                self._heard.add(source.number)
            case Farewell(leaving=leaving):
                peer.finished = True
                out.append(Send(source, Farewell(self._view.view, self.incarnation, heard=True)))
                if leaving:
                    peer.left = True
                    self.sender.drop_peer(source.number)
            case NewRanges(parts=parts, clock=clock):
                peer.marks = Marks.in_turn(self.number, clock, parts)
            case Holding(joiner=joiner, joiner_incarnation=incarnation):
                self._joins.holds(source.number, (joiner, incarnation))
            case SpeedReport(rate=rate, bandwidth=bandwidth):
                self._repartitioning.heard(source.number, rate, bandwidth)
            case Partitioning(parts=parts):
                self._repartitioning.want(parts)

    def _peer(self, source: NodeId, incarnation: int) -> ReceivedRanges | None:
        """The peer that sent a message; None if that incarnation is no member."""
        peer = self.receiver.peers.get(source.number)
        return peer if peer is not None and peer.incarnation == incarnation else None

    # The application's update.

    def _give(self, ready: Ready, now: float, out: list[Effect]) -> None:
        bucket, update = ready.bucket, ready.payload
        if self.phase is not RUNNING or not self._computing or bucket in self._given:
            raise PeerError(f"worker {self.number}: a new update of {bucket} before the step has begun")
        if self._terms.finite and update is not None and not is_finite(update):
            table = self._terms.layout.first_not_finite(bucket, update)
            assert table is not None
            out.append(Fail(NotFinite(self.number, self.progress, table.name)))
            return
        place = self._update[self._flat.where(bucket)]
        if update is None:
            place[:] = 0
        else:
            np.divide(update, np.float32(self._workers()), place)
        self._given.add(bucket)
        if len(self._given) == len(self._flat.buckets):
            self._repartitioning.measure.ends(now)
            self._complete(out)

    def _workers(self) -> int:
        """The number of workers by which a change is divided."""
        return max(1, sum(member.first is not None for member in self._view.members))

    def _complete(self, out: list[Effect]) -> None:
        """The update is complete: add it to the replica with what has arrived, and send what is due."""
        self._computing = False
        self.progress += 1
        update = self._update
        out.extend(Deliver(each, update[self._flat.where(each)], None, How.ADD) for each in self._flat.buckets)
        out.extend(self.receiver.deliver_kept())
        self.sender.add(update, out)
        self._update = self.sender.window.empty()

    def _go_on(self, now: float, out: list[Effect]) -> None:
        """After each event: begin the next step, or whatever else has become possible."""
        self._joins.go_on(out)
        if self.phase is LEAVING:
            self._say_farewell(out)
        elif self.phase is RUNNING and not self._computing and not self._finished:
            self._repartitioning.go_on(out)
            if not self._repartitioning.is_flushing and self._may_begin():
                self._begin_step(now, out)

    def _may_begin(self) -> bool:
        limit = self.progress - self.parts - self._terms.tau
        return all(peer.finished or peer.marks.clock > limit for peer in self.receiver.peers.values())

    def _begin_step(self, now: float, out: list[Effect]) -> None:
        self._computing = True
        self._given.clear()
        self._repartitioning.measure.begins(now)
        out.append(Deliver(self._flat.buckets[0], None, self.progress))

    # Ranges.

    @property
    def _in_rounds(self) -> bool:
        return self.sender.parts == 1 and self._terms.tau == 0

    def _take(self, event: Received, message: RangeSum, payload: Payload | None, out: list[Effect]) -> None:
        peer = self._peer(event.source, message.incarnation)
        if peer is None:
            if message.view > self._view.view and event.source.number not in self.receiver.peers:
                self._keep(event)
            return
        self.receiver.check(peer, message, message.size or message.bucket.size * VALUE_BYTES)
        if not self.receiver.follows(peer, message):
            return
        values = self.receiver.values(message, payload)
        if values is not None and self._is_doubtful(event.source) and not is_finite(values):
            raise PeerError(f"it sent NaN or infinity in {message.bucket}")
        peer.marks.advance(message.part, message.last)
        if values is None:
            return
        ahead = self._in_rounds and message.last > self.progress and not self._finished
        if self._computing or ahead:
            self.receiver.keep(message, values)
        else:
            out.extend(self.receiver.deliver(message, values))

    def _is_doubtful(self, source: NodeId) -> bool:
        """Whether values of this worker are checked; the run's own workers check theirs themselves."""
        return self._terms.checks and source.number >= self._terms.own_workers

    def _idle(self, event: Idle, now: float, out: list[Effect]) -> None:
        peer = event.peer.number
        self._repartitioning.measure.idle(event, now)
        self._joins.idle(peer)
        owed = self.sender.peers.get(peer)
        if owed is not None:
            owed.free, owed.near = True, event.shared
            self.sender.send_due(owed, out)

    # Members.

    def _adopt(self, view: View, out: list[Effect]) -> None:
        if view.view <= self._view.view:
            return
        self._view, self.sender.view = view, view.view
        live = {(member.worker, member.incarnation) for member in view.members}
        for number, peer in list(self.receiver.peers.items()):
            if (number, peer.incarnation) not in live:
                self._drop(number, peer)
        self._joins.adopt(view, out)
        early, self._early = self._early, []
        for event in early:
            self._receive(event, event.source, event.message, event.payload, out)

    def _drop(self, number: int, peer: ReceivedRanges) -> None:
        """A peer is no member any more."""
        self.lose(number, peer)
        del self.receiver.peers[number]
        self._bid.discard(number)
        self._heard.discard(number)
        self.sender.drop_peer(number)
        self._repartitioning.dropped(number)

    def lose(self, number: int, peer: ReceivedRanges) -> None:
        """Record what this replica has of a peer that is gone, unless it has everything."""
        if not peer.finished:
            self.losses.append(PeerLoss(number, peer.incarnation, peer.marks.reached))

    # The end.

    def _finish(self, out: list[Effect]) -> None:
        self._finished = True
        self._end_step(out)

    def _end_step(self, out: list[Effect]) -> None:
        """No step follows: what arrives is applied at once. What is missing of a half-made update counts as zero."""
        if self._given and self._computing:
            for bucket in self._flat.buckets:
                if bucket not in self._given:
                    self._update[self._flat.where(bucket)] = 0
            self._complete(out)
        self._computing = False
        out.extend(self.receiver.deliver_kept())

    def _depart(self, out: list[Effect]) -> None:
        if self.phase is JOINING:
            self._leave(out)
            return
        self._end_step(out)
        self.phase = LEAVING

    def _say_farewell(self, out: list[Effect]) -> None:
        """Say farewell to every peer that has everything; leave when all peers have said what this worker waits for."""
        if self.is_leaving and self._joins.busy:
            return
        self.sender.flush(out)
        for peer in self.sender.peers:
            if peer not in self._bid and not self.sender.owes(peer):
                self._bid.add(peer)
                self._has_bid = True
                message = Farewell(self._view.view, self.incarnation, leaving=not self._finished)
                self.sender.control(peer, message, out)
        waits = [number for number, peer in self.receiver.peers.items() if not self._is_released(number, peer)]
        if not waits and not self._joins.busy and not any(self.sender.owes(peer) for peer in self.sender.peers):
            self._leave(out)

    def _is_released(self, number: int, peer: ReceivedRanges) -> bool:
        """Whether this peer has everything, by its own word, and this worker needs nothing more of it."""
        return peer.left or (number in self._heard and (peer.finished or not self._finished))

    def _leave(self, out: list[Effect]) -> None:
        self.phase = GONE
        out.append(Send(COORDINATOR, LeaveNotice(self._view.view, self.incarnation)))
