"""How a worker joins: it takes a replica, and what that replica contains of each worker's updates, from a donor.

1. A view names the joiner and its donor. From that view on every other worker forgets nothing, and tells the donor so
   (`Holding`). Links are FIFO: so whatever it has forgotten before, the donor has.
2. With a codec, it first sends the donor plainly what the codec has left, and then only plain sums.
3. When the donor has heard this from all, it sends its replica, its clock and its marks, between two steps (`Grant`).
4. A worker that leaves waits until the joiner has entered, unless it has said farewell to the donor. It is no donor
   once it has said farewell to anybody, who sends it nothing more: it leaves, and the next view names another.
5. The joiner begins at the donor's clock and tells all, also the donor, what it has (`Entry`). They owe it every range
   from those marks on, count it in their clocks, and may forget again.
6. If the donor dies before that, the next view names another. The joiner takes the first replica that it gets.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.effects import Deliver, Effect, Send
from syncline.errors import PeerError
from syncline.layout import Payload
from syncline.messages import COORDINATOR, Donation, JoinRequest, Mesh, Report, View, worker_id
from syncline.nodes.exchange.marks import Marks
from syncline.nodes.exchange.messages import Entry, Grant, Holding, PeerMarks
from syncline.nodes.exchange.receiving import ReceivedRanges
from syncline.nodes.phase import Phase

if TYPE_CHECKING:
    from syncline.nodes.exchange.peer import ExchangeWorker

Who = tuple[int, int]
"""A worker's number and incarnation."""


