"""The coordinator of the server strategy: membership, and which server holds what.

1. The servers of a view are those that hold something in it. They are the ones that report (membership.py).
2. A server that is admitted or dismissed changes the placement, in a view of its own. The next change of the placement
   waits until every server of the old view and of the new one has said that it is settled; members come and go all the
   while. The number of a server that was dismissed is never used again; as long as it is there it is sent views, so
   that it can tell who is `Gone`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from syncline.effects import Admit, Dismiss, Effect, Event, Received
from syncline.errors import UsageError
from syncline.messages import Holders, NodeId, Settled, View, server_id
from syncline.nodes.membership import Membership

Replace = Callable[[Holders, Collection[int]], Holders]
"""Which buckets each of these servers is to hold, given who holds which now."""


class Coordinator(Membership):
    """Membership and placement. A node."""

    def __init__(self, view: View, replace: Replace | None = None) -> None:
        """`replace`: None, if servers neither come nor go."""
        super().__init__(view)
        self._holders = view.holders
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
            case Received(source, Settled(view=number)):
                return self._settle(source.number, number)
            case Admit(server):
                return self._admit(server)
            case Dismiss(server):
                return self._dismiss(server)
        return super().handle(event, now)

    def _reporters(self) -> Collection[NodeId]:
        return {server_id(number) for number in self._servers}

    def _audience(self) -> Collection[NodeId]:
        return [server_id(number) for number in range(len(self._holders))]

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
        self._topology = self._holders = self._replace(self._holders, self._wanted)
        self._unsettled = self._servers | self._wanted
        self._movers = frozenset(self._unsettled)
        self._servers = set(self._wanted)
        self.moved = self._number + 1
        return self._publish()
