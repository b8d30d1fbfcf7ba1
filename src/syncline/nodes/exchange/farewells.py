"""The end of a worker: it sends all that it owes, says farewell, and waits for the answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Effect, Send
from syncline.messages import COORDINATOR, LeaveNotice
from syncline.nodes.exchange.messages import Farewell
from syncline.nodes.exchange.receiving import ReceivedRanges
from syncline.nodes.phase import Phase

if TYPE_CHECKING:
    from syncline.nodes.exchange.peer import ExchangeWorker


class Farewells:
    """To whom a worker has said farewell, and who has answered."""

    def __init__(self, worker: ExchangeWorker) -> None:
        self._worker = worker
        self._bid: set[int] = set()
        """The peers to which this worker has said farewell."""
        self._has_bid = False
        """Whether it has ever said farewell to anybody."""
        self._heard: set[int] = set()
        """The peers that have answered its farewell: so it has reached them, and all that was sent before it."""

    def has_bid(self, peer: int) -> bool:
        """Whether this worker has said farewell to this peer; if it is this worker itself, to anybody."""
        return self._has_bid if peer == self._worker.number else peer in self._bid

    def answered(self, peer: int) -> None:
        self._heard.add(peer)

    def drop(self, peer: int) -> None:
        """A peer is no member any more."""
        self._bid.discard(peer)
        self._heard.discard(peer)

    def go_on(self, out: list[Effect]) -> None:
        """Say farewell to every peer that has everything; leave when all peers have said what this worker waits for."""
        worker = self._worker
        sender = worker.sender
        if worker.is_leaving and worker.joins.busy:
            return
        sender.flush(out)
        for peer in sender.peers:
            if peer not in self._bid and not sender.owes(peer):
                self._bid.add(peer)
                self._has_bid = True
                message = Farewell(worker.view.view, worker.incarnation, leaving=not worker.finished)
                sender.control(peer, message, out)
        waits = [number for number, peer in worker.receiver.peers.items() if not self._is_released(number, peer)]
        if not waits and not worker.joins.busy and not any(sender.owes(peer) for peer in sender.peers):
            self.leave(out)

    def _is_released(self, number: int, peer: ReceivedRanges) -> bool:
        """Whether this peer has everything, by its own word, and this worker needs nothing more of it."""
        return peer.left or (number in self._heard and (peer.finished or not self._worker.finished))

    def leave(self, out: list[Effect]) -> None:
        worker = self._worker
        worker.phase = Phase.GONE
        out.append(Send(COORDINATOR, LeaveNotice(worker.view.view, worker.incarnation)))
