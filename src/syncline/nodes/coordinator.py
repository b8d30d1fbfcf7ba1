"""The coordinator: the only node that makes views.

1. A view numbers the live members, their incarnations and the placement; it goes to every server and every member.
2. A joiner, and a restarted worker is one, is first a member without a first iteration. Each server reports its largest
   V on such a view; once all have, the joiner's first iteration is 1 + the largest report, in a further view.
3. Whoever is lost, leaves, or comes back in a newer incarnation is removed at once. An incarnation that was removed
   never comes back: it is told that it is `Gone`.
"""

from __future__ import annotations

from syncline.effects import Effect, Event, Lost, Received, Send
from syncline.errors import PeerError
from syncline.messages import Gone, Join, Leave, Member, Report, View, server_id, worker_id


class Coordinator:
    """Membership and placement; not on the data path. A node."""

    def __init__(self, view: View) -> None:
        self._number = view.view
        self._holders = view.holders
        self._members = {member.worker: member for member in view.members}
        self._latest = {member.worker: member.incarnation for member in view.members}
        """The newest incarnation of each worker that was ever seen."""
        self._reports: dict[int, int] = {}

    @property
    def view(self) -> View:
        return View(self._number, tuple(self._members[worker] for worker in sorted(self._members)), self._holders)

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(source, Join(incarnation=incarnation)):
                return self._join(source.number, incarnation)
            case Received(source, Leave(incarnation=incarnation)):
                return self._remove(source.number, incarnation)
            case Received(source, Report(view=number, largest=largest)):
                return self._report(source.number, number, largest)
            case Lost(worker, incarnation):
                return [*self._remove(worker, incarnation), self._gone(worker, incarnation)]
        raise PeerError(f"the coordinator cannot handle {event}")

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

    def _report(self, server: int, number: int, largest: int) -> list[Effect]:
        if number != self._number:
            return []
        self._reports[server] = largest
        if len(self._reports) < len(self._holders):
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
        servers = [server_id(number) for number in range(len(self._holders))]
        return [Send(to, view) for to in (*servers, *(worker_id(member.worker) for member in view.members))]
