"""The servers of one model that come and go while it is trained.

1. A server that comes later is told what is trained, then everyone else is told where it is; once all who are there
   have reached it, it is admitted. Whoever cannot reach it is reason enough to refuse it.
2. Servers come and go only while something is trained: not before all have started, nor after all have left.
3. Whoever is to leave before another is there that could take over waits for that one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from syncline.effects import Admit, Dismiss, Event
from syncline.engines.coordinator.participant import Participant, RunContext
from syncline.engines.net.control import Begin, NodeAddress, Reach, Reached, layout_of
from syncline.errors import PeerError, UsageError
from syncline.layout import VALUE_BYTES
from syncline.messages import PAYLOAD, Holders, View
from syncline.nodes.protocol import ViewMaker
from syncline.strategies.settings import strategy_in


class ServerChanges:
    """Those that are on their way in, and out."""

    def __init__(self, run: RunContext, servers: dict[int, Participant], workers: Mapping[int, Participant]) -> None:
        """`servers`, `workers`: all who are there, as their trained knows them."""
        self._run = run
        self._servers = servers
        self._workers = workers
        self._node: ViewMaker | None = None
        self._leaving: set[int] = set()
        """The servers that are to be dismissed as soon as may be."""
        self._arriving: dict[int, set[Participant]] = {}
        """The servers that know what is trained, and who has not reached each of them yet."""

    def begin(
        self, begun: Begin, node: ViewMaker, handle: Callable[[Event], None], may_move: Callable[[], bool]
    ) -> None:
        """Something is trained, and `node` makes its views. `begun`: as servers are told, with their word."""
        self._begun = begun
        self._strategy = strategy_in(begun.settings)
        self._handle = handle
        self._may_move = may_move
        self._node = node

    def places(self, view: View) -> tuple[NodeAddress, ...]:
        """Where the servers of this view are."""
        return tuple(
            self._servers[number].place if number in self._servers else NodeAddress("", "", "")
            for number in range(len(view.holders))
        )

    # Who comes.

    def invite(self, number: int) -> None:
        """Tell a server that has come later what is trained, unless it knows."""
        if self._node is None or not self._node.view.members or self.holds(number):
            return
        if not self._strategy.moves_servers:
            self._run.departures.refuse(number, f"strategy {self._strategy.name()!r} takes no further servers")
            return
        problem = self._cannot_move()
        if problem is None and len(self._begun.settings["sync"].split()) > 1:
            problem = "its range would come from servers with different sync models"
        if problem is not None:
            self._run.departures.refuse(number, problem)
            return
        peer, view = self._servers[number], self._node.view
        self._run.out(peer.wire, replace(self._begun, view=view, servers=self.places(view), leader=-1))
        self.mention(peer)

    def mention(self, peer: Participant) -> None:
        """Whoever comes now also learns of the servers that have come, and hold nothing yet."""
        assert self._node is not None
        for number, server in self._servers.items():
            if self._has_part(number) or server is peer or number not in {*self._arriving, *self._node.servers}:
                continue
            if number in self._arriving:
                self._arriving[number].add(peer)
            self._run.out(peer.wire, Reach(number, server.place))

    def introduce(self, peer: Participant) -> None:
        """A server knows what is trained: everybody else is told where it is."""
        number = peer.id.number
        if self._node is None or self.holds(number) or number in self._arriving:
            raise PeerError("Seated a second time")
        others = {each for each in (*self._servers.values(), *self._workers.values()) if each is not peer}
        self._arriving[number] = others
        for each in others:
            self._run.out(each.wire, Reach(number, peer.place))
        self.arrange()

    def reached(self, peer: Participant, message: Reached) -> None:
        """Somebody says whether it has a connection to a server that has come."""
        waiting = self._arriving.get(message.server)
        if waiting is None or peer not in waiting:
            return  # the server has gone again
        if message.problem:
            del self._arriving[message.server]
            self._run.departures.refuse(message.server, f"{peer.id} cannot reach it: {message.problem}")
            return
        waiting.discard(peer)
        self.arrange()

    def excuse(self, peer: Participant) -> None:
        """Nobody need wait for this one, which is gone, to reach a server."""
        for waiting in self._arriving.values():
            waiting.discard(peer)
        self.arrange()

    def arrange(self) -> None:
        """Admit and dismiss whom it is time for."""
        if self._node is None or not self._may_move():
            return
        for number in [number for number, waiting in self._arriving.items() if not waiting]:
            del self._arriving[number]
            self._run.out(self._servers[number].wire, self._node.view)
            try:
                self._handle(Admit(number))
                self._run.departures.joined(number)
            except UsageError as error:
                self._run.departures.refuse(number, error.problem)
        for number in sorted(self._leaving):
            if self._node.servers == {number}:
                break  # until another is there
            self._leaving.discard(number)
            try:
                if number in self._node.servers:
                    self._handle(Dismiss(number))
            except UsageError as error:
                self._run.departures.keep(number, error.problem)

    # Who goes.

    def check_leaving(self, number: int) -> None:
        """`UsageError`: others cannot take over what this server holds."""
        if self._node is None or not self._node.view.members or not self.holds(number):
            return
        problem = self._cannot_move()
        if problem is not None:
            raise UsageError("server", problem)
        left = self._node.servers - {number} - self._leaving
        if left:  # else it leaves when those that have come are admitted
            self._replace(self._node.view.holders, left)

    def leave(self, number: int) -> None:
        """Have the others take over what this server holds."""
        self._arriving.pop(number, None)
        if self._node is None:
            self._servers.pop(number, None)
        else:
            self._leaving.add(number)
            self.arrange()

    def stay(self, number: int) -> bool:
        """Do not dismiss this server after all; False: it was already."""
        waits = number in self._leaving
        self._leaving.discard(number)
        return waits

    def closed(self, number: int) -> None:
        """A server has gone that held nothing."""
        peer = self._servers.pop(number, None)
        self._arriving.pop(number, None)
        if peer is not None:
            self.excuse(peer)

    # Who holds what.

    @property
    def holding(self) -> frozenset[int]:
        """The servers that hold something, or will when what moves now has moved."""
        return frozenset() if self._node is None else self._node.servers

    @property
    def unsettled(self) -> bool:
        """Is a server coming or going?"""
        return bool(self._arriving or self._leaving) or (self._node is not None and self._node.moving)

    def resettle(self, words: Mapping[str, str]) -> None:
        """Servers that come later are told these settings."""
        self._begun = replace(self._begun, settings={**self._begun.settings, **words})

    def _has_part(self, number: int) -> bool:
        holders = () if self._node is None else self._node.view.holders
        return number < len(holders) and bool(holders[number])

    def holds(self, number: int) -> bool:
        """Does this server hold something, or is it about to?"""
        return self._node is not None and (number in self._node.servers or self._has_part(number))

    def is_free(self, number: int) -> bool:
        """Does this server hold nothing, and is nothing on its way?"""
        return self._node is None or not (self.holds(number) or number in self._node.movers)

    def _replace(self, held: Holders, servers: Collection[int]) -> Holders:
        return self._strategy.replacing(layout_of(self._begun.tables), held, servers)

    def _cannot_move(self) -> str | None:
        """Why buckets of this model cannot be handed over: a handover is one message, with all that waits in it."""
        assert self._node is not None
        strategy, view = self._strategy, self._node.view
        arrays = strategy.moved_arrays + len(view.members)
        largest = max(bucket.size for held in view.holders for bucket in held)
        if arrays * largest * VALUE_BYTES <= PAYLOAD:
            return None
        size, workers = self._begun.settings["bucket"], len(view.members)
        return f"a bucket of {size} is too large to move with the updates of {workers} workers; take smaller ones"
