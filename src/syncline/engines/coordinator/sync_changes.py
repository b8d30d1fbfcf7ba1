"""Change the sync model, the release, the topology or the nodes during training, as a worker or an operator asks.

1. The coordinator checks a request first. It refuses an invalid one with the reason, and nothing changes.
2. The coordinator tells every server. Each server switches without interrupting the workers, and confirms. When all
   have confirmed, the coordinator answers the request, sends the new settings to the workers, and lets the launchers
   print a line.
3. The coordinator makes one change at a time, so all servers see changes in the same order.
4. Servers and workers that join later receive the current settings. A server that joins during a change is told like
   the others.
5. If a server cannot load the new model (a user-defined class that is not installed there), all servers change back.
6. A change of the topology or the nodes is checked and carried out by the coordinator's node: the next view has it.
   The servers follow the view, so nobody has to confirm it. It is checked for all models before any of them changes.
7. Only workers that the launcher started, and operators of this user on this host, may name any user-defined class:
   the servers import what such a name refers to. Others may name the classes that the launcher allows
   (`--allow-parts`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.server_departures import ServerDepartures
from syncline.engines.coordinator.trained_model import OVER, TrainedModel
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import ChangeReply, ChangeRequest, InForce, NewTerms, TermsTaken
from syncline.engines.net.frames import Frame
from syncline.errors import PeerError, RunError, SynclineError, UsageError
from syncline.nodes.topologies import listed
from syncline.strategies.allowed_parts import AllowedParts
from syncline.strategies.node_changes import NewTopology, NodesMerge
from syncline.strategies.sync_change import check_change, written

TOO_EARLY = "training has not started yet; ask again when it has"


@dataclass(frozen=True)
class _Terms:
    """The current settings of one model."""

    settings: Mapping[str, str]
    """`sync` and `release`."""
    sync: Mapping[int, str]
    """The sync model of each server."""


@dataclass(eq=False)
class _Change:
    """A requested change; one at a time is under way."""

    wire: Connection
    request: ChangeRequest
    worker: Participant | None
    """The worker that asks; None: an operator."""
    before: dict[TrainedModel, _Terms] = field(default_factory=dict)
    """The settings before the change."""
    waiting: set[Participant] = field(default_factory=set)
    """The servers that have not confirmed it yet."""
    problem: str = ""
    """Why a server could not change."""
    back: bool = False
    """All servers are changing back."""

    @property
    def trusted(self) -> bool:
        """May the request name a user-defined class?"""
        return self.wire.is_near if self.worker is None else self.worker.own


class SyncChanges:
    """All changes of a run."""

    def __init__(
        self,
        models: Mapping[str, TrainedModel],
        out: Callable[[Connection, Frame], None],
        notice: Callable[[str], None],
        allowed: AllowedParts,
        departures: ServerDepartures,
    ) -> None:
        """`notice`: let the launchers print a line. `allowed`: the parts that anybody may name."""
        self._allowed = allowed
        self._departures = departures
        self._models = models
        self._out = out
        self._notice = notice
        self._asked: deque[_Change] = deque()
        self._number = 0
        self._told: dict[TrainedModel, Mapping[int, str]] = {}
        """The sync model that each server was last told to use."""

    def ask(self, wire: Connection, request: ChangeRequest, worker: Participant | None = None) -> None:
        """Handle a request of a worker, or of an operator if `worker` is None."""
        if any(each.wire is wire for each in self._asked):
            raise PeerError("it asked for a second change before the first was answered")
        self._asked.append(_Change(wire, request, worker))
        if len(self._asked) == 1:
            self._begin()

    def applied(self, peer: Participant, taken: TermsTaken) -> None:
        """A server has changed, or says why it cannot."""
        if taken.number == self._number and self._asked:
            change = self._asked[0]
            change.problem = change.problem or (taken.problem and f"{peer.id}: {taken.problem}")
            self._settle(peer)

    def gone(self, peer: Participant) -> None:
        """Stop waiting for a server that is gone."""
        if self._asked:
            self._settle(peer)

    def _settle(self, peer: Participant) -> None:
        """Stop waiting for this server; if it was the last one, the change is complete."""
        change = self._asked[0]
        if peer not in change.waiting:
            return
        change.waiting.discard(peer)
        if change.waiting:
            return
        if change.problem and not change.back:
            self._take_back(change)
        else:
            self._finish(UsageError("sync", change.problem) if change.problem else None)

    # One change.

    def _begin(self) -> None:
        """Check the next change, and tell the servers."""
        change, request = self._asked[0], self._asked[0].request
        try:
            chosen = self._chosen(request.models)
            for trained in chosen:
                self._check(trained, change)
            if request.topology or request.merge:
                self._reshape(change, chosen)
                return
        except SynclineError as error:
            self._finish(error)
            return
        words = {"sync": written(request.sync), "release": request.release}
        self._number += 1
        for trained in chosen:
            change.before[trained] = self._in_force(trained)
            sync = _dealt(trained, request.sync) if request.sync else change.before[trained].sync
            settings = {**change.before[trained].settings, **{key: word for key, word in words.items() if word}}
            self._tell(change, trained, _Terms(settings, sync))

    def _reshape(self, change: _Change, chosen: Sequence[TrainedModel]) -> None:
        """Change who takes part or who talks to whom in these models, or in none."""
        topology, merge = change.request.topology, change.request.merge
        try:
            wanted = NewTopology(topology) if topology else NodesMerge(merge, merge[0])
            planned = [(trained, trained.planned(wanted)) for trained in chosen]
        except UsageError as error:
            raise UsageError("topology" if topology else "merge", error.problem) from None
        for trained, plan in planned:
            trained.reshape(plan)
            if topology:
                trained.resettle({"topology": topology})
            change.before[trained] = _Terms({}, {})
        if merge:
            self._departures.merge(sorted(set(merge[1:])), merge[0])
        self._finish(None)

    def _tell(self, change: _Change, trained: TrainedModel, terms: _Terms) -> None:
        """Tell every server of this model its new settings."""
        trained.resettle(terms.settings)
        self._told[trained] = terms.sync
        for number, peer in trained.servers.items():
            change.waiting.add(peer)
            self._out(peer.wire, NewTerms(self._number, terms.sync[number], terms.settings["release"]))

    def _take_back(self, change: _Change) -> None:
        """A server could not load the new model: tell all servers to change back."""
        self._number += 1
        change.back = True
        for trained, terms in change.before.items():
            others = dict.fromkeys(trained.servers, terms.settings["sync"].split()[0])
            self._tell(change, trained, _Terms(terms.settings, {**others, **terms.sync}))

    def _finish(self, error: SynclineError | None) -> None:
        """Answer the request, and begin the next change."""
        change = self._asked.popleft()
        option, problem = (error.option, error.problem) if isinstance(error, UsageError) else ("", str(error or ""))
        if error is None:
            self._announce(change)
        self._out(change.wire, ChangeReply(change.request.number, option, problem))
        if self._asked:
            self._begin()

    def _announce(self, change: _Change) -> None:
        topology, merge = change.request.topology, change.request.merge
        who = "an operator" if change.worker is None else f"worker {change.worker.id.number}"
        if merge:
            self._notice(f"node {merge[0]} takes the place of {listed(merge)} from now on, as {who} asked")
            return
        for trained in change.before:
            settings = {"topology": topology} if topology else dict(self._in_force(trained).settings)
            for worker in trained.workers.values():
                self._out(worker.wire, InForce(settings))
            which = f"model {trained.name!r}: " if len(self._models) > 1 else ""
            now = ", ".join(f"{key} {settings[key]}" for key in ("topology", "sync", "release") if key in settings)
            self._notice(f"{which}{now} from now on, as {who} asked")

    def _in_force(self, trained: TrainedModel) -> _Terms:
        """The current settings. A server that was told of no change has its initial model; a new one has the first."""
        words, told = trained.settings["sync"].split(), self._told.get(trained, {})
        sync = {each: told.get(each) or words[each if each < len(words) else 0] for each in trained.servers}
        return _Terms({key: trained.settings[key] for key in ("sync", "release")}, sync)

    # Checks.

    def _chosen(self, names: Collection[str]) -> list[TrainedModel]:
        """The models with these names; without names, all that are still trained."""
        if not any(each.begun for each in self._models.values()):
            raise RunError(TOO_EARLY)
        for name in names:
            if name not in self._models:
                raise UsageError("model", f"this run has no model {name!r}; it has {', '.join(self._models)}")
        chosen = [each for name, each in self._models.items() if (name in names if names else not each.ended)]
        if not chosen or any(each.ended for each in chosen):
            raise RunError(OVER)
        return chosen

    def _check(self, trained: TrainedModel, change: _Change) -> None:
        if not trained.running:
            raise RunError(TOO_EARLY)
        if change.worker is not None and not trained.is_member(change.worker):
            raise RunError(f"{change.worker.id} is not a member of model {trained.name!r}, so it cannot change it")
        sync, release = change.request.sync, change.request.release
        topology, merge = change.request.topology, change.request.merge
        if topology or merge:
            if sync or release or (topology and merge):
                what, other = ("topology", "the sync model") if topology and not merge else ("merge", "other settings")
                raise UsageError(what, f"cannot change together with {other}; ask for one, then the other")
            if merge and change.request.models:
                raise UsageError("merge", "is for all models of the run, because a node that leaves leaves them all")
            return
        if not sync and not release:
            raise UsageError("sync", "there is nothing to change; give a sync model, a release, or both")
        if not change.trusted:
            self._allowed.check({"sync": " ".join(sync)})
        check_change(sync, release, trained.strategy, trained.most_workers, len(trained.changes.holding))
        if len(set(sync)) > 1 and trained.changes.unsettled:
            raise UsageError("sync", "a server is joining or leaving; give one model for all, or try again later")


def _dealt(trained: TrainedModel, sync: Sequence[str]) -> dict[int, str]:
    """The sync model of each server: the only one, or one for each server that holds buckets, in order of number."""
    holding = sorted(trained.changes.holding)
    each = dict(zip(holding, sync, strict=True)) if len(sync) > 1 else {}
    return {number: each.get(number, sync[0]) for number in trained.servers}
