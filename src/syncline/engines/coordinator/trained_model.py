"""One model of a run as the coordinator sees it: its workers and servers, how it begins and ends, and its views.

1. A model begins when every server has a connection for it, and every expected worker has declared it or is known not
   to take part, for example because it has left the run. The workers that the run was started with decide its shape and
   settings; a joiner that comes before that and does not fit is refused alone.
2. The coordinator describes the model to the servers first. Once all of them know it, the coordinator tells the workers
   where the servers are.
3. All workers start together: none starts before all have the initial parameters, which are the leader's. If the leader
   dies before that, the run fails.
4. When the last member has left, the model has ended. The coordinator tells all workers, which may still read the final
   parameters; if a handover is in progress, it waits for its end first. While a worker may return
   (returning_workers.py), the model does not end.
5. Servers may join and leave during training (server_changes.py).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec.structs import replace

from syncline.draw import Draw
from syncline.effects import Deliver, Event, Fail, Lost, Received, Reject, Reshape, Send, SetTimer, Timer
from syncline.engines.coordinator.joining import check_growth, check_joiner, check_restarts
from syncline.engines.coordinator.participant import Participant, RunContext
from syncline.engines.coordinator.resting import Resting
from syncline.engines.coordinator.server_changes import ServerChanges
from syncline.engines.net import tokens
from syncline.engines.net.control import (
    Begin,
    Declare,
    Ended,
    Go,
    Listening,
    NodeAddress,
    Peers,
    Reached,
    Refused,
    Rest,
    Seated,
    layout_of,
)
from syncline.engines.net.frames import DECLARATION
from syncline.errors import PeerError, SynclineError, UsageError
from syncline.layout import VALUE_BYTES, Layout
from syncline.messages import (
    COORDINATOR,
    JoinRequest,
    LeaveNotice,
    Member,
    Message,
    NodeId,
    Report,
    Settled,
    Topology,
    View,
)
from syncline.nodes.driver import Driver
from syncline.nodes.protocol import ViewMaker
from syncline.strategies.node_changes import NodeChange, NodesMerge
from syncline.strategies.protocol import Job, Strategy
from syncline.strategies.settings import FITTED, contradiction, settle, strategy_of

OVER = "this run has ended"

MOST_BUCKETS = 1 << 20
"""The limit of buckets; a view with more would not fit into a frame."""

WorkerMessage = Seated | JoinRequest | LeaveNotice | Listening | Report
"""The messages of a worker about one model."""


class TrainedModel:
    """One model: its servers, its workers, and the node that makes its views."""

    def __init__(self, name: str, run: RunContext) -> None:
        self.name = name
        self.servers: dict[int, Participant] = {}
        self.workers: dict[int, Participant] = {}
        self.changes = ServerChanges(run, self.servers, self.workers)
        """The servers that come and go."""
        self.ended = False
        self._resting = Resting(run, self.servers)
        self._run = run
        self._declared: dict[int, Declare] = {}
        self._node: ViewMaker | None = None
        self.strategy: Strategy
        """Set when the model begins."""
        self._listening: dict[int, NodeAddress] = {}
        """The addresses of the workers, if workers connect to each other."""
        self._begun: Begin | None = None
        self._secret = ""
        """What only the servers of this model know; the workers' passes are derived from it."""
        self._wishes: dict[str, str] = {}
        """The settings that the leader's program asks for."""
        self._unready: set[Participant] = set()
        """The servers that have not confirmed the description of the model yet."""
        self._told: list[tuple[Participant, Begin]] = []
        """The messages for workers that are sent as soon as all servers are ready."""
        self._standing: set[Participant] = set()
        """The workers that start together and do not have the initial parameters yet."""
        self._all_told = False
        self._late: list[Participant] = []
        """The joiners that have not been told yet where the other workers are."""
        self._held_back: list[tuple[Participant, JoinRequest]] = []
        """The requests of joiners that wait for a server of their launcher."""

    @property
    def begun(self) -> bool:
        return self._begun is not None

    @property
    def unconfirmed(self) -> bool:
        """Have only workers that joined declared this model?"""
        return self._begun is None and not any(peer.own for peer in self.workers.values())

    @property
    def members(self) -> tuple[Member, ...]:
        return () if self._node is None else self._node.view.members

    @property
    def running(self) -> bool:
        """Have all workers started, and has the model not ended?"""
        return self._begun is not None and not self._standing and not self.ended

    @property
    def settings(self) -> Mapping[str, str]:
        """The current settings."""
        return {} if self._begun is None else self._begun.settings

    @property
    def most_workers(self) -> int:
        """The number of members, or of expected workers if that is larger."""
        return max(len(self.members), self._run.expected)

    def _may_move_servers(self) -> bool:
        return not self._standing and not self.ended

    def resettle(self, words: Mapping[str, str]) -> None:
        """Change these settings; processes that join later are told the new ones."""
        assert self._begun is not None
        self._begun = replace(self._begun, settings={**self._begun.settings, **words})
        self.changes.resettle(words)

    # Messages.

    def from_server(self, peer: Participant, message: Message | Seated | Reached | Rest) -> None:
        if isinstance(message, Rest):
            self._resting.heard(peer, message)
        elif isinstance(message, Seated):
            if peer in self._unready:
                self._unready.discard(peer)
                self._tell_if_ready()
            else:
                self.changes.introduce(peer)
        elif isinstance(message, Reached):
            self.changes.reached(peer, message)
        else:
            lost = frozenset() if self._node is None else frozenset(self._node.lost_origins)
            self._handle(Received(peer.id, message))
            if message.notice:
                self._run.tell(peer, message.notice)
            for number in () if self._node is None else self._node.lost_origins - lost:
                self._run.tell(peer, f"there is no copy of what server {number} held: its updates are lost")
            if isinstance(message, Settled) or self.understands(message):
                self._run.departures.settled()

    def understands(self, message: object) -> bool:
        """Is this a message of the strategy?"""
        return self.begun and type(message) in self.strategy.messages

    @property
    def survives_servers(self) -> bool:
        """Can the model be trained without a server that has died?"""
        if self._node is None or self._standing or self._all_told:
            return False
        return self.strategy.survives(len(self._node.servers), self._run.returning.allowed)

    def lose_server(self, peer: Participant, returns: bool) -> None:
        """A server is dead that the model can be trained without; `returns`: its launcher may start it again."""
        self._resting.stop()
        self.changes.lose(peer, returns)
        self.end_if_empty()

    def planned(self, change: NodeChange) -> Reshape:
        """What carries out this change of who takes part and who talks to whom; `UsageError` if it is not possible."""
        assert self._node is not None, "the model is trained"
        if isinstance(change, NodesMerge):
            self.changes.check_merge(change.nodes)
        return self.strategy.reshaping(self._node, change)

    def reshape(self, planned: Reshape) -> None:
        self._handle(planned)

    def _introduce_workers(self) -> None:
        """Send all workers the addresses of the others, once all that start together have sent theirs."""
        if self._standing and self._listening.keys() >= {peer.id.number for peer in self._standing}:
            standing = sorted(self._standing, key=lambda each: each.id.number)
            for peer in standing:
                self._introduce(peer, standing)

    def _introduce(self, peer: Participant, others: Collection[Participant]) -> None:
        """Send a worker the addresses of these others, and the passes to show to them."""
        known = {other.id.number: other for other in others if other.id.number in self._listening}
        addresses = {number: self._listening[number] for number in known}
        passes = {number: tokens.peer_pass(self._pass(other), peer.id.number) for number, other in known.items()}
        incarnations = {number: other.incarnation for number, other in known.items()}
        self._run.out(peer.wire, Peers(addresses, passes, incarnations))

    def _introduce_joiners(self) -> None:
        """Send joiners the addresses of all others, once the workers that start together have started.

        Of two joiners only the later one gets the address of the other, and connects to it.
        """
        while self._late and not self._standing:
            peer = self._late.pop(0)
            unknown = [peer, *self._late]
            self._introduce(peer, [other for other in self.workers.values() if other not in unknown])

    def from_worker(self, peer: Participant, message: WorkerMessage) -> None:
        if isinstance(message, Seated):
            self._sit(peer)
            return
        if isinstance(message, Listening):
            self._listening[peer.id.number] = message.address
            if peer not in self._standing:
                self._late.append(peer)
            self._introduce_workers()
            self._introduce_joiners()
            return
        if isinstance(message, Report):
            self._handle(Received(peer.id, message))
            return
        if message.incarnation != peer.incarnation:
            raise PeerError(f"it sent {type(message).__name__} with the wrong incarnation, {message.incarnation}")
        if self.ended and isinstance(message, JoinRequest):
            self.refuse(peer, OVER, usage=False)
            return
        if isinstance(message, JoinRequest) and self.changes.brings_server(peer):
            self._held_back.append((peer, message))
            return
        self._handle(Received(peer.id, message))
        if not peer.entered and self.is_member(peer):
            peer.entered = True
            peer.wire.trust(DECLARATION)
        if isinstance(message, LeaveNotice):
            peer.left = self._run.now

    def _admit_held_back(self) -> None:
        """Let the joiners in that have waited for a server of their launcher."""
        waiting, self._held_back = self._held_back, []
        for peer, message in waiting:
            if self.workers.get(peer.id.number) is peer:
                self.from_worker(peer, message)

    def closed(self, peer: Participant, reason: str) -> None:
        """A worker's connection has ended."""
        if self.workers.get(peer.id.number) is peer:
            del self.workers[peer.id.number]
            self._declared.pop(peer.id.number, None)
            self._listening.pop(peer.id.number, None)
        self.changes.excuse(peer)
        if peer.left is None and self._node is not None:
            self.lose(peer, f"its connection ended{reason and ': ' + reason}")

    def lose(self, peer: Participant, what: str) -> None:
        """Remove a member that is gone or stopped."""
        if self._node is None or not self.is_member(peer):
            return
        self._run.tell(peer, what)
        self._handle(Lost(peer.id.number, peer.incarnation))
        if peer in self._standing and self._begun is not None and peer.id.number == self._begun.leader:
            self._run.abort(f"{peer.id} is gone before the other workers had its initial parameters: {what}")
        self._sit(peer)
        self._introduce_workers()

    def is_member(self, peer: Participant) -> bool:
        who = (peer.id.number, peer.incarnation)
        return any((member.worker, member.incarnation) == who for member in self.members)

    def is_known_to_joiners(self, number: int) -> bool:
        """May a joiner, which got a view and is not a member yet, still try to connect to this server?"""
        return number in self.servers and any(
            peer.left is None and not self.is_member(peer) for peer in self.workers.values()
        )

    # Start.

    def declare(self, peer: Participant, declare: Declare) -> None:
        """A worker declares its tables and the settings that it asks for."""
        if self.ended:
            self.refuse(peer, OVER, usage=False)
            return
        layout = layout_of(declare.tables)
        first: Begin | Declare | None = self._begun
        if first is None and peer.own:
            first = next((self._declared[number] for number in self._declared if self.workers[number].own), None)
        problem = None if first is None else self._other_model(peer, layout, first)
        if problem is not None:
            self.refuse(peer, problem)
            return
        self.workers[peer.id.number] = peer
        self._declared[peer.id.number] = declare
        if self._begun is None:
            self.begin_if_ready()
        else:
            begun = self._begun
            try:
                check_joiner(peer.id.number, self.strategy)
                self._check_wishes(peer, {**begun.settings, **self._wishes})
            except UsageError as error:
                self.refuse(peer, str(error))
                return
            view = self._view()
            places, epochs = self.changes.places(view), self._run.epochs()
            again = replace(begun, view=view, servers=places, leader=-1, epochs=epochs, word=self._pass(peer))
            self._told.append((peer, again))
            self._tell_if_ready()
            self.changes.mention(peer)

    def _pass(self, peer: Participant) -> str:
        return tokens.server_pass(self._secret, peer.id.number, peer.incarnation)

    def _other_model(self, peer: Participant, layout: Layout, first: Begin | Declare) -> str | None:
        """Why this worker's model is another one than the run's; None if it is the same."""
        difference = layout.difference(layout_of(first.tables))
        return None if difference is None else f"worker {peer.id.number} trains another model: {difference}"

    def _view(self) -> View:
        assert self._node is not None
        return self._node.view

    def refuse(self, peer: Participant, reason: str, usage: bool = True) -> None:
        self._declared.pop(peer.id.number, None)
        self._run.out(peer.wire, Refused(reason, usage))
        self._run.tell(peer, f"refused: {reason}", usage)
        self._run.count_out(peer.id.number)

    def begin_if_ready(self) -> None:
        """Begin if all expected processes are connected."""
        ready = [self.workers[number] for number in sorted(self._declared)]
        first = self._run.first_servers()
        there = self.servers or not self._run.count
        if self._begun is not None or not there or not ready or not set(first).issubset(self.servers):
            return
        if not {*self._run.absent(), *self._declared}.issuperset(range(self._run.expected)):
            return
        try:
            self._begin(ready)
        except UsageError as error:
            self._declared.clear()
            for peer in ready:
                self.refuse(peer, str(error))

    def _begin(self, ready: list[Participant]) -> None:
        """Begin with these workers, in ascending order; the first one is the leader."""
        run, leader = self._run, ready[0]
        declared = self._declared[leader.id.number]
        layers = {**run.layers, "the program": declared.wishes if leader.own else {}}
        layout = layout_of(declared.tables)
        layers[FITTED] = run.fitting(layout.size // max(len(self._first()), 1), layers.values())
        found = settle(layers, run.count, run.expected, joinable=run.joinable)
        words = {key: word for key, (word, _) in found.items()}
        self.strategy = strategy_of(words, run.count).fitted(run.expected)
        self.strategy.check_real()
        self.changes.choose(self.strategy)
        if run.returning.allowed:
            check_restarts(self.strategy)
        if run.growth[0]:
            check_growth(self.strategy, run.growth[1])
        origins = {key: origin for key, (_, origin) in found.items()}
        self._wishes = dict(declared.wishes)
        for peer in (each for each in ready if each.own):
            self._check_wishes(peer, {**words, **self._wishes})
        misfits = self._misfits(ready, declared, {**words, **self._wishes})
        ready = [peer for peer in ready if peer not in misfits]
        numbers = tuple(peer.id.number for peer in ready)
        job = Job(layout, Draw(int(words["seed"])), remote=True, workers=numbers)
        first = declared.first if leader.own and self.strategy.continues else 0
        members = tuple(Member(peer.id.number, peer.incarnation, first) for peer in ready)
        view = View(0, members, self._topology(job))
        places = self.changes.places(view)
        who = (leader.id.number, self.name, origins)
        self._begun = Begin(declared.tables, words, view, places, *who, own_workers=run.expected)
        self._secret = run.fresh_secret()
        secret = replace(self._begun, word=self._secret)
        self._node = self.strategy.coordinator(job, view)
        self._driver = Driver(COORDINATOR, self._node, self)
        self.changes.begin(secret, self._node, self._handle, self._may_move_servers, self._admit_held_back)
        self._standing = set(ready)
        self._told = [(peer, replace(self._begun, word=self._pass(peer))) for peer in ready]
        self._unready = {self.servers[number] for number in self.strategy.servers_of(view)}
        for server in self._unready:
            server.wire.further = self.strategy.messages
            run.out(server.wire, secret)
        for number in self.servers:
            self.changes.invite(number)
        self._tell_if_ready()
        for peer, problem in misfits.items():
            self.refuse(peer, problem)
        run.begun()

    def _misfits(self, ready: list[Participant], declared: Declare, words: Mapping[str, str]) -> dict[Participant, str]:
        """The joiners that train another model, or ask for other settings, than the workers of the run; and why."""
        found: dict[Participant, str] = {}
        for peer in ready[1:]:
            if peer.own:
                continue
            layout = layout_of(self._declared[peer.id.number].tables)
            problem = self._other_model(peer, layout, declared)
            try:
                self._check_wishes(peer, words)
            except UsageError as error:
                problem = problem or str(error)
            if problem is not None:
                found[peer] = problem
        return found

    def _check_wishes(self, peer: Participant, words: Mapping[str, str]) -> None:
        """Raise `UsageError` if a worker's program asks for other settings than the leader's; it may ask for none."""
        said = [key for layer in self._run.layers.values() for key in layer]
        wishes = self._declared[peer.id.number].wishes
        key = contradiction(wishes, words, said)
        if key is not None:
            others = (
                f"worker {peer.id.number} asks for {wishes[key]}, and the run has {words.get(key, 'no such setting')}"
            )
            raise UsageError(key, f"{others}; all workers must ask for the same")

    def _topology(self, job: Job) -> Topology:
        """Which server holds which buckets, or which workers are connected. Servers that join are admitted later."""
        strategy = self.strategy
        if job.layout.size > MOST_BUCKETS * strategy.bucket_values:
            size = strategy.bucket_values * VALUE_BYTES
            problem = f"{size:,} bytes is too small: this model would have more than {MOST_BUCKETS:,} buckets"
            raise UsageError("bucket", problem)
        return strategy.topology(job, self._first())

    def _first(self) -> list[int]:
        """The servers that hold a part of the model from the start."""
        return sorted(self._run.first_servers()) or sorted(self.servers)

    def _tell_if_ready(self) -> None:
        if not self._unready:
            told, self._told = self._told, []
            for peer, begin in told:
                self._run.out(peer.wire, begin)

    def _sit(self, peer: Participant) -> None:
        if peer in self._standing:
            self._standing.discard(peer)
            if not self._standing:
                for each in self.workers.values():
                    self._run.out(each.wire, Go())
                self.changes.arrange()
                self._introduce_joiners()

    # The node.

    def _handle(self, event: Event) -> None:
        if self._node is None:
            raise PeerError("it sent a training message before the model began")
        self._driver.tell(event, self._run.now)
        self.end_if_empty()

    def end_if_empty(self) -> None:
        """If no member is left and no worker may return, end the model and tell all workers."""
        if self._node is None:
            return
        self.ended |= not self._node.view.members and not self._run.returning
        if self.ended and not self._all_told and not self._node.moving and not self.changes.away:
            if self.strategy.settles:
                self._resting.ask(self.strategy.servers_of(self._node.view), self._tell_end)
            else:
                self._tell_end()

    def _tell_end(self) -> None:
        """Tell all workers that the parameters are final."""
        if self._node is not None:
            self._all_told = True
            for peer in self.workers.values():
                self._run.out(peer.wire, self._node.view)  # a worker that has left got no later views
                self._run.out(peer.wire, Ended())
            self._run.ended()

    def send(self, me: NodeId, send: Send) -> None:
        group = self.servers if send.to.role == "server" else self.workers
        peer = group.get(send.to.number)
        returns = send.to.role == "server" and send.to.number in self.changes.away
        if peer is not None and not returns:  # a server that has started again waits for the view that says so
            self._run.out(peer.wire, send.message)

    def set_timer(self, me: NodeId, timer: SetTimer) -> None:
        self._run.later(timer.seconds, lambda: self._handle(Timer(timer.key)))

    def deliver(self, me: NodeId, deliver: Deliver) -> None:
        raise SynclineError(f"the coordinator has no application, so it cannot deliver {deliver}")

    def reject(self, me: NodeId, reject: Reject) -> None:
        raise PeerError(f"{reject.peer} broke the protocol: {reject.reason}")

    def fail(self, me: NodeId, fail: Fail) -> None:
        raise fail.error
