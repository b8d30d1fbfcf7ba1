"""The models of a run: a connection is about one of them, and every server has a connection for each."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.engines.control import Another, Declare
from syncline.engines.gathering import OVER, Gathering
from syncline.engines.peer import Peer, Run
from syncline.engines.register import Guest
from syncline.errors import PeerError

MOST_MODELS = 64


class Models:
    """All that is trained, by name; `servers`: those that are there."""

    def __init__(self, run: Run, servers: Mapping[int, Guest]) -> None:
        self._run = run
        self._servers = servers
        self.all: dict[str, Gathering] = {}

    @property
    def over(self) -> bool:
        """Has everything ended that was ever trained here?"""
        return bool(self.all) and all(gathering.ended for gathering in self.all.values())

    @property
    def begun(self) -> bool:
        return any(gathering.begun for gathering in self.all.values())

    @property
    def trained(self) -> bool:
        """Is somebody a member of one of them?"""
        return any(gathering.members for gathering in self.all.values())

    def begin_if_ready(self) -> None:
        for gathering in self.all.values():
            gathering.begin_if_ready()

    def declare(self, peer: Peer, declare: Declare, stopping: bool) -> None:
        """A worker says what it trains; `stopping`: it is too late for that."""
        if peer.gathering is not None:
            raise PeerError("a connection is about one model")
        gathering = self.all.get(declare.model)
        if gathering is None:
            if len(self.all) == MOST_MODELS:
                raise PeerError(f"more than {MOST_MODELS} models")
            gathering = self.all[declare.model] = Gathering(declare.model, self._run)
        peer.gathering = gathering
        if stopping:
            gathering.refuse(peer, OVER, usage=False)
            return
        gathering.declare(peer, declare)
        self.assign_servers()

    def assign_servers(self) -> None:
        """Give every model a connection of each server; ask for another where there is none left."""
        for number, guest in list(self._servers.items()):
            if guest.leaving:
                continue
            free = [peer for peer in guest.peers if peer.gathering is None]
            lacking = [each for each in self.all.values() if number not in each.servers]
            for peer, gathering in zip(free, lacking, strict=False):
                peer.gathering = gathering
                gathering.servers[number] = peer
                gathering.turnover.invite(number)
            while guest.asked < len(lacking) - len(free):
                guest.asked += 1
                self._run.out(guest.peers[0].wire, Another())
        self.begin_if_ready()

    def forget_if_empty(self, gathering: Gathering) -> None:
        """What nobody trains, and nobody has trained, is no model of this run."""
        if not gathering.begun and not gathering.workers:
            self.all.pop(gathering.name, None)
            for server in gathering.servers.values():
                server.gathering = None
