"""Which servers a run can spare: those that come later, and those that are asked to leave.

A server that is asked to leave is let go once it holds nothing of any model; the last one cannot leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncline.engines.control import Refused, Released
from syncline.engines.frames import Frame
from syncline.engines.gathering import Gathering
from syncline.engines.peer import Peer
from syncline.engines.register import Guest
from syncline.engines.wire import Wire
from syncline.errors import UsageError

LAST = "it is the last one, and somebody must hold the model"


class Releases:
    """The servers of a run, and what its models hold on each."""

    def __init__(
        self,
        servers: Mapping[int, Guest],
        models: Mapping[str, Gathering],
        count: int,
        out: Callable[[Wire, Frame], None],
        tell: Callable[[Peer, str], None],
    ) -> None:
        """`count`: so many servers are there from the start."""
        self._servers = servers
        self._models = models
        self._count = count
        self._out = out
        self._tell = tell

    def needs(self, number: int) -> bool:
        """Would something be lost with this server?"""
        models = self._models.values()
        if any(not gathering.turnover.is_free(number) for gathering in models):
            return True
        return number < self._count and not any(gathering.begun for gathering in models)

    # As models say.

    def joined(self, number: int) -> None:
        """This server, which has come later, gets its part."""
        guest = self._servers[number]
        if not guest.began:
            guest.began = True
            self._tell(guest.peers[0], "has joined; the others hand over its part")

    def refuse(self, number: int, reason: str) -> None:
        """This server, which has come later, gets no part of a model."""
        guest = self._servers.get(number)
        if guest is None or not guest.peers:
            return
        self._tell(guest.peers[0], f"holds nothing: {reason}")
        if not self.needs(number):
            self._out(guest.peers[0].wire, Refused(reason))

    def keep(self, number: int, reason: str) -> None:
        """This server cannot leave."""
        guest = self._servers.get(number)
        if guest is not None and guest.peers:
            guest.leaving = False
            self._tell(guest.peers[0], f"cannot leave: {reason}")

    def settled(self) -> None:
        """Something has moved: a server may be free to go."""
        for number, guest in self._servers.items():
            models = self._models.values()
            free = not any(not each.turnover.is_free(number) or each.is_known_to_joiners(number) for each in models)
            if guest.leaving and free and not guest.released:
                guest.released = True
                self._out(guest.peers[0].wire, Released())

    # As servers say.

    def withdraw(self, number: int) -> None:
        """A server was asked to leave; the others take over its part, if they can."""
        guest = self._servers[number]
        if guest.leaving:
            return
        try:
            if not self._others(number):
                raise UsageError("server", LAST)
            for gathering in self._models.values():
                gathering.turnover.check_leaving(number)
        except UsageError as error:
            self.keep(number, error.problem)
            return
        guest.leaving = True
        self._tell(guest.peers[0], "is leaving; the others take over what it holds")
        for gathering in list(self._models.values()):
            gathering.turnover.leave(number)
            gathering.begin_if_ready()
        self.settled()

    def gone(self, guest: Guest, peer: Peer, what: str) -> None:
        """A connection of a server has ended that nobody needs."""
        if peer.gathering is not None:
            peer.gathering.turnover.closed(peer.id.number)
        if not guest.peers:
            self._tell(peer, "has left; the others hold what it held" if guest.released else f"is gone: {what}")
            self._retain()

    def _retain(self) -> None:
        """A server has gone that others may have waited for, to leave."""
        for number, guest in list(self._servers.items()):
            if guest.leaving and not guest.released and not self._others(number):
                stays = [gathering.turnover.stay(number) for gathering in self._models.values()]
                if any(stays):
                    self.keep(number, LAST)

    def _others(self, number: int) -> bool:
        """Is there another server that stays?"""
        return any(not other.leaving for each, other in self._servers.items() if each != number)