class Joins:
    """The part that one worker has in the joins of others, and in its own."""

    def __init__(self, worker: ExchangeWorker) -> None:
        self._worker = worker
        self._donation: Donation | None = None
        self._awaited: set[Who] = set()
        """The joiners that may still ask for any update."""
        self._told: tuple[Who, int] | None = None
        """The joiner and the donor that this worker last told that it forgets nothing."""
        self._granted: Who | None = None
        """The joiner to which this worker has sent its replica."""
        self._under_way: set[Who] = set()
        """The joiners to which a replica is still under way."""
        self._holders: dict[Who, set[int]] = {}
        """For each joiner: the workers that have told this worker that they forget nothing."""

    @property
    def busy(self) -> bool:
        """Whether the ranges may not change, because a joiner may ask for them."""
        return bool(self._awaited)

    # All workers.

    def adopt(self, view: View, out: list[Effect]) -> None:
        """A new view: report to the coordinator, and forget nothing, as it asks."""
        worker = self._worker
        live = {(member.worker, member.incarnation) for member in view.members}
        donations = view.topology.donations if isinstance(view.topology, Mesh) else ()
        self._donation = donations[0] if donations else None
        self._awaited &= live
        self._under_way &= live
        self._holders = {who: found for who, found in self._holders.items() if who in live}
        asked = any(self._is_unseated(view, each.worker) for each in view.members)
        if asked and worker.phase is not Phase.JOINING:
            leaving = worker.is_leaving and worker.farewells.has_bid(worker.number)
            out.append(Send(COORDINATOR, Report(view.view, worker.progress, leaving)))
        if self._donation is not None and worker.phase is not Phase.JOINING:
            self._await(self._donation)
        self._set_hold()

    def _await(self, donation: Donation) -> None:
        """Forget nothing until this joiner has its replica, unless it is here or needs nothing from this worker."""
        who, peers = (donation.joiner, donation.incarnation), self._worker.receiver.peers
        if self._worker.is_leaving and not self._may_need(donation.donor):
            self._awaited.discard(who)  # the donor has everything, or must be another worker
        elif who[0] not in peers or peers[who[0]].incarnation != who[1]:
            self._awaited.add(who)

    def _may_need(self, donor: int) -> bool:
        """Whether this worker, which leaves, may have something that this donor lacks."""
        known = donor in self._worker.receiver.peers or donor in {number for number, _ in self._awaited}
        return (known or donor == self._worker.number) and not self._worker.farewells.has_bid(donor)

    def _is_unseated(self, view: View, number: int) -> bool:
        """Whether the coordinator asks for reports; a joiner that has its replica says so again."""
        member = next(each for each in view.members if each.worker == number)
        donations = view.topology.donations if isinstance(view.topology, Mesh) else ()
        mine = number == self._worker.number
        return (member.first is None and not mine) or (
            mine and (member.first is None or any(each.joiner == number for each in donations))
        )

    def _set_hold(self) -> None:
        sender = self._worker.sender
        me = (self._worker.number, self._worker.incarnation)
        self._awaited.discard(me)
        sender.holds = bool(self._awaited)
        if not self._awaited:
            self._told = None
            for owed in sender.peers.values():
                owed.plain = False

    def go_on(self, out: list[Effect]) -> None:
        """After each event: tell the donor, or, as the donor, send the replica."""
        donation = self._donation
        if donation is None or (donation.joiner, donation.incarnation) not in self._awaited:
            return
        if donation.donor == self._worker.number:
            self._grant(donation, out)
        else:
            self._tell(donation, out)

    def _tell(self, donation: Donation, out: list[Effect]) -> None:
        who, sender = (donation.joiner, donation.incarnation), self._worker.sender
        owed = sender.peers.get(donation.donor)
        if self._told == (who, donation.donor) or owed is None:
            return
        if not owed.plain:
            owed.plain = True
            owed.due += [part for part in owed.writers if part not in owed.due]
            sender.send_due(owed, out)
        if not owed.writers:
            self._told = (who, donation.donor)
            message = Holding(self._worker.view.view, self._worker.incarnation, *who)
            sender.control(donation.donor, message, out)

    # The donor.

    def idle(self, peer: int) -> None:
        """Nothing is under way to this worker any more."""
        self._under_way = {who for who in self._under_way if who[0] != peer}

    def holds(self, source: int, who: Who) -> None:
        self._holders.setdefault(who, set()).add(source)

    def _grant(self, donation: Donation, out: list[Effect]) -> None:
        worker, who = self._worker, (donation.joiner, donation.incarnation)
        peers = worker.receiver.peers
        others = {member.worker for member in worker.view.members} - {worker.number, donation.joiner}
        asked = {each for each in others if each not in peers or not peers[each].left}
        if self._granted == who or not worker.between_steps or not asked <= self._holders.get(who, set()):
            return
        worker.steps.deliver_kept(out)
        marks = tuple(
            PeerMarks(number, peer.incarnation, tuple(peer.marks.values), peer.marks.base, peer.finished, peer.left)
            for number, peer in peers.items()
        )
        grant = Grant(
            worker.view.view, worker.incarnation, who[1], worker.flat.whole, worker.progress, worker.parts, marks
        )
        out.append(Send(worker_id(donation.joiner), grant, None, of_replica=True))
        self._granted = who
        self._under_way.add(who)

    def _new_peer(self, incarnation: int, clock: int, parts: int) -> ReceivedRanges:
        return ReceivedRanges(incarnation, Marks.in_turn(self._worker.number, clock, parts))

    # The joiner.

    def enter(self, out: list[Effect]) -> None:
        out.append(Send(COORDINATOR, JoinRequest(self._worker.view.view, self._worker.incarnation)))

    def granted(self, donor: int, grant: Grant, payload: Payload | None, out: list[Effect]) -> None:
        """Begin with the donor's replica."""
        worker = self._worker
        if worker.phase is not Phase.JOINING or grant.joiner_incarnation != worker.incarnation:
            return
        if payload is None or grant.bucket != worker.flat.whole:
            raise PeerError(f"it granted {grant.bucket} instead of {worker.flat.whole}")
        worker.phase = Phase.RUNNING
        worker.begin(grant.parts, grant.clock)
        live = {(member.worker, member.incarnation) for member in worker.view.members}
        own = Marks.in_turn(worker.number, grant.clock, grant.parts)
        mine = PeerMarks(donor, grant.incarnation, tuple(own.values), own.base, finished=False)
        for each in (*grant.peers, mine):
            received = ReceivedRanges(each.incarnation, Marks(each.marks, each.base), each.finished)
            received.left = each.left
            if (each.worker, each.incarnation) not in live:
                worker.lose(each.worker, received)
            elif received.left:
                worker.receiver.peers[each.worker] = received
            else:
                worker.add_peer(each.worker, received)
                entry = Entry(worker.view.view, worker.incarnation, grant.clock, grant.parts, each.marks, each.base)
                worker.sender.control(each.worker, entry, out)
        out.extend(Deliver(each, payload[worker.flat.where(each)]) for each in worker.flat.buckets)
        out.append(Send(COORDINATOR, Report(worker.view.view, grant.clock)))

    def entered(self, source: int, entry: Entry, out: list[Effect]) -> None:
        """A joiner has its replica."""
        worker, who = self._worker, (source, entry.incarnation)
        if who not in self._awaited:
            return
        if len(entry.marks) != worker.parts:
            raise PeerError(f"it entered with {len(entry.marks)} marks of {worker.parts} ranges")
        self._awaited.discard(who)
        self._set_hold()
        sent = Marks(entry.marks, entry.base)
        worker.add_peer(source, self._new_peer(entry.incarnation, entry.clock, entry.parts), sent)
        owed = worker.sender.peers[source]
        owed.free = who not in self._under_way
        worker.sender.send_due(owed, out)
