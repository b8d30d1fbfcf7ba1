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
12. collecting.py says how a worker gets everything that the others have done, for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Mapping

from syncline.effects import Collect, Depart, Effect, Enter, Event, Fail, Finish, Idle, Ready, Received, Reject
from syncline.errors import GoneError, PeerError
from syncline.layout import Bucket
from syncline.messages import COORDINATOR, Gone, Message, NodeId, View
from syncline.nodes.exchange.arrivals import Arrivals
from syncline.nodes.exchange.collecting import Collecting
from syncline.nodes.exchange.farewells import Farewells
from syncline.nodes.exchange.joins import Joins
from syncline.nodes.exchange.marks import Marks
from syncline.nodes.exchange.ranges import FlatMap
from syncline.nodes.exchange.receiving import RangeReceiver, ReceivedRanges
from syncline.nodes.exchange.repartitioning import Repartitioning
from syncline.nodes.exchange.sending import RangeSender
from syncline.nodes.exchange.steps import ExchangeSteps
from syncline.nodes.exchange.terms import ExchangeTerms
from syncline.nodes.peer_losses import PeerLoss
from syncline.nodes.phase import Phase
from syncline.nodes.protocol import Collected, Collector, Counts
from syncline.nodes.update_writer import bucket_codec

JOINING, RUNNING, LEAVING, GONE = Phase


