"""The coordinator's node of the exchange strategy: views, and a donor for each joiner.

1. A joiner becomes a member without a first iteration. All other members then report their clocks.
2. The next view names the joiner's donor: the most advanced of them.
3. The joiner reports when it has its replica. Only then the next joiner is admitted.
4. If the donor dies before that, the members report again, and another becomes the donor.
5. If no member is left that could be a donor, the joiner is told that it cannot take part.
"""

from __future__ import annotations

from collections.abc import Collection

from syncline.effects import Effect, Event, Received
from syncline.messages import Donation, Member, Mesh, NodeId, Report, View, worker_id
from syncline.nodes.membership import Membership


class PeerMembership(Membership):
    """Keeps the list of live members, and admits one joiner at a time."""

    def __init__(self, view: View) -> None:
        super().__init__(view)
        self._joiner: Member | None = None
        self._queue: list[tuple[int, int]] = []
        self._leaving: set[NodeId] = set()
        """The members that cannot be donors, because they leave."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        match event:
            case Received(source, Report(leaving=True)):
                self._leaving.add(source)
        return super().handle(event, now)

    def _reporters(self) -> Collection[NodeId]:
        return [worker_id(each.worker) for each in self._seated()]

    def _seated(self) -> list[Member]:
        """The members that have a replica."""
        joiner = None if self._joiner is None else self._joiner.worker
        return [member for member in self._members.values() if member.worker != joiner]

    def _join(self, worker: int, incarnation: int) -> list[Effect]:
        if self._joiner is not None and worker != self._joiner.worker:
            return self._wait(worker, incarnation)
        before, found = self._number, super()._join(worker, incarnation)
        if self._number == before:
            return found
        self._joiner, self._topology = self._members[worker], Mesh()
        return [*found, *self._check_donors()]

    def _wait(self, worker: int, incarnation: int) -> list[Effect]:
        """Let a joiner wait for its turn; an earlier incarnation of it is gone."""
        member, found = self._members.get(worker), []
        if member is not None and member.incarnation < incarnation:
            found = self._remove(worker, member.incarnation)
        newest = max((each[1] for each in self._queue if each[0] == worker), default=self._latest.get(worker, -1))
        if incarnation > newest:
            self._queue = [*(each for each in self._queue if each[0] != worker), (worker, incarnation)]
        return [*found, *self._next()]

    def _remove(self, worker: int, incarnation: int) -> list[Effect]:
        member = self._members.get(worker)
        if member is not None and member.incarnation <= incarnation:
            self._forget(worker)
        self._queue = [each for each in self._queue if each[0] != worker or each[1] > incarnation]
        found = super()._remove(worker, incarnation)
        return [*found, *self._check_donors(), *self._next()]

    def _forget(self, worker: int) -> None:
        """The joiner or its donor is gone."""
        joiner, donations = self._joiner, self._donations()
        if joiner is not None and (worker == joiner.worker or any(each.donor == worker for each in donations)):
            self._topology = Mesh()
            self._members[joiner.worker] = Member(joiner.worker, joiner.incarnation, None)
            self._joiner = None if worker == joiner.worker else joiner

    def _report(self, source: NodeId, number: int, largest: int) -> list[Effect]:
        joiner = self._joiner
        if joiner is None or (self._donations() and source.number != joiner.worker):
            return []
        if source.number == joiner.worker:
            self._members[joiner.worker] = Member(joiner.worker, joiner.incarnation, largest)
            self._joiner, self._topology = None, Mesh()
            return [*self._publish(), *self._next()]
        reporters = self._reporters()
        if number != self._number or source not in reporters:
            return []
        self._reports[source] = largest
        if len(self._reports) < len(reporters):
            return []
        able = [each for each in self._reports if each not in self._leaving]
        if not able:
            return self._refuse(joiner)
        donor = max(able, key=lambda each: (self._reports[each], -each.number))
        self._members[joiner.worker] = Member(joiner.worker, joiner.incarnation, self._reports[donor])
        self._topology = Mesh((Donation(joiner.worker, joiner.incarnation, donor.number),))
        return self._publish()

    def _donations(self) -> tuple[Donation, ...]:
        return self._topology.donations if isinstance(self._topology, Mesh) else ()

    def _check_donors(self) -> list[Effect]:
        """Refuse the joiner if there is no member to take a replica from."""
        joiner = self._joiner
        return [] if joiner is None or self._seated() else self._refuse(joiner)

    def _refuse(self, joiner: Member) -> list[Effect]:
        return [self._gone(joiner.worker, joiner.incarnation), *self._remove(joiner.worker, joiner.incarnation)]

    def _publish(self) -> list[Effect]:
        self._leaving.clear()
        return super()._publish()

    def _next(self) -> list[Effect]:
        """Admit the joiner that has waited for longest."""
        if self._joiner is None and self._queue:
            return self._join(*self._queue.pop(0))
        return []
