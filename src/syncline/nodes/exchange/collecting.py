"""How a worker gets all updates that the others have made, so that its program can save the run.

1. The worker asks every other worker (`CollectRequest`). A worker that is asked sends all that the asker lacks, with
   what a codec has left. It begins no further step before it has. Then it answers (`CollectReply`).
2. So what has arrived from a worker up to its answer is a number of whole updates: its clock. What arrives from it
   later does not count.
3. As always, nothing is applied inside a step. What has arrived is collected beside the replica: the two together are
   the initial values plus all updates up to the clocks.
4. Nobody waits for a worker that leaves, which sends all that it owes first, or that is dead.
5. Workers that step in rounds need not ask, unless they have a codec: between two steps their replicas contain all
   updates of all rounds so far.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from syncline.effects import Effect
from syncline.layout import Bucket, Values
from syncline.nodes.exchange.messages import CollectReply, CollectRequest
from syncline.nodes.exchange.receiving import ReceivedRanges
from syncline.nodes.protocol import Collected

if TYPE_CHECKING:
    from syncline.nodes.exchange.peer import ExchangeWorker


class Collecting:
    """Whom this worker asks for everything, and who asks this worker."""

    def __init__(self, worker: ExchangeWorker) -> None:
        self._worker = worker
        self._askers: set[int] = set()
        self._awaited: set[int] = set()
        """The workers that have not answered."""
        self._clocks: dict[int, int] = {}
        self._waiting: Values | None = None
        self.found: Collected | None = None

    # The worker that is saved.

    def begin(self, out: list[Effect]) -> None:
        """Ask all that may have something."""
        worker, peers = self._worker, self._worker.receiver.peers
        self.found, self._waiting = None, None
        self._clocks = {worker.number: worker.progress}
        if worker.steps.in_rounds and worker.sender.is_plain and worker.receiver.has_round(worker.progress):
            self._clocks |= {each: min(worker.progress, max(peer.marks.reached)) for each, peer in peers.items()}
        else:
            self._waiting = worker.receiver.kept()
            self._awaited = set(peers)
            for number, peer in peers.items():
                if peer.finished:
                    self.finished(number, peer)
                else:
                    worker.sender.control(number, CollectRequest(worker.view.view, worker.incarnation), out)
        self._look()

    def kept(self, source: int, bucket: Bucket, values: Values) -> None:
        """A sum has arrived, and waits for the end of the step."""
        if source in self._awaited and self._waiting is not None:
            place = self._waiting[self._worker.flat.where(bucket)]
            np.add(place, values, place)

    def answered(self, source: int, clock: int) -> None:
        if source in self._awaited:
            self._clocks[source] = clock
            self._need_no_more(source)

    def finished(self, source: int, peer: ReceivedRanges) -> None:
        """A worker has made its last update, and has sent all."""
        self.answered(source, max(peer.marks.reached))

    def dropped(self, source: int) -> None:
        """A worker is no member any more."""
        self._askers.discard(source)
        self._need_no_more(source)

    def _need_no_more(self, source: int) -> None:
        if source in self._awaited:
            self._awaited.discard(source)
            self._look()

    def _look(self) -> None:
        if not self._awaited:
            self.found = Collected(self._clocks, self._waiting)

    # A worker that is asked.

    @property
    def is_asked(self) -> bool:
        """Whether somebody lacks something that it has asked for."""
        return bool(self._askers)

    def asked(self, source: int) -> None:
        self._askers.add(source)

    def go_on(self, out: list[Effect]) -> None:
        """After each event: send everything to those that have asked, and answer those that have it."""
        worker, sender = self._worker, self._worker.sender
        for asker in sorted(self._askers):
            owed = sender.peers.get(asker)
            if owed is None:  # it leaves
                self._askers.discard(asker)
                continue
            sender.flush_to(owed, out)
            if not sender.owes(asker):
                self._askers.discard(asker)
                owed.flushing = False
                sender.control(asker, CollectReply(worker.view.view, worker.incarnation, sender.clock), out)
