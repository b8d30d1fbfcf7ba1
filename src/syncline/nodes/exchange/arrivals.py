"""What arrives at a worker from the others: sums of updates, and messages without values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Effect, Received, Send
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Payload, is_finite
from syncline.messages import Message, NodeId
from syncline.nodes.exchange.marks import Marks
from syncline.nodes.exchange.messages import (
    CollectReply,
    CollectRequest,
    Entry,
    Farewell,
    Grant,
    Holding,
    NewRanges,
    Partitioning,
    RangeSum,
    SpeedReport,
)
from syncline.nodes.exchange.receiving import ReceivedRanges
from syncline.nodes.phase import Phase

if TYPE_CHECKING:
    from syncline.nodes.exchange.peer import ExchangeWorker


class Arrivals:
    """Checks the messages of peers and takes them in."""

    def __init__(self, worker: ExchangeWorker) -> None:
        self._worker = worker
        self._early: list[Received] = []
        """Messages of workers that no view here has named yet."""

    def check_place(self, source: NodeId, message: Message, size: int) -> None:
        """Raise `PeerError` if this message must not have a payload of this size."""
        worker = self._worker
        match message:
            case RangeSum():
                peer = self._peer(source, message.incarnation)
                if peer is not None:
                    worker.receiver.check(peer, message, size)
                elif size > message.bucket.size * VALUE_BYTES:
                    raise PeerError(f"it sent {message.bucket} with a payload of the wrong size: {size:,} bytes")
            case Grant() if worker.phase is Phase.JOINING and size == worker.flat.whole.size * VALUE_BYTES:
                pass
            case _:
                raise PeerError(f"{type(message).__name__} must not have a payload of {size:,} bytes")

    def receive(self, event: Received, out: list[Effect]) -> None:
        source, message, payload = event.source, event.message, event.payload
        if type(message) is RangeSum:
            self._take(event, message, payload, out)
        elif self._is_early(source, message):
            self._keep(event)
        elif type(message) is Grant:
            self._worker.joins.granted(source.number, message, payload, out)
        elif type(message) is Entry:
            self._worker.joins.entered(source.number, message, out)
        else:
            self._control(source, message, out)

    def again(self, out: list[Effect]) -> None:
        """A new view: receive once more what was too early."""
        early, self._early = self._early, []
        for event in early:
            self.receive(event, out)

    def _keep(self, event: Received) -> None:
        """Keep a message for a later view; the payload may not stay where it is."""
        payload = None if event.payload is None else event.payload.copy()
        self._early.append(Received(event.source, event.message, payload))

    def _is_early(self, source: NodeId, message: Message) -> bool:
        """Whether this comes from a worker, or from a donor, that only a later view names."""
        unknown = source.number not in self._worker.receiver.peers or type(message) is Grant
        return message.view > self._worker.view.view and unknown

    def _peer(self, source: NodeId, incarnation: int) -> ReceivedRanges | None:
        """The peer that sent a message; None if that incarnation is no member."""
        peer = self._worker.receiver.peers.get(source.number)
        return peer if peer is not None and peer.incarnation == incarnation else None

    def _control(self, source: NodeId, message: Message, out: list[Effect]) -> None:
        worker = self._worker
        peer = self._peer(source, getattr(message, "incarnation", -1))
        if peer is None:
            return
        match message:
            case Farewell(heard=True):
                worker.farewells.answered(source.number)
            case Farewell(leaving=leaving):
                peer.finished = True
                worker.collecting.finished(source.number, peer)
                out.append(Send(source, Farewell(worker.view.view, worker.incarnation, heard=True)))
                if leaving:
                    peer.left = True
                    worker.sender.drop_peer(source.number)
            case NewRanges(parts=parts, clock=clock):
                peer.marks = Marks.in_turn(worker.number, clock, parts)
            case Holding(joiner=joiner, joiner_incarnation=incarnation):
                worker.joins.holds(source.number, (joiner, incarnation))
            case SpeedReport(rate=rate, bandwidth=bandwidth):
                worker.repartitioning.heard(source.number, rate, bandwidth)
            case Partitioning(parts=parts):
                worker.repartitioning.want(parts)
            case CollectRequest():
                worker.collecting.asked(source.number)
            case CollectReply(clock=clock):
                worker.collecting.answered(source.number, clock)

    def _take(self, event: Received, message: RangeSum, payload: Payload | None, out: list[Effect]) -> None:
        worker = self._worker
        receiver, peer = worker.receiver, self._peer(event.source, message.incarnation)
        if peer is None:
            if message.view > worker.view.view and event.source.number not in receiver.peers:
                self._keep(event)
            return
        receiver.check(peer, message, message.size or message.bucket.size * VALUE_BYTES)
        if not receiver.follows(peer, message):
            return
        values = receiver.values(message, payload)
        if values is not None and self._is_doubtful(event.source) and not is_finite(values):
            raise PeerError(f"it sent NaN or infinity in {message.bucket}")
        peer.marks.advance(message.part, message.last)
        if values is None:
            return
        first = max(message.first, peer.marks.base + 1)
        if worker.steps.must_wait(message.last):
            receiver.keep(event.source.number, message, first, values)
            worker.collecting.kept(event.source.number, message.bucket, values)
        else:
            out.extend(receiver.deliver(message, first, values, worker.progress))

    def _is_doubtful(self, source: NodeId) -> bool:
        """Whether values of this worker are checked; the run's own workers check theirs themselves."""
        terms = self._worker.terms
        return terms.checks and source.number >= terms.own_workers
