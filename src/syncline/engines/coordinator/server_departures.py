"""Servers that join and leave, across all models of a run.

A server that is asked to leave may exit once it holds no part of any model. The last server cannot leave.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.coordinator.trained_model import TrainedModel
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Refused, Released
from syncline.engines.net.frames import Frame
from syncline.errors import UsageError

LAST = "it is the last server, and one server must hold the model"


class ServerDepartures:
    """Decides which servers a run still needs, and tells the servers and launchers."""

    def __init__(
        self,
        servers: Mapping[int, RosterEntry],
        models: Mapping[str, TrainedModel],
        count: int,
        out: Callable[[Connection, Frame], None],
        tell: Callable[[Participant, str], None],
    ) -> None:
        """`count`: how many servers the run starts with."""
        self._servers = servers
        self._models = models
        self._count = count
        self._out = out
        self._tell = tell

    def needs(self, number: int) -> bool:
        """Would the run lose data, or be unable to begin, without this server?"""
        models = self._models.values()
        if any(not trained.changes.is_free(number) for trained in models):
            return True
        return number < self._count and not any(trained.begun for trained in models)

    # The models call these.

    def joined(self, number: int, *, hands_over: bool) -> None:
        """A joining server gets its part; `hands_over`: from the others."""
        entry = self._servers[number]
        if not entry.began:
            entry.began = True
            self._tell(entry.peers[0], "has joined" + "; the others hand over its part" * hands_over)

    def returned(self, number: int, saved: bool) -> None:
        """A server that had died takes part again."""
        entry = self._servers[number]
        self._tell(entry.peers[0], "has started again" + (", from its checkpoint" if saved else ""))
        trained = [each for each in self._models.values() if each.begun]
        entry.leaving |= not any(number in each.changes.holding for each in trained)  # it died while it was leaving

    def refuse(self, number: int, reason: str) -> None:
        """A joining server gets no part of a model."""
        entry = self._servers.get(number)
        if entry is None or not entry.peers:
            return
        self._tell(entry.peers[0], f"gets no part of the model: {reason}")
        if not self.needs(number):
            self._out(entry.peers[0].wire, Refused(reason))

    def keep(self, number: int, reason: str) -> None:
        """This server cannot leave."""
        entry = self._servers.get(number)
        if entry is not None and entry.peers:
            entry.leaving = False
            self._tell(entry.peers[0], f"cannot leave: {reason}")

    def settled(self) -> None:
        """Release the leaving servers that hold nothing any more."""
        for number, entry in self._servers.items():
            if not entry.leaving or entry.released:
                continue
            models = self._models.values()
            if not any(not each.changes.is_free(number) or each.is_known_to_joiners(number) for each in models):
                entry.released = True
                self._out(entry.peers[0].wire, Released())

    # The coordinator calls these for servers.

    def withdraw(self, number: int) -> None:
        """A server was asked to leave: let the others take over its part, if they can."""
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

    def merge(self, numbers: Collection[int], into: int) -> None:
        """These servers have been told to give everything to another one, in all models; then they may exit."""
        for number in numbers:
            entry = self._servers[number]
            entry.leaving = True
            self._tell(entry.peers[0], f"is leaving; server {into} takes over what it holds")
        self.settled()

    def gone(self, entry: RosterEntry, peer: Participant, what: str) -> None:
        """A connection of a server that the run does not need has ended."""
        if peer.trained is not None:
            peer.trained.changes.closed(peer.id.number)
        if not entry.peers:
            self._tell(peer, "has left; the others hold what it held" if entry.released else f"is gone: {what}")
            self._retain()

    def _retain(self) -> None:
        """A server is gone: keep the leaving servers that had waited for it to take over their part."""
        for number, entry in list(self._servers.items()):
            if entry.leaving and not entry.released and not self._others(number):
                stays = [trained.changes.stay(number) for trained in self._models.values()]
                if any(stays):
                    self.keep(number, LAST)

    def _others(self, number: int) -> bool:
        """Is there another server that is not leaving?"""
        return any(not other.leaving for each, other in self._servers.items() if each != number)
