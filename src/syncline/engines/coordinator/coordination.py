"""What the coordinator decides about a run: who takes part, who is admitted and refused, and when it ends.

1. Decisions are a function of inputs, in their order: a frame, the end of a connection, a timer, or what the watch has
   found (watch.py). The time is part of an input, and everything else that decisions read is recorded (outside.py). So
   the same inputs lead to the same frames on every connection, and a coordinator that is started again can replay them.
2. A connection is for one model at most (trained_model.py); a process that trains several models opens several.
3. When the coordinator is told to stop, it waits for the workers that have joined and for those that still read the
   final parameters. Then it stops the servers.
4. A server that joins gets a number, and a part of every model. A server that is asked to leave may exit once it holds
   no part of any model; the last server cannot leave. A server that holds nothing may exit at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from heapq import heappop, heappush
from itertools import count
from math import inf

from syncline.engines.coordinator.all_gather import AllGather
from syncline.engines.coordinator.first_hosts import Disagreement, FirstHosts
from syncline.engines.coordinator.launchers import Launchers
from syncline.engines.coordinator.losses import Losses
from syncline.engines.coordinator.network_defaults import fitting
from syncline.engines.coordinator.outside import Outside
from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.returning_workers import ReturningWorkers
from syncline.engines.coordinator.roster import Refusal, Roster
from syncline.engines.coordinator.run_checkpoints import RunCheckpoints
from syncline.engines.coordinator.server_departures import ServerDepartures
from syncline.engines.coordinator.sync_changes import SyncChanges
from syncline.engines.coordinator.trained_model import OVER, WorkerMessage
from syncline.engines.coordinator.trained_models import TrainedModels
from syncline.engines.coordinator.translated import behind_nat
from syncline.engines.net import tokens
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    Abort,
    ChangeRequest,
    CheckpointDue,
    CheckpointWritten,
    Declare,
    Ended,
    EpochBegun,
    Figures,
    Hello,
    HostShare,
    Listening,
    Reached,
    Refused,
    Rest,
    Seated,
    Seen,
    Share,
    Started,
    Stop,
    SurvivesServers,
    TermsTaken,
    TrainingBegun,
    Welcome,
    Withdraw,
)
from syncline.engines.net.event_loop import BACKLOG
from syncline.engines.net.frames import DECLARATION, FIRST_HEADER, Frame
from syncline.engines.net.round_trip import round_trip
from syncline.engines.net.wiring import Wiring
from syncline.errors import PeerError
from syncline.messages import LeaveNotice, Report, Settled
from syncline.strategies.allowed_parts import AllowedParts

GRACE = 5.0
"""Seconds in which the servers must exit."""


class Coordination:
    """The processes that take part, and the models that they train."""

    def __init__(
        self,
        workers: int,
        servers: int,
        layers: Mapping[str, Mapping[str, str]],
        wiring: Wiring,
        later: tuple[int, int],
        share: HostShare | None,
        restarts: bool,
        outside: Outside,
    ) -> None:
        """`layers`: the user's settings by their source, the one that takes precedence first.

        `later`: how many workers and servers the launcher starts while the run trains. `share`: what it starts, if the
        run begins on several hosts. `restarts`: whether it starts processes again.
        """
        self.over = False
        self.outside = outside
        self.expected = workers
        self.growth = later
        self.joinable = bool(wiring.listen or later[0])
        """Whether workers can join: from other hosts, or because the launcher starts them later."""
        self.count = servers
        self.layers = layers
        self._wiring = wiring
        self.roster = Roster(workers, servers, wiring, later)
        self._servers, self._workers, self.peers = self.roster.servers, self.roster.workers, self.roster.peers
        self.models = TrainedModels(self, self._servers)
        self.first_hosts = FirstHosts(share)
        self.launchers = Launchers(self.out, self.first_hosts)
        self.tell = self.launchers.tell
        self.departures = ServerDepartures(self._servers, self.models.all, servers, self.out, self.tell)
        allowed = AllowedParts(wiring.allow_parts)
        self.sync_changes = SyncChanges(self.models.all, self.out, self.launchers.notice, allowed, self.departures)
        self._operators: set[Connection] = set()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._timers_set = count()
        self.stopping = False
        self.aborted: str | None = None
        self.servers_told = False
        self._said_survives = False
        """What the launcher knows about the death of a server."""
        self._until = inf
        """When the coordinator stops waiting for the servers to exit."""
        self.all_gather = AllGather(self.out)
        self._epochs: dict[int, int] = {}
        """The latest epoch that any worker has begun, by the number of the sampler."""
        self.returning = ReturningWorkers(restarts, workers + later[0])
        self.returning_servers = ReturningWorkers(restarts, servers + later[1])
        self.checkpoints = RunCheckpoints(
            wiring,
            (workers, servers),
            self._settings,
            self.roster.participants,
            self.launchers.notice,
            self._to_workers,
            outside,
        )
        self.losses = Losses(self)
        self._never: set[int] = set()
        """The workers that will not take part when a model begins."""

    # Inputs.

    def frame(self, wire: Connection, message: Frame) -> None:
        """A frame of a peer has come; `PeerError` if the peer must not send it, and is to be dropped."""
        if wire is self.launchers.launcher:
            self._from_launcher(message)
        elif wire in self.launchers.all:
            self._from_agent(wire, message)
        elif wire in self._operators:
            self._from_operator(wire, message)
        elif wire not in self.peers:
            self._greet(wire, message)
        elif self.peers[wire].id.role == "server":
            self._from_server(self.peers[wire], message)
        else:
            self._from_worker(self.peers[wire], message)

    def closed(self, wire: Connection, reason: str) -> None:
        """A connection has ended; `reason` is empty if the peer closed it."""
        self.first_hosts.leave(wire)
        self._operators.discard(wire)
        peer = self.peers.pop(wire, None)
        if self.launchers.all.pop(wire, None) is not None:
            if wire is self.launchers.launcher:
                self.abort("the launcher is gone")
                self.over = self.launchers.lost = True
        elif peer is None:
            if reason and self.aborted is None:  # everybody is told why the run ended
                self.outside.refused(reason)
        elif peer.id.role == "server":
            self.losses.server_closed(peer, reason)
        else:
            self.losses.worker_closed(peer, reason)
            self._stop_if_idle()

    def timers(self) -> None:
        """Do what is due by now."""
        while self._timers and self._timers[0][0] <= self.now:
            heappop(self._timers)[2]()

    def look(self) -> None:
        """Time has passed: give up those that have not returned in time."""
        for number in self.returning.overdue(self.now):
            self.losses.will_not_return(number)
        for number in self.returning_servers.overdue(self.now):
            self.losses.give_up_server(number)

    def deadlock(self, reason: str) -> None:
        """The workers wait for each other for ever: end the programs of all that take part."""
        for peer in [peer for number in sorted(self.needed()) for peer in self._workers[number].peers]:
            self.out(peer.wire, Refused(reason, usage=True))

    def settle(self) -> None:
        """Do what has become possible; called after every input."""
        self.departures.settled()
        self.meet()
        self._stop_if_idle()

    @property
    def next_timer(self) -> float:
        """When `timers` is to be called."""
        return self._timers[0][0] if self._timers else inf

    def waits_for_time(self, now: float) -> bool:
        """Whether `look` or `settle` may do something, only because time has passed."""
        overdue = self.returning.is_overdue(now) or self.returning_servers.is_overdue(now)
        return overdue or (self.stopping and (not self.servers_told or now > self._until))

    # Frames.

    def _from_launcher(self, message: Frame) -> None:
        if isinstance(message, Stop):
            self.stopping = True
            self._stop_if_idle()
        elif isinstance(message, Abort):
            self.abort(message.reason)
        elif isinstance(message, Started):
            self.launchers.started(message.pid)
        elif isinstance(message, Seen):
            self.losses.process_ended(message)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a launcher may not send")

    def _from_agent(self, wire: Connection, message: Frame) -> None:
        """A launcher on another host: it ends its processes itself. One that has begun the run may also end the run."""
        began = self.first_hosts.rank(wire) is not None
        if isinstance(message, Started):
            return
        if isinstance(message, Abort) and began:
            self.abort(message.reason)
        elif isinstance(message, Seen) and self.first_hosts.has_started(wire, message.role, message.number):
            self.losses.process_ended(message, self.launchers.all[wire].host)
        elif isinstance(message, Seen) and not began:
            self.losses.joiner_ended(wire, message)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a launcher on another host may not send")

    def _from_operator(self, wire: Connection, message: Frame) -> None:
        if not isinstance(message, ChangeRequest):
            raise PeerError(f"it sent {type(message).__name__}, which an operator may not send")
        self.sync_changes.ask(wire, message)

    def _from_server(self, peer: Participant, message: Frame) -> None:
        trained = peer.trained
        if trained is not None and (
            isinstance(message, Report | Seated | Settled | Reached | Rest) or trained.understands(message)
        ):
            trained.from_server(peer, message)  # type: ignore[arg-type]
        elif isinstance(message, TermsTaken):
            self.sync_changes.applied(peer, message)
        elif isinstance(message, Withdraw):
            if not self.stopping and not self.models.over:  # else it will be stopped anyway
                self.departures.withdraw(peer.id.number)
        elif isinstance(message, Figures) and message.server == peer.id.number and not message.of_worker:
            self.launchers.tell_launcher(message)
        elif isinstance(message, Abort) and self.departures.needs(peer.id.number):
            self.abort(message.reason)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a server may not send")

    def _from_worker(self, peer: Participant, message: Frame) -> None:
        if isinstance(message, Declare):
            self.models.declare(peer, message, self.stopping)
        elif isinstance(message, Listening) and peer.trained and (problem := self._behind_nat(peer, message)):
            peer.trained.refuse(peer, problem, usage=False)
        elif isinstance(message, WorkerMessage) and peer.trained is not None:
            peer.trained.from_worker(peer, message)
            self.returning.back(peer.id.number)
            if isinstance(message, LeaveNotice):
                self.models.begin_if_ready()  # a model does not wait for a worker that has left the run
                self.checkpoints.complete()
            self.meet()
        elif isinstance(message, Reached) and peer.trained is not None:
            peer.trained.changes.reached(peer, message)
        elif isinstance(message, Share):
            self.all_gather.say(peer, message)
            self.meet()
        elif isinstance(message, ChangeRequest):
            self.sync_changes.ask(peer.wire, message, peer)
        elif isinstance(message, Figures) and _may_count(peer, message):
            peer.counted = True
            self.launchers.tell_launcher(message)
        elif isinstance(message, EpochBegun) and peer.entered:
            self._epochs[message.sampler] = max(message.epoch, self._epochs.get(message.sampler, 0))
        elif isinstance(message, CheckpointWritten) and peer.entered:
            self.checkpoints.written(peer, message)
        elif isinstance(message, CheckpointDue) and peer.entered:
            self.checkpoints.due(message.step)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a worker may not send")

    def _behind_nat(self, peer: Participant, message: Listening) -> str:
        """Why other workers cannot connect to this one; "": nothing speaks against it."""
        return behind_nat(peer.id, message.address, self.outside.recorded(lambda: peer.wire.peer))

    def out(self, wire: Connection, message: Frame) -> None:
        if wire.ended:
            return
        if wire.backlog > BACKLOG:
            wire.cut()  # the peer does not read; the event loop will find the connection closed
            return
        try:
            wire.send(message)
        except OSError:
            return  # the peer is gone; the event loop will read the end of the connection
        self.outside.write(wire)

    def lose(self, wire: Connection, reason: str) -> None:
        """End a connection, as part of a decision."""
        if not wire.ended:
            self.outside.drop(wire)
            self.closed(wire, reason)

    # Processes that connect.

    def _greet(self, wire: Connection, message: Frame) -> None:
        """Admit a process, or refuse it: then nothing has changed."""
        if not isinstance(message, Hello):
            raise PeerError("its first frame was not Hello")
        try:
            self.roster.check(message, wire.is_near)
            self._admit(wire, message)
        except Refusal as refusal:
            wire.send(Refused(str(refusal), usage=isinstance(refusal, Disagreement)))
            raise PeerError(str(refusal)) from None

    def _admit(self, wire: Connection, hello: Hello) -> None:
        role = hello.role
        over = OVER if self.models.over or self.stopping else self.aborted
        if over is not None and (role in ("worker", "agent") or not hello.run):
            raise Refusal(over)
        if role == "launcher" and self.launchers.launcher is not None:
            raise Refusal("this run already has a launcher")
        number, incarnation, late = -1, 0, False
        if hello.share is not None:
            self.first_hosts.check(hello.share)
            late = self.models.begun
        if role == "server":
            peer = self.roster.admit_server(wire, hello)
            number = peer.id.number
            self.returning_servers.back(number)
        elif role == "worker":
            peer = self.roster.admit_worker(wire, hello)
            number, incarnation = peer.id.number, peer.incarnation
            self._never.discard(number)
            if not peer.own:
                self.launchers.tell_name(peer)
        elif role == "operator":
            self._operators.add(wire)
        else:
            self.launchers.enter(wire, hello)
            if hello.share is not None and not late:
                self.first_hosts.enter(wire, hello.share)
        self.launchers.connected(hello.pid)
        self.outside.known(wire, DECLARATION if role == "worker" else FIRST_HEADER)
        if role != "server" or not hello.run:
            every = self.checkpoints.every if role == "worker" else ""
            lasting = bool(self._wiring.lasting)
            self.out(wire, Welcome(self._wiring.run, number, incarnation, self.expected, every, late, lasting))
        if role == "server":
            if number >= self.count and not hello.again:
                self.launchers.tell_name(self.peers[wire])
            if not hello.run:
                self.tell(self.peers[wire], "has connected")
            self.models.assign_servers()

    # What the models need of the run (`RunContext`).

    @property
    def now(self) -> float:
        return self.outside.now

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        heappush(self._timers, (self.now + seconds, next(self._timers_set), action))

    def fresh_secret(self) -> str:
        return self.outside.recorded(tokens.new_token)

    def fitting(self, values: int, said: Iterable[Mapping[str, str]]) -> dict[str, str]:
        longest = self.outside.recorded(lambda: max(map(round_trip, self.peers), default=0.0))
        return fitting(self._wiring, values, said, longest)

    def first_servers(self) -> Collection[int]:
        return self.roster.first_servers()

    def epochs(self) -> tuple[int, ...]:
        return tuple(self._epochs.get(sampler, 0) for sampler in range(max(self._epochs, default=-1) + 1))

    def absent(self) -> Collection[int]:
        return self._never | self.roster.departed()

    def count_out(self, number: int) -> None:
        self._never.add(number)
        if not self.models.begun and self._never.issuperset({*range(self.expected), *self._workers}):
            self.abort("every worker is gone before the run began")
        self.models.begin_if_ready()

    def is_counted_out(self, number: int) -> bool:
        return number in self._never

    def needed(self) -> set[int]:
        """The workers without which the run does not go on."""
        needed = self.roster.participants()
        if not self.models.begun:
            needed |= set(range(self.expected)) - self._never
        if self.stopping:
            needed |= self.roster.readers(self.now)
        return needed

    def _settings(self) -> dict[str, Mapping[str, str]]:
        """The current settings of the models that have begun."""
        return {name: trained.settings for name, trained in self.models.all.items() if trained.begun}

    def _to_workers(self, message: Frame) -> None:
        """Send a message on every connection of every worker."""
        for entry in self._workers.values():
            for peer in entry.peers:
                self.out(peer.wire, message)

    def meet(self) -> None:
        """Complete the all-gather if every member has sent its value."""
        if self.all_gather.said:
            self.all_gather.end_if_all(self.roster.participants())

    # The end of the run.

    def _stop_if_idle(self) -> None:
        """Stop the servers once no worker needs them, and exit when they have exited."""
        if not self.stopping:
            return
        if self.servers_told:
            self.over |= self.now > self._until
        elif not any(trained.members for trained in self.models.all.values()) and not self.roster.readers(self.now):
            self.servers_told = True
            self._until = self.now + GRACE
            for entry in self._servers.values():
                self.out(entry.peers[0].wire, Stop())
            self.over = not self._servers

    def begun(self) -> None:
        """A model has begun: a launcher whose run survives the death of a server does not end it."""
        for name, words in self._settings().items():
            self.checkpoints.compare(name, words)
        strategies = [each.strategy for each in self.models.all.values() if each.begun]
        survives = all(each.survives(self.count, self.returning.allowed) for each in strategies)
        if survives != self._said_survives:
            self._said_survives = survives
            self.launchers.tell_first(SurvivesServers(survives))
        if self.growth[0]:
            self.launchers.tell_launcher(TrainingBegun())

    def ended(self) -> None:
        """A model has ended. If it was the last, tell all launchers: a server that exits is then no failure."""
        if self.models.over:
            self.launchers.tell_all(Ended())

    def abort(self, reason: str) -> None:
        self.aborted = self.aborted or reason
        for wire in (*(peer.wire for peer in self.peers.values() if peer.id.role == "worker"), *self.launchers.all):
            self.out(wire, Abort(reason))


def _may_count(peer: Participant, figures: Figures) -> bool:
    """Whether these may be the counters of this worker: it sends its own, once, after it has left."""
    return figures.of_worker and figures.server == peer.id.number and peer.left is not None and not peer.counted
