"""The coordinator of the server strategy: membership, and which server holds which buckets.

1. The servers of a view are those that hold at least one bucket in it. These servers send reports (membership.py).
2. Admitting or dismissing a server changes the placement, in a separate view. The next change of the placement waits
   until every server of the old view and of the new view has sent `Settled`. Members can join and leave meanwhile. The
   number of a dismissed server is never used again. A dismissed server that still runs receives every view, so that it
   can answer removed workers with `Gone`.
3. If a server dies, its buckets are lost, and so are those that were on their way from it or to it. If its launcher has
   started it again, it holds the same buckets as before; otherwise each goes to the server that holds least. All other
   buckets stay where they are. The view names what is lost until all servers have settled (recovery.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from syncline.effects import Admit, Dismiss, Effect, Event, Received, Restarted, ServerLost
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.messages import Holders, Loss, NodeId, Settled, View, server_id
from syncline.nodes.bucket_map import bucket_map_of
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
        self._givers: dict[Bucket, int] = {}
        """The buckets that may still be on their way to their holder, and from which server."""
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
            case ServerLost(server):
                return self._lose(server)
            case Restarted(server):
                return self._restore(server, self._holders)
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
            here = set(self._holders[server]) if server < len(self._holders) else set()
            self._givers = {bucket: giver for bucket, giver in self._givers.items() if bucket not in here}
            self._expect_nothing_from(server)
        return self._begin_next_move()

    def _expect_nothing_from(self, server: int) -> None:
        """A server has settled, or has no part in the change any more."""
        self._unsettled.discard(server)
        if not self._unsettled:
            self._lost = ()

    def _begin_next_move(self) -> list[Effect]:
        """Begin the next change of the placement, if one is wanted and none is in progress."""
        if self._unsettled or self._wanted == self._servers or self._replace is None:
            return []
        before = bucket_map_of(self._holders)
        after = self._replace(self._holders, self._wanted)
        for bucket, holder in bucket_map_of(after).holder.items():
            giver = before.holder_of(bucket)
            if giver is not None and giver != holder:
                self._givers[bucket] = giver.number
        return self._place(after, set(self._wanted), self._servers | self._wanted)

    def _place(self, holders: Holders, servers: set[int], movers: set[int]) -> list[Effect]:
        """Publish a view with this placement on these servers; the movers take part in the change."""
        self._topology = self._holders = holders
        self._servers = servers
        self._unsettled = movers
        self._movers = frozenset(movers)
        self.moved = self._number + 1
        return self._publish()

    # Servers that die.

    def _lose(self, server: int) -> list[Effect]:
        """A server is dead for good: the others take over what it held."""
        if server not in self._servers | self._wanted | self._unsettled | set(self._givers.values()):
            return []
        heirs = self._heirs(server)
        if not heirs:
            raise UsageError("server", f"{server} was the only server, so what it held is lost")
        self._wanted = self._wanted - {server} or set(heirs)
        return self._restore(server, shared_out(self._holders, server, heirs))

    def _heirs(self, server: int) -> set[int]:
        """The servers that can take over what this one held."""
        groups = (self._servers, self._wanted, self._unsettled)
        return next((left for each in groups if (left := each - {server})), set())

    def _restore(self, server: int, holders: Holders) -> list[Effect]:
        """The state of a server is lost: the holders of its buckets restore them from the workers' copies."""
        gone = set(self._holders[server]) if server < len(self._holders) else set()
        gone |= {bucket for bucket, giver in self._givers.items() if giver == server}
        if not gone:
            self._expect_nothing_from(server)
            return self._begin_next_move()
        return self._place_lost(holders, gone, self._unsettled - {server})

    def _place_lost(self, holders: Holders, lost: set[Bucket], alive: set[int]) -> list[Effect]:
        """Publish a view with this placement, in which the holders of lost buckets restore them.

        `alive`: the servers that have not settled yet.
        """
        self._givers = {bucket: giver for bucket, giver in self._givers.items() if bucket not in lost}
        earlier = [each for each in self._lost if each.bucket not in lost]
        holder = bucket_map_of(holders).holder
        now = [Loss(bucket, self._number + 1, holder[bucket].number) for bucket in sorted(lost)]
        self._lost = tuple(sorted((*earlier, *now), key=lambda each: each.bucket))
        servers = {number for number, held in enumerate(holders) if held}
        return self._place(holders, servers, alive | servers)


def shared_out(holders: Holders, server: int, heirs: Collection[int]) -> Holders:
    """The placement in which each bucket of this server belongs to the one of the heirs that holds least."""
    held = {number: list(each) for number, each in enumerate(holders)} | {
        number: [] for number in heirs if number >= len(holders)
    }
    sizes = {number: sum(bucket.size for bucket in held[number]) for number in sorted(heirs)}
    for bucket in holders[server] if server < len(holders) else ():
        least = min(sizes, key=sizes.__getitem__)
        held[least].append(bucket)
        sizes[least] += bucket.size
    held[server] = []
    return tuple(tuple(sorted(held.get(number, ()))) for number in range(max(held) + 1))
