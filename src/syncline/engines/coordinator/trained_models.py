"""The models of a run. A connection is for one of them, and every server has a connection for each."""

from __future__ import annotations

from collections.abc import Mapping

from syncline.engines.coordinator.participant import Participant, RunContext
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.coordinator.trained_model import OVER, TrainedModel
from syncline.engines.net.control import Another, Declare
from syncline.engines.net.frames import FIRST_HEADER
from syncline.errors import PeerError

MOST_MODELS = 64

MOST_UNCONFIRMED = 8
"""How many models may exist that only workers that join have declared: they may come before the run's own workers."""


class TrainedModels:
    """All models of a run, by name; `servers`: those that are connected."""

    def __init__(self, run: RunContext, servers: Mapping[int, RosterEntry]) -> None:
        self._run = run
        self._servers = servers
        self.all: dict[str, TrainedModel] = {}

    @property
    def over(self) -> bool:
        """Has the training of every model ended?"""
        return self.begun and all(trained.ended for trained in self.all.values() if not trained.unconfirmed)

    @property
    def survive_servers(self) -> bool:
        """Can all models be trained without a server that has died?"""
        return bool(self.all) and all(trained.survives_servers for trained in self.all.values())

    @property
    def begun(self) -> bool:
        return any(trained.begun for trained in self.all.values())

    @property
    def trained(self) -> bool:
        """Does any model have a member?"""
        return any(trained.members for trained in self.all.values())

    def begin_if_ready(self) -> None:
        for trained in self.all.values():
            trained.begin_if_ready()

    def end_if_empty(self) -> None:
        for trained in self.all.values():
            trained.end_if_empty()

    def declare(self, peer: Participant, declare: Declare, stopping: bool) -> None:
        """A worker declares the model that it trains; `stopping`: the run is ending, so it is refused."""
        if peer.trained is not None:
            raise PeerError("it declared a second model on one connection")
        trained = self.all.get(declare.model)
        if trained is None:
            if len(self.all) == MOST_MODELS:
                raise PeerError(f"it declared one model more than the limit of {MOST_MODELS}")
            if not peer.own and sum(each.unconfirmed for each in self.all.values()) >= MOST_UNCONFIRMED:
                raise PeerError(f"it declared {declare.model!r}, which none of the run's own workers has declared")
            trained = self.all[declare.model] = TrainedModel(declare.model, self._run)
        peer.trained = trained
        if not peer.entered:
            peer.wire.trust(FIRST_HEADER)  # it has declared, and until it is a member it sends nothing large
        if stopping:
            trained.refuse(peer, OVER, usage=False)
            return
        trained.declare(peer, declare)
        self.assign_servers()

    def assign_servers(self) -> None:
        """Give every model a connection of each server; ask the server for another one if none is free."""
        for number, entry in list(self._servers.items()):
            if entry.leaving:
                continue
            free = [peer for peer in entry.peers if peer.trained is None]
            lacking = [each for each in self.all.values() if number not in each.servers]
            for peer, trained in zip(free, lacking, strict=False):
                peer.trained = trained
                trained.servers[number] = peer
                trained.changes.invite(number)
            while entry.asked < len(lacking) - len(free):
                entry.asked += 1
                self._run.out(entry.peers[0].wire, Another())
        self.begin_if_ready()

    def forget_if_empty(self, trained: TrainedModel) -> None:
        """Remove a model that has no workers and has never begun."""
        if not trained.begun and not trained.workers:
            self.all.pop(trained.name, None)
            for server in trained.servers.values():
                server.trained = None
