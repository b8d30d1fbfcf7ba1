"""A change of the number of ranges while a run trains: who decides it, and how a worker changes over.

1. Every worker measures its rate and its bandwidth, and sends both to the leader: the lowest live worker.
2. When the leader has heard all, it chooses the number of ranges, and tells all if it is another one.
3. A worker that is told finishes its step and sends every peer all that it lacks. Then it changes over, tells every
   peer (`NewRanges`) and begins its next step. While a joiner may ask for the old ranges, it waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Effect, Send
from syncline.messages import worker_id
from syncline.nodes.exchange.messages import NewRanges, Partitioning, RangeSum, SpeedReport
from syncline.nodes.exchange.partitioning import FIRST_UPDATES, UPDATES, Chooser, SpeedMeasure
from syncline.nodes.phase import Phase

if TYPE_CHECKING:
    from syncline.nodes.exchange.peer import ExchangeWorker


class Repartitioning:
    """One worker's part in it."""

    def __init__(self, worker: ExchangeWorker, measures: bool, again: bool) -> None:
        self._worker = worker
        self._measures, self._again = measures, again
        self.measure = SpeedMeasure()
        self._every = FIRST_UPDATES
        whole = worker.flat.whole
        self._chooser = Chooser(worker.weight(whole), whole.size, again)
        self._wanted: int | None = None
        self.is_flushing = False

    def heard(self, peer: int, rate: float, bandwidth: float) -> None:
        self._chooser.heard(peer, rate, bandwidth)

    def want(self, parts: int) -> None:
        self._wanted = parts

    def dropped(self, peer: int) -> None:
        self.measure.forget(peer)

    def watch(self, out: list[Effect], now: float) -> None:
        """Note what is sent; report a measurement when it is time."""
        if not self._measures or self._worker.phase is not Phase.RUNNING:
            return
        for effect in out:
            if type(effect) is Send and type(effect.message) is RangeSum:
                size = effect.message.size or self._worker.weight(effect.message.bucket)
                self.measure.sends(effect.to.number, size, now)
        if self.measure.updates >= self._every:
            self._report(out)
        self._choose(out)

    def _report(self, out: list[Effect]) -> None:
        worker, (rate, bandwidth) = self._worker, self.measure.take()
        self._every = UPDATES
        self._measures = self._again
        leader = min(self._members())
        if leader == worker.number:
            self._chooser.heard(leader, rate, bandwidth)
        else:
            out.append(Send(worker_id(leader), SpeedReport(worker.view.view, worker.incarnation, rate, bandwidth)))

    def _members(self) -> set[int]:
        peers = self._worker.receiver.peers
        return {self._worker.number} | {number for number, peer in peers.items() if not peer.finished}

    def _choose(self, out: list[Effect]) -> None:
        worker, members = self._worker, self._members()
        if worker.number != min(members) or self._wanted is not None:
            return
        parts = self._chooser.choose(members, worker.parts)
        if parts is not None:
            self._wanted = parts
            message = Partitioning(worker.view.view, worker.incarnation, parts)
            out.extend(Send(worker_id(peer), message) for peer in sorted(members - {worker.number}))

    def go_on(self, out: list[Effect]) -> None:
        """Between two steps: begin or complete the change."""
        worker, sender = self._worker, self._worker.sender
        if self._wanted is None or (self._wanted == worker.parts and not self.is_flushing):
            self._wanted = None
            return
        self.is_flushing = True
        if not sender.flush(out) or worker.joins.busy:
            return
        sender.repartition(self._wanted)
        worker.steps.changed_ranges()
        for peer in sender.peers:
            message = NewRanges(worker.view.view, worker.incarnation, self._wanted, sender.clock)
            sender.control(peer, message, out)
        self._wanted, self.is_flushing = None, False
