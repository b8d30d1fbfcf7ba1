"""Which servers a run can spare: those that come later, and those that are asked to leave.

A server that is asked to leave is let go once it holds nothing of any model; the last one cannot leave.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.coordinator.trained_model import TrainedModel
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Refused, Released
from syncline.engines.net.frames import Frame
from syncline.errors import UsageError

LAST = "it is the last one, and somebody must hold the model"


class ServerDepartures:
    """The servers of a run, and what its models hold on each."""

    def __init__(
        self,
        servers: Mapping[int, RosterEntry],
        models: Mapping[str, TrainedModel],
        count: int,
        out: Callable[[Connection, Frame], None],
        tell: Callable[[Participant, str], None],
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
        if any(not trained.changes.is_free(number) for trained in models):
            return True
        return number < self._count and not any(trained.begun for trained in models)

    # As models say.

    def joined(self, number: int) -> None:
        """This server, which has come later, gets its part."""
        entry = self._servers[number]
        if not entry.began:
            entry.began = True
            self._tell(entry.peers[0], "has joined; the others hand over its part")

    def refuse(self, number: int, reason: str) -> None:
        """This server, which has come later, gets no part of a model."""
        entry = self._servers.get(number)
        if entry is None or not entry.peers:
            return
        self._tell(entry.peers[0], f"holds nothing: {reason}")
        if not self.needs(number):
            self._out(entry.peers[0].wire, Refused(reason))

    def keep(self, number: int, reason: str) -> None:
        """This server cannot leave."""
        entry = self._servers.get(number)
        if entry is not None and entry.peers:
            entry.leaving = False
            self._tell(entry.peers[0], f"cannot leave: {reason}")

    def settled(self) -> None:
        """Something has moved: a server may be free to go."""
        for number, entry in self._servers.items():
            models = self._models.values()
            free = not any(not each.changes.is_free(number) or each.is_known_to_joiners(number) for each in models)
            if entry.leaving and free and not entry.released:
                entry.released = True
                self._out(entry.peers[0].wire, Released())

    # As servers say.

    def withdraw(self, number: int) -> None:
        """A server was asked to leave; the others take over its part, if they can."""
        entry = self._servers[number]
        if entry.leaving:
            return
        try:
            if not self._others(number):
                raise UsageError("server", LAST)
            for trained in self._models.values():
                trained.changes.check_leaving(number)
        except UsageError as error:
            self.keep(number, error.problem)
            return
        entry.leaving = True
        self._tell(entry.peers[0], "is leaving; the others take over what it holds")
        for trained in list(self._models.values()):
            trained.changes.leave(number)
            trained.begin_if_ready()
        self.settled()

    def gone(self, entry: RosterEntry, peer: Participant, what: str) -> None:
        """A connection of a server has ended that nobody needs."""
        if peer.trained is not None:
            peer.trained.changes.closed(peer.id.number)
        if not entry.peers:
            self._tell(peer, "has left; the others hold what it held" if entry.released else f"is gone: {what}")
            self._retain()

    def _retain(self) -> None:
        """A server has gone that others may have waited for, to leave."""
        for number, entry in list(self._servers.items()):
            if entry.leaving and not entry.released and not self._others(number):
                stays = [trained.changes.stay(number) for trained in self._models.values()]
                if any(stays):
                    self.keep(number, LAST)

    def _others(self, number: int) -> bool:
        """Is there another server that stays?"""
        return any(not other.leaving for each, other in self._servers.items() if each != number)
