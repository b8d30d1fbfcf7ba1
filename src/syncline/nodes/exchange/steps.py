"""The steps of one worker: when it may begin one, and what happens at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Deliver, Effect, Fail, Ready
from syncline.errors import NotFinite, PeerError
from syncline.layout import Bucket, is_finite
from syncline.nodes.exchange.own_update import OwnUpdate
from syncline.nodes.phase import Phase

if TYPE_CHECKING:
    from syncline.nodes.exchange.peer import ExchangeWorker


class ExchangeSteps:
    """The step that the application makes, and the update that comes of it."""

    def __init__(self, worker: ExchangeWorker) -> None:
        self._worker = worker
        self._update = OwnUpdate(worker.flat)
        self.computing = True
        """Whether a step has begun whose update is not complete."""
        self.finished = False
        """Whether the application has made its last step."""

    def is_given(self, bucket: Bucket) -> bool:
        return bucket in self._update

    @property
    def in_rounds(self) -> bool:
        return self._worker.parts == 1 and self._worker.terms.tau == 0

    def must_wait(self, update: int) -> bool:
        """Whether another worker's update with this number may not be applied yet."""
        return self.computing or (self.in_rounds and update > self._worker.progress and not self.finished)

    def changed_ranges(self) -> None:
        """The number of ranges has changed."""
        self._worker.sender.one_by_one = self.in_rounds
        self._update.values = self._worker.sender.window.empty()

    def may_begin(self) -> bool:
        worker = self._worker
        limit = worker.progress - worker.parts - worker.terms.tau
        return all(peer.finished or peer.marks.clock > limit for peer in worker.receiver.peers.values())

    def begin(self, now: float, out: list[Effect]) -> None:
        self.computing = True
        self._update.begin()
        self._worker.repartitioning.measure.begins(now)
        out.append(Deliver(self._worker.flat.buckets[0], None, self._worker.progress))

    def give(self, ready: Ready, now: float, out: list[Effect]) -> None:
        """The application hands in one bucket of its update."""
        worker, bucket, change = self._worker, ready.bucket, ready.payload
        if worker.phase is not Phase.RUNNING or not self.computing or bucket in self._update:
            raise PeerError(f"worker {worker.number}: a new update of {bucket} before the step has begun")
        if worker.terms.finite and change is not None and not is_finite(change):
            table = worker.terms.layout.first_not_finite(bucket, change)
            assert table is not None
            out.append(Fail(NotFinite(worker.number, worker.progress, table.name)))
            return
        self._update.give(bucket, change, self._workers())
        if self._update.is_complete:
            worker.repartitioning.measure.ends(now)
            self._complete(out)

    def _workers(self) -> int:
        """The number of workers by which a change is divided."""
        return max(1, sum(member.first is not None for member in self._worker.view.members))

    def _complete(self, out: list[Effect]) -> None:
        """The update is complete: add it to the replica with what has arrived, and send what is due."""
        worker = self._worker
        self.computing = False
        worker.progress += 1
        out.extend(self._update.deliver())
        self.deliver_kept(out)
        worker.sender.add(self._update.values, out)
        self._update.values = worker.sender.window.empty()

    def deliver_kept(self, out: list[Effect]) -> None:
        """Add to the replica what arrived during the step."""
        out.extend(self._worker.receiver.deliver_kept(self._worker.progress))

    def end(self, out: list[Effect]) -> None:
        """No step follows: what arrives is applied at once. What is missing of a half-made update counts as zero."""
        if self._update.is_begun and self.computing:
            self._update.fill()
            self._complete(out)
        self.computing = False
        self.deliver_kept(out)
