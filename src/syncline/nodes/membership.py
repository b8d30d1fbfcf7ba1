"""Membership: the part of the coordinator that all strategies share. Only the coordinator makes views.

1. A view has a number. It lists the live members, their incarnations and the topology. The coordinator sends it to
   every server and every member.
2. A joiner (a restarted worker is one too) first becomes a member without a first iteration. The nodes that hold state
   for it (`_reporters`) answer such a view with a report of how far they are. When all have reported, the coordinator
   sets the joiner's first iteration to 1 + the largest report and publishes another view.
3. The coordinator removes a member at once if it is lost, if it leaves, or if a newer incarnation of it joins. A
   removed incarnation cannot join again: the coordinator answers it with `Gone`.
"""

from __future__ import annotations

from collections.abc import Collection, Set

from syncline.effects import Effect, Event, Lost, Received, Send
from syncline.errors import PeerError
from syncline.messages import (
    Gone,
    JoinRequest,
    LeaveNotice,
    Loss,
    Member,
    NodeId,
    Report,
    Topology,
    View,
    worker_id,
)


class Membership:
    """The node that keeps the list of live members. Without servers the members themselves report."""

    lost_origins: Set[int] = frozenset()

    def __init__(self, view: View) -> None:
        self._number = view.view
        self._topology: Topology = view.topology
        self._members = {member.worker: member for member in view.members}
        self._latest = {member.worker: member.incarnation for member in view.members}
        """The newest incarnation of each worker that ever was a member."""
        self._reports: dict[NodeId, int] = {}
        self._lost: tuple[Loss, ...] = ()
        """The buckets that servers restore from the workers' copies."""

    @property
    def view(self) -> View:
        members = tuple(self._members[worker] for worker in sorted(self._members))
        return View(self._number, members, self._topology, self._lost)

    @property
    def moving(self) -> bool:
        return False

    @property
    def servers(self) -> frozenset[int]:
        return frozenset()

    @property
    def movers(self) -> frozenset[int]:
        return frozenset()

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(source, JoinRequest(incarnation=incarnation)):
                return self._join(source.number, incarnation)
            case Received(source, LeaveNotice(incarnation=incarnation)):
                return self._remove(source.number, incarnation)
            case Received(source, Report(view=number, largest=largest)):
                return self._report(source, number, largest)
            case Lost(worker, incarnation):
                return [*self._remove(worker, incarnation), self._gone(worker, incarnation)]
        raise PeerError(f"the coordinator does not accept this event: {event}")

    # What a strategy may override.

    def _reporters(self) -> Collection[NodeId]:
        """The nodes that must report before the coordinator sets a joiner's first iteration."""
        return [worker_id(member.worker) for member in self._members.values() if member.first is not None]

    def _audience(self) -> Collection[NodeId]:
        """The nodes other than members that receive every view."""
        return ()

    # Members.

    def _join(self, worker: int, incarnation: int) -> list[Effect]:
        member = self._members.get(worker)
        if member is not None and member.incarnation == incarnation:
            return []
        if incarnation <= self._latest.get(worker, -1):
            return [self._gone(worker, incarnation)]
        self._latest[worker] = incarnation
        self._members[worker] = Member(worker, incarnation, None)
        return self._publish()

    def _remove(self, worker: int, incarnation: int) -> list[Effect]:
        """Remove this incarnation, or an earlier one that is still a member."""
        self._latest[worker] = max(incarnation, self._latest.get(worker, -1))
        member = self._members.get(worker)
        if member is None or member.incarnation > incarnation:
            return []
        del self._members[worker]
        return self._publish()

    def _gone(self, worker: int, incarnation: int) -> Effect:
        return Send(worker_id(worker), Gone(self._number, incarnation))

    def _report(self, source: NodeId, number: int, largest: int) -> list[Effect]:
        reporters = self._reporters()
        if number != self._number or source not in reporters:
            return []
        self._reports[source] = largest
        if len(self._reports) < len(reporters):
            return []
        first = 1 + max(self._reports.values())
        for worker, member in self._members.items():
            if member.first is None:
                self._members[worker] = Member(worker, member.incarnation, first)
        return self._publish()

    def _publish(self) -> list[Effect]:
        self._number += 1
        self._reports.clear()
        view = self.view
        return [Send(to, view) for to in (*self._audience(), *(worker_id(member.worker) for member in view.members))]
