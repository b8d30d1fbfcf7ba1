"""The coordinator: the only node that makes views.

1. A view numbers the live members, their incarnations and the placement; it goes to every server and every member.
2. A joiner, and a restarted worker is one, is first a member without a first iteration. Each server reports its largest
   V on such a view; once all have, the joiner's first iteration is 1 + the largest report, in a further view.
   The servers of a view are those that hold something in it.
3. Whoever is lost, leaves, or comes back in a newer incarnation is removed at once. An incarnation that was removed
   never comes back: it is told that it is `Gone`.
4. A server that is admitted or dismissed changes the placement, in a view of its own. The next change of the placement
   waits until every server of the old view and of the new one has said that it is settled; members come and go all the
   while. The number of a server that was dismissed is never used again; as long as it is there it is sent views, so
   that it can tell who is `Gone`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from syncline.effects import Admit, Dismiss, Effect, Event, Lost, Received, Send
from syncline.errors import PeerError, UsageError
from syncline.messages import Gone, JoinRequest, LeaveNotice, Member, Report, Settled, View, server_id, worker_id
from syncline.nodes.server.bucket_map import Holders

Replace = Callable[[Holders, Collection[int]], Holders]
"""Which buckets each of these servers is to hold, given who holds which now."""


class Coordinator:
    """Membership and placement; not on the data path. A node."""

    def __init__(self, view: View, replace: Replace | None = None) -> None:
        """`replace`: None, if servers neither come nor go."""
        self._number = view.view
        self._holders = view.holders
        self._members = {member.worker: member for member in view.members}
        self._latest = {member.worker: member.incarnation for member in view.members}
        """The newest incarnation of each worker that was ever seen."""
        self._reports: dict[int, int] = {}
        self._replace = replace
        self._servers = {number for number, held in enumerate(view.holders) if held}
        self._wanted = set(self._servers)
        """The servers that are to hold the model, as far as was asked for."""
        self._ever = set(self._servers)
        """The numbers that servers have had."""
        self._unsettled: set[int] = set()
        self._movers: frozenset[int] = frozenset()
        self.moved = view.view
        """The view that brought the present placement."""

    @property
    def view(self) -> View:
        return View(self._number, tuple(self._members[worker] for worker in sorted(self._members)), self._holders)

    @property
    def servers(self) -> frozenset[int]:
        """The servers that hold the model, or are to hold it once what moves now has moved."""
        return frozenset(self._wanted)

    @property
    def moving(self) -> bool:
        """Is a change of the placement under way?"""
        return bool(self._unsettled)

    @property
    def movers(self) -> frozenset[int]:
        """The servers that give or take in the change that is under way."""
        return self._movers if self._unsettled else frozenset()

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(source, JoinRequest(incarnation=incarnation)):
                return self._join(source.number, incarnation)
            case Received(source, LeaveNotice(incarnation=incarnation)):
                return self._remove(source.number, incarnation)
            case Received(source, Report(view=number, largest=largest)):
                return self._report(source.number, number, largest)
            case Received(source, Settled(view=number)):
                return self._settle(source.number, number)
            case Admit(server):
                return self._admit(server)
            case Dismiss(server):
                return self._dismiss(server)
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
        if number != self._number or server not in self._servers:
            return []
        self._reports[server] = largest
        if len(self._reports) < len(self._servers):
            return []
        first = 1 + max(self._reports.values())
        for worker, member in self._members.items():
            if member.first is None:
                self._members[worker] = Member(worker, member.incarnation, first)
        return self._publish()

    # Servers.

    def _admit(self, server: int) -> list[Effect]:
        if server in self._ever:
            raise UsageError("server", f"{server} was there already; the next new server is {max(self._ever) + 1}")
        effects = self._want(self._wanted | {server})
        self._ever.add(server)
        return effects

    def _dismiss(self, server: int) -> list[Effect]:
        if server not in self._wanted:
            there = ", ".join(map(str, sorted(self._wanted)))
            raise UsageError("server", f"there is no server {server} to remove; there are {there}")
        if self._wanted == {server}:
            raise UsageError("server", f"{server} is the last one, and somebody must hold the model; add another first")
        return self._want(self._wanted - {server})

    def _want(self, servers: set[int]) -> list[Effect]:
        if self._replace is None:
            raise UsageError("server", "this run's servers neither come nor go")
        self._replace(self._holders, servers)  # a placement that cannot do with so many says so now
        self._wanted = servers
        return self._move_on()

    def _settle(self, server: int, number: int) -> list[Effect]:
        if number >= self.moved:
            self._unsettled.discard(server)
        return self._move_on()

    def _move_on(self) -> list[Effect]:
        """Begin the next change of the placement, if one is wanted and none is under way."""
        if self._unsettled or self._wanted == self._servers or self._replace is None:
            return []
        self._holders = self._replace(self._holders, self._wanted)
        self._unsettled = self._servers | self._wanted
        self._movers = frozenset(self._unsettled)
        self._servers = set(self._wanted)
        self.moved = self._number + 1
        return self._publish()

    def _publish(self) -> list[Effect]:
        self._number += 1
        self._reports.clear()
        view = self.view
        servers = [server_id(number) for number in range(len(self._holders))]
        return [Send(to, view) for to in (*servers, *(worker_id(member.worker) for member in view.members))]