class ExchangeWorker(Collector):
    """The node of one worker."""

    def __init__(
        self,
        number: int,
        incarnation: int,
        terms: ExchangeTerms,
        buckets: tuple[Bucket, ...],
        view: View,
    ) -> None:
        self.number, self.incarnation, self.progress, self.phase = number, incarnation, 0, JOINING
        self.losses: list[PeerLoss] = []
        self.terms, self.view = terms, view
        self.flat = FlatMap(buckets, terms.within)
        self._began = 0
        self.steps = ExchangeSteps(self)
        self.sender = RangeSender(number, incarnation, self.flat, terms.layout, terms.draw, terms.codec)
        self.sender.at_once = terms.at_once
        self.receiver = RangeReceiver(self.flat, terms.layout, terms.codec, terms.accumulate)
        self._arrivals = Arrivals(self)
        self.joins = Joins(self)
        self.collecting = Collecting(self)
        self.farewells = Farewells(self)
        self.repartitioning = Repartitioning(self, terms.measures, terms.again)
        members = {member.worker: member for member in view.members}
        me = members.pop(number, None)
        if me is not None and me.incarnation == incarnation and me.first is not None:
            self.phase = RUNNING
            self._begin_together(dict.fromkeys(members, me.first) | {number: me.first})

    def _begin_together(self, clocks: Mapping[int, int]) -> None:
        """Begin at the same time as the others, each with the update after its clock; all replicas are equal."""
        self.begin(self.terms.parts, clocks[self.number])
        for member in self.view.members:
            if member.worker != self.number:
                marks = Marks.in_turn(self.number, clocks[member.worker], self.terms.parts)
                self.add_peer(member.worker, ReceivedRanges(member.incarnation, marks))
        self.steps.computing = self.steps.may_begin()  # then the application begins its first step without asking

    def resume(self, clocks: Mapping[int, int]) -> None:
        if {member.worker for member in self.view.members} <= clocks.keys():
            self._begin_together(clocks)

    @property
    def may_start(self) -> bool:
        return self.steps.computing

    def begin(self, parts: int, clock: int) -> None:
        """Begin with the update after `clock`."""
        self.progress = self._began = clock
        self.steps.computing = False
        self.sender.begin(parts, clock, self.terms.accumulate)
        self.sender.view = self.view.view
        self.steps.changed_ranges()

    @property
    def finished(self) -> bool:
        """Whether the application has made its last step."""
        return self.steps.finished

    @property
    def is_leaving(self) -> bool:
        """Whether this worker leaves although it could go on."""
        return self.phase is LEAVING and not self.finished

    def add_peer(self, peer: int, received: ReceivedRanges, sent: Marks | None = None) -> None:
        self.receiver.peers[peer] = received
        self.sender.add_peer(peer, sent)

    # What engines ask.

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        return self.flat.buckets[::-1]

    def weight(self, bucket: Bucket) -> int:
        """The bytes that a range takes on the wire."""
        if self.terms.weigh is not None:
            return self.terms.weigh(bucket)[0]
        return bucket_codec(self.terms.codec, self.terms.layout, bucket).size(bucket.size)

    @property
    def between_steps(self) -> bool:
        return not self.steps.computing

    @property
    def collected(self) -> Collected | None:
        return self.collecting.found

    @property
    def parts(self) -> int:
        return self.sender.parts

    @property
    def closed(self) -> int:  # type: ignore[override]
        clocks = [each.marks.clock for each in self.receiver.peers.values() if not each.finished]
        return max(0, min([self.progress, *clocks]))

    @property
    def is_waiting(self) -> bool:
        """A worker always reads: what arrives, also from the first worker that joins, does not wait for the program."""
        return self.phase is not GONE

    def is_given(self, bucket: Bucket) -> bool:
        return self.steps.is_given(bucket)

    def is_answered(self, bucket: Bucket) -> bool:
        return False  # a step ends for all buckets together

    def counts(self) -> Counts:
        made, staleness = self.progress - self._began, self.receiver.staleness
        return Counts(made, progress=self.progress, staleness=staleness, partitions=self.parts)

    def place_of(self, source: NodeId, message: Message, size: int) -> Bucket | None:
        self._arrivals.check_place(source, message, size)
        return None

    # Events.

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: list[Effect] = []
        if self.phase is GONE:
            return out
        self.sender.begin_event()
        match event:
            case Ready():
                self.steps.give(event, now, out)
            case Received(source):
                try:
                    self._receive(event, out)
                except PeerError as error:
                    out.append(Reject(source, str(error)))
            case Idle():
                self._idle(event, now, out)
            case Enter():
                self.joins.enter(out)
            case Finish():
                self.steps.finished = True
                self.steps.end(out)
            case Collect():
                self.collecting.begin(out)
            case Depart():
                self._depart(out)
            case _:
                raise PeerError(f"worker {self.number} does not accept this event: {event}")
        self._go_on(now, out)
        self.sender.send_waiting(out)
        self.repartitioning.watch(out, now)
        return out

    def _receive(self, event: Received, out: list[Effect]) -> None:
        message = event.message
        if event.source != COORDINATOR:
            self._arrivals.receive(event, out)
        elif type(message) is View:
            self._adopt(message, out)
        elif type(message) is Gone and message.incarnation == self.incarnation:
            self.phase = GONE
            out.append(Fail(GoneError(self.number, self.incarnation, self.progress)))

    def _idle(self, event: Idle, now: float, out: list[Effect]) -> None:
        peer = event.peer.number
        self.repartitioning.measure.idle(event, now)
        self.joins.idle(peer)
        owed = self.sender.peers.get(peer)
        if owed is not None:
            owed.free, owed.near = True, event.shared
            self.sender.send_due(owed, out)

    def _go_on(self, now: float, out: list[Effect]) -> None:
        """After each event: begin the next step, or whatever else has become possible."""
        self.joins.go_on(out)
        self.collecting.go_on(out)
        if self.phase is LEAVING:
            self.farewells.go_on(out)
        elif self.phase is RUNNING and not self.steps.computing and not self.finished:
            self.repartitioning.go_on(out)
            if not self.repartitioning.is_flushing and not self.collecting.is_asked and self.steps.may_begin():
                self.steps.begin(now, out)

    # Members.

    def _adopt(self, view: View, out: list[Effect]) -> None:
        if view.view <= self.view.view:
            return
        self.view, self.sender.view = view, view.view
        live = {(member.worker, member.incarnation) for member in view.members}
        for number, peer in list(self.receiver.peers.items()):
            if (number, peer.incarnation) not in live:
                self._drop(number, peer)
        self.joins.adopt(view, out)
        self._arrivals.again(out)

    def _drop(self, number: int, peer: ReceivedRanges) -> None:
        """A peer is no member any more."""
        self.lose(number, peer)
        del self.receiver.peers[number]
        self.farewells.drop(number)
        self.sender.drop_peer(number)
        self.repartitioning.dropped(number)
        self.collecting.dropped(number)

    def lose(self, number: int, peer: ReceivedRanges) -> None:
        """Record what this replica has of a peer that is gone, unless it has everything."""
        if not peer.finished:
            self.losses.append(PeerLoss(number, peer.incarnation, peer.marks.reached))

    # The end.

    def _depart(self, out: list[Effect]) -> None:
        if self.phase is JOINING:
            self.farewells.leave(out)
            return
        self.steps.end(out)
        self.phase = LEAVING
