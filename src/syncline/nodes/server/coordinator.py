"""The coordinator of the server strategy: membership, and which server holds which buckets.

1. The servers of a view are those that hold at least one bucket in it. These servers send reports (membership.py).
2. Admitting or dismissing a server changes the placement, in a separate view. The next change of the placement waits
   until every server of the old view and of the new view has sent `Settled`. Members can join and leave meanwhile. The
   number of a dismissed server is never used again. A dismissed server that still runs receives every view, so that it
   can answer removed workers with `Gone`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from syncline.effects import Admit, Dismiss, Effect, Event, Received
from syncline.errors import UsageError
from syncline.messages import Holders, NodeId, Settled, View, server_id
from syncline.nodes.membership import Membership

Replace = Callable[[Holders, Collection[int]], Holders]
"""Computes the next placement from the current one and the numbers of the servers that shall hold the model."""


class Coordinator(Membership):
    """The node that manages membership and placement."""

    def __init__(self, view: View, replace: Replace | None = None) -> None:
        """`replace`: None if servers cannot join or leave this run."""
        super().__init__(view)
        self._holders = view.holders
        self._replace = replace
        self._servers = {number for number, held in enumerate(view.holders) if held}
        self._wanted = set(self._servers)
        """The servers that shall hold the model, after all requested changes."""
        self._ever = set(self._servers)
        """All server numbers that were ever used."""
        self._unsettled: set[int] = set()
        self._movers: frozenset[int] = frozenset()
        self.moved = view.view
        """The number of the view that introduced the current placement."""

    @property
    def servers(self) -> frozenset[int]:
        """The servers that hold the model, or will hold it after all requested moves."""
        return frozenset(self._wanted)

    @property
    def moving(self) -> bool:
        """Whether a change of the placement is in progress."""
        return bool(self._unsettled)

    @property
    def movers(self) -> frozenset[int]:
        """The servers that take part in the move that is in progress."""
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
            raise UsageError("server", f"number {server} was used before; use {max(self._ever) + 1} for the new server")
        effects = self._set_wanted(self._wanted | {server})
        self._ever.add(server)
        return effects

    def _dismiss(self, server: int) -> list[Effect]:
        if server not in self._wanted:
            there = ", ".join(map(str, sorted(self._wanted)))
            raise UsageError("server", f"there is no server {server} to remove; this run has {there}")
        if self._wanted == {server}:
            raise UsageError("server", f"{server} is the only server left; add another server before you remove it")
        return self._set_wanted(self._wanted - {server})

    def _set_wanted(self, servers: set[int]) -> list[Effect]:
        if self._replace is None:
            raise UsageError("server", "servers cannot be added to this run or removed from it")
        self._replace(self._holders, servers)  # raises now if the placement cannot work with this many servers
        self._wanted = servers
        return self._begin_next_move()

    def _settle(self, server: int, number: int) -> list[Effect]:
        if number >= self.moved:
            self._unsettled.discard(server)
        return self._begin_next_move()

    def _begin_next_move(self) -> list[Effect]:
        """Begin the next change of the placement, if one is wanted and none is in progress."""
        if self._unsettled or self._wanted == self._servers or self._replace is None:
            return []
        self._topology = self._holders = self._replace(self._holders, self._wanted)
        self._unsettled = self._servers | self._wanted
        self._movers = frozenset(self._unsettled)
        self._servers = set(self._wanted)
        self.moved = self._number + 1
        return self._publish()
