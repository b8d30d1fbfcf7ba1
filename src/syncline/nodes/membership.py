"""Membership: the part of a coordinator that every strategy has. It is the only node that makes views.

1. A view numbers the live members, their incarnations and the topology; it goes to every server and every member.
2. A joiner, and a restarted worker is one, is first a member without a first iteration. The nodes that hold state for
   it (`reporters`) report on such a view how far they are; once all have, the joiner's first iteration is 1 + the
   largest report, in a further view.
3. A member that is lost, leaves, or comes back in a newer incarnation is removed at once. An incarnation that was
   removed never comes back: it is told that it is `Gone`.
"""

from __future__ import annotations

from collections.abc import Collection

from syncline.effects import Effect, Event, Lost, Received, Send
from syncline.errors import PeerError
from syncline.messages import (
    Gone,
    JoinRequest,
    LeaveNotice,
    Member,
    NodeId,
    Report,
    Topology,
    View,
    worker_id,
)


class Membership:
    """Who lives; not on the data path. A node. Without servers the members themselves report."""

    def __init__(self, view: View) -> None:
        self._number = view.view
        self._topology: Topology = view.topology
        self._members = {member.worker: member for member in view.members}
        self._latest = {member.worker: member.incarnation for member in view.members}
        """The newest incarnation of each worker that was ever seen."""
        self._reports: dict[NodeId, int] = {}

    @property
    def view(self) -> View:
        return View(self._number, tuple(self._members[worker] for worker in sorted(self._members)), self._topology)

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
        raise PeerError(f"the coordinator cannot handle {event}")

    # What a strategy may change.

    def _reporters(self) -> Collection[NodeId]:
        """The nodes that must report before a joiner's first iteration is named."""
        return [worker_id(member.worker) for member in self._members.values() if member.first is not None]

    def _audience(self) -> Collection[NodeId]:
        """The nodes beside the members that are sent every view."""
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
        """Remove this incarnation; an earlier one that is still a member is gone as well."""
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
