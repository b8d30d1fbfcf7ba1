"""The coordinator process: it knows who takes part in a run, and notices when a process dies.

    python -m syncline.engines.coordinator WORKERS SERVERS SETTINGS

1. A connection is for one model at most (trained_model.py); a process that trains several models opens several.
2. A worker counts as dead when its connection ends before it has left (the kernel closes the connection when the
   process dies), when its launcher reports that its process has ended, when its host no longer acknowledges data, or
   when it has been stopped (SIGSTOP) for longer than the patience. A worker that computes for a long time does not. A
   worker that the launcher restarts keeps its number (returning_workers.py).
3. The death or stop of a server ends the run, unless the run no longer needs that server, or the strategy survives it
   (server_changes.py). So does the death of the launcher; the coordinator then kills everything that the launcher has
   started. A launcher that stays stopped is killed, by its guard or by the coordinator.
4. When the coordinator is told to stop, it waits for the workers that have joined and for those that still read the
   final parameters. Then it stops the servers.
5. A server that joins gets a number, and a part of every model (trained_model.py). A server that is asked to leave may
   exit once it holds no part of any model; the last server cannot leave. A server that holds nothing may exit at any
   time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from math import inf
from shutil import rmtree
from time import monotonic

from msgspec.structs import replace

from syncline.engines.coordinator.agent_watch import AgentWatch
from syncline.engines.coordinator.all_gather import AllGather
from syncline.engines.coordinator.deadlock import LIMIT, DeadlockWatch
from syncline.engines.coordinator.first_hosts import Disagreement, FirstHosts, share_of
from syncline.engines.coordinator.launchers import Launchers
from syncline.engines.coordinator.liveness import Liveness
from syncline.engines.coordinator.network_defaults import fitting
from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.returning_workers import ReturningWorkers
from syncline.engines.coordinator.roster import Refusal, Roster, RosterEntry
from syncline.engines.coordinator.run_checkpoints import RunCheckpoints
from syncline.engines.coordinator.server_departures import ServerDepartures
from syncline.engines.coordinator.start_watch import StartWatch
from syncline.engines.coordinator.sync_changes import SyncChanges
from syncline.engines.coordinator.trained_model import OVER, WorkerMessage
from syncline.engines.coordinator.trained_models import TrainedModels
from syncline.engines.coordinator.translated import behind_nat
from syncline.engines.coordinator.waiting import WaitingWorkers
from syncline.engines.guard import kill_session
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
    Frozen,
    Heartbeat,
    Hello,
    HostShare,
    Listening,
    Pulse,
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
    Waiting,
    Welcome,
    Withdraw,
)
from syncline.engines.net.event_loop import BACKLOG, EventLoop
from syncline.engines.net.frames import DECLARATION, FIRST_HEADER, Frame
from syncline.engines.net.refusals import RefusalLog
from syncline.engines.net.round_trip import round_trip
from syncline.engines.net.wiring import RUN, Wiring, listen
from syncline.engines.process import also_look_in, run
from syncline.engines.process_state import host, patience
from syncline.errors import PeerError
from syncline.messages import LeaveNotice, NodeId, Report, Settled, server_id, worker_id
from syncline.strategies.allowed_parts import AllowedParts

TICK = 0.5
"""Seconds between two checks for processes that are stopped and hosts that do not answer."""

NOTICE_SECONDS = 10.0
"""Seconds after which the user is told for whom the end of the run waits."""

GRACE = 5.0
"""Seconds in which the servers must exit."""


class CoordinatorProcess:
    """The processes that take part, and the models that they train."""

    def __init__(
        self,
        workers: int,
        servers: int,
        layers: Mapping[str, Mapping[str, str]],
        wiring: Wiring,
        later: tuple[int, int] = (0, 0),
        share: HostShare | None = None,
    ) -> None:
        """`layers`: the user's settings by their source, the one that takes precedence first.

        `later`: how many workers and servers the launcher starts while the run trains. `share`: what it starts, if the
        run begins on several hosts.
        """
        self.over = False
        self.expected = workers
        self.growth = later
        self.joinable = bool(wiring.listen or later[0])
        """Whether workers can join: from other hosts, or because the launcher starts them later."""
        self.count = servers
        self.layers = layers
        self._wiring = wiring
        self._loop = EventLoop(self)
        self._refusals = RefusalLog("coordinator")
        self._roster = Roster(workers, servers, wiring, later)
        self._servers, self._workers, self._peers = self._roster.servers, self._roster.workers, self._roster.peers
        self._models = TrainedModels(self, self._servers)
        self._first_hosts = FirstHosts(share)
        self._start_watch = StartWatch(self._first_hosts, self._roster, workers, servers)
        self._launchers = Launchers(self.out, self._first_hosts)
        self.tell = self._launchers.tell
        self.departures = ServerDepartures(self._servers, self._models.all, servers, self.out, self.tell)
        allowed = AllowedParts(wiring.allow_parts)
        self._sync_changes = SyncChanges(self._models.all, self.out, self._launchers.notice, allowed, self.departures)
        self._operators: set[Connection] = set()
        self._stopping = False
        self._aborted: str | None = None
        self._servers_told = False
        self._said_survives = False
        """What the launcher knows about the death of a server."""
        self._until = inf
        """When the coordinator stops waiting for the servers to exit."""
        self._all_gather = AllGather(self.out)
        self._waiting = WaitingWorkers()
        self._epochs: dict[int, int] = {}
        """The latest epoch that any worker has begun, by the number of the sampler."""
        limit = patience(os.environ)
        self._liveness = Liveness(limit)
        self._deadlocks = DeadlockWatch(self._waiting, LIMIT * limit)
        self._agents = AgentWatch(host(), self._launchers.all, limit, self.out, self._launchers.notice)
        self.returning = ReturningWorkers(int(os.environ.get("SYNCLINE_RESTARTS", "0")) > 0, workers + later[0])
        self._returning_servers = ReturningWorkers(self.returning.allowed, servers + later[1])
        self._checkpoints = RunCheckpoints(
            wiring,
            (workers, servers),
            self._settings,
            self._roster.participants,
            self._launchers.notice,
            self._to_workers,
        )
        self._never: set[int] = set()
        """The workers that will not take part when a model begins."""

    def run(self) -> int:
        port = int(os.environ.get("SYNCLINE_PORT", "0"))
        unix, tcp = listen(self._loop, self._wiring, port, RUN)
        print(unix, tcp or "-", flush=True)
        look = monotonic() + TICK
        while not self.over:
            self._loop.turn(max(look - monotonic(), 0.0))
            if monotonic() >= look:
                look = monotonic() + TICK
                self._watch()
                self._stop_if_idle()
        self._flush_launcher()
        self._loop.close()
        return 0

    def _flush_launcher(self) -> None:
        """Wait until all messages to the launcher are sent, if it reads them in time."""
        until = monotonic() + GRACE
        launcher = self._launchers.launcher
        while launcher is not None and launcher.waiting and monotonic() < until:
            self._loop.turn(0.1)

    # Frames.

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        raise PeerError(f"it sent {type(message).__name__} with a payload, which the coordinator does not accept")

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        if wire is self._launchers.launcher:
            self._from_launcher(message)
        elif wire in self._launchers.all:
            self._agents.heard(wire, message, monotonic())
            self._from_agent(wire, message)
        elif wire in self._operators:
            self._from_operator(wire, message)
        elif wire not in self._peers:
            self._greet(wire, message)
        elif self._peers[wire].id.role == "server":
            self._from_server(self._peers[wire], message)
        else:
            self._from_worker(self._peers[wire], message)

    def broke(self, wire: Connection, error: PeerError) -> None:
        self._loop.lose(wire, str(error))

    def closed(self, wire: Connection, reason: str) -> None:
        self._liveness.forget(wire)
        self._waiting.forget(wire)
        self._agents.forget(wire)
        self._first_hosts.leave(wire)
        self._operators.discard(wire)
        peer = self._peers.pop(wire, None)
        if self._launchers.all.pop(wire, None) is not None:
            if wire is self._launchers.launcher:
                self.abort("the launcher is gone")
                self.over = True
                self._launchers.kill_sessions()
                rmtree(self._wiring.checkpoints, ignore_errors=True)
        elif peer is None:
            if reason and self._aborted is None:  # everybody is told why the run ended
                self._refusals.sent_away(reason)
        elif peer.id.role == "server":
            self._server_closed(peer, reason)
        else:
            self._worker_closed(peer, reason)
            self._stop_if_idle()

    def _from_launcher(self, message: Frame) -> None:
        if isinstance(message, Stop):
            self._stopping = True
            self._loop.call_later(NOTICE_SECONDS, self._launcher_waits)
            self._stop_if_idle()
        elif isinstance(message, Abort):
            self.abort(message.reason)
        elif isinstance(message, Heartbeat):
            self._launchers.paused = message.pausing
        elif isinstance(message, Started):
            self._launchers.started(message.pid)
        elif isinstance(message, Seen):
            self._process_ended(message)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a launcher may not send")

    def _from_agent(self, wire: Connection, message: Frame) -> None:
        """A launcher on another host: it ends its processes itself. One that has begun the run may also end the run."""
        began = self._first_hosts.rank(wire) is not None
        if isinstance(message, Started | Heartbeat):
            return
        if isinstance(message, Frozen):
            self._frozen_there(wire, message)
        elif isinstance(message, Abort) and began:
            self.abort(message.reason)
        elif isinstance(message, Seen) and self._first_hosts.has_started(wire, message.role, message.number):
            self._process_ended(message, self._launchers.all[wire].host)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a launcher on another host may not send")

    def _frozen_there(self, wire: Connection, message: Frozen) -> None:
        """A launcher on another host says that a process there is stopped."""

        def its(entries: Mapping[int, RosterEntry], id: Callable[[int], NodeId]) -> dict[int, RosterEntry]:
            started = self._launchers.has_started
            return {number: entry for number, entry in entries.items() if started(wire, entry.hello, id(number))}

        for _, entry in self._liveness.reported(its(self._workers, worker_id), message):
            self._frozen(entry)
        for number, _ in self._liveness.reported(its(self._servers, server_id), message):
            self._server_frozen(number)

    def _from_operator(self, wire: Connection, message: Frame) -> None:
        if not isinstance(message, ChangeRequest):
            raise PeerError(f"it sent {type(message).__name__}, which an operator may not send")
        self._sync_changes.ask(wire, message)

    def _from_server(self, peer: Participant, message: Frame) -> None:
        trained = peer.trained
        if trained is not None and (
            isinstance(message, Report | Seated | Settled | Reached | Rest) or trained.understands(message)
        ):
            trained.from_server(peer, message)  # type: ignore[arg-type]
        elif isinstance(message, TermsTaken):
            self._sync_changes.applied(peer, message)
        elif isinstance(message, Withdraw):
            if not self._stopping and not self._models.over:  # else it will be stopped anyway
                self.departures.withdraw(peer.id.number)
        elif isinstance(message, Figures) and message.server == peer.id.number and not message.of_worker:
            self._launchers.tell_launcher(message)
        elif isinstance(message, Abort) and self.departures.needs(peer.id.number):
            self.abort(message.reason)
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a server may not send")

    def _from_worker(self, peer: Participant, message: Frame) -> None:
        if isinstance(message, Declare):
            self._models.declare(peer, message, self._stopping)
        elif isinstance(message, Listening) and peer.trained and (problem := behind_nat(peer, message.address)):
            peer.trained.refuse(peer, problem, usage=False)
        elif isinstance(message, WorkerMessage) and peer.trained is not None:
            peer.trained.from_worker(peer, message)
            self.returning.back(peer.id.number)
            if isinstance(message, LeaveNotice):
                self._models.begin_if_ready()  # a model does not wait for a worker that has left the run
                self._checkpoints.complete()
            self._meet()
        elif isinstance(message, Reached) and peer.trained is not None:
            peer.trained.changes.reached(peer, message)
        elif isinstance(message, Share):
            self._all_gather.say(peer, message)
            self._meet()
        elif isinstance(message, ChangeRequest):
            self._sync_changes.ask(peer.wire, message, peer)
        elif isinstance(message, Waiting):
            self._waiting.heard(peer.wire, message.seconds, monotonic(), message.still)
        elif isinstance(message, Figures) and _may_count(peer, message):
            peer.counted = True
            self._launchers.tell_launcher(message)
        elif isinstance(message, EpochBegun) and peer.entered:
            self._epochs[message.sampler] = max(message.epoch, self._epochs.get(message.sampler, 0))
        elif isinstance(message, CheckpointWritten) and peer.entered:
            self._checkpoints.written(peer, message)
        elif isinstance(message, CheckpointDue) and peer.entered:
            self._checkpoints.due(message.step)
        elif isinstance(message, Pulse):
            launcher = self._launchers.launcher
            if launcher is not None and not launcher.backlog:  # do not queue progress that is not read
                self.out(launcher, replace(message, worker=peer.id.number))
        else:
            raise PeerError(f"it sent {type(message).__name__}, which a worker may not send")

    def out(self, wire: Connection, message: Frame) -> None:
        if wire.fileno() < 0:
            return
        if wire.backlog > BACKLOG:
            wire.cut()  # the peer does not read; the event loop will find the connection closed
            return
        try:
            wire.send(message)
        except OSError:
            return  # the peer is gone; the event loop will read the end of the connection
        self._loop.write(wire)

    # Processes that connect.

    def _greet(self, wire: Connection, message: Frame) -> None:
        if not isinstance(message, Hello):
            raise PeerError("its first frame was not Hello")
        try:
            self._roster.check(message, wire.is_near)
            self._admit(wire, message)
        except Refusal as refusal:
            wire.send(Refused(str(refusal), usage=isinstance(refusal, Disagreement)))
            raise PeerError(str(refusal)) from None

    def _admit(self, wire: Connection, hello: Hello) -> None:
        role = hello.role
        over = OVER if self._models.over or self._stopping else self._aborted
        if over is not None and (role in ("worker", "agent") or not hello.run):
            raise Refusal(over)
        if role == "launcher" and self._launchers.launcher is not None:
            raise Refusal("this run already has a launcher")
        number, incarnation, late = -1, 0, False
        if hello.share is not None:
            self._first_hosts.check(hello.share)
            late = self._models.begun
        self._launchers.connected(hello.pid)
        if role == "server":
            peer = self._roster.admit_server(wire, hello)
            number = peer.id.number
            self._returning_servers.back(number)
        elif role == "worker":
            peer = self._roster.admit_worker(wire, hello)
            number, incarnation = peer.id.number, peer.incarnation
            self._never.discard(number)
            if not peer.own:
                self._launchers.tell_name(peer)
        elif role == "operator":
            self._operators.add(wire)
        else:
            self._launchers.enter(wire, hello)
            if hello.share is not None and not late:
                self._first_hosts.enter(wire, hello.share)
        self._loop.known(wire, DECLARATION if role == "worker" else FIRST_HEADER)
        if role != "server" or not hello.run:
            every = self._checkpoints.every if role == "worker" else ""
            self.out(wire, Welcome(self._wiring.run, number, incarnation, self.expected, every, late))
        if role == "server":
            if number >= self.count and not hello.again:
                self._launchers.tell_name(self._peers[wire])
            if not hello.run:
                self.tell(self._peers[wire], "has connected")
            self._models.assign_servers()

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self._loop.call_later(seconds, action)

    def fitting(self, values: int, said: Iterable[Mapping[str, str]]) -> dict[str, str]:
        return fitting(self._wiring, values, said, max(map(round_trip, self._peers), default=0.0))

    def first_servers(self) -> Collection[int]:
        return self._roster.first_servers()

    def epochs(self) -> tuple[int, ...]:
        return tuple(self._epochs.get(sampler, 0) for sampler in range(max(self._epochs, default=-1) + 1))

    def absent(self) -> Collection[int]:
        return self._never | self._roster.departed()

    def count_out(self, number: int) -> None:
        self._never.add(number)
        if not self._models.begun and self._never.issuperset({*range(self.expected), *self._workers}):
            self.abort("every worker is gone before the run began")
        self._models.begin_if_ready()

    def _settings(self) -> dict[str, Mapping[str, str]]:
        """The current settings of the models that have begun."""
        return {name: trained.settings for name, trained in self._models.all.items() if trained.begun}

    def _to_workers(self, message: Frame) -> None:
        """Send a message on every connection of every worker."""
        for entry in self._workers.values():
            for peer in entry.peers:
                self.out(peer.wire, message)

    def _meet(self) -> None:
        """Complete the all-gather if every member has sent its value."""
        if self._all_gather.said:
            self._all_gather.end_if_all(self._roster.participants())

    # Processes that die or stop.

    def _watch(self) -> None:
        now = monotonic()
        for _, entry in self._liveness.stopped(self._workers, now):
            self._frozen(entry)
        for number, _ in self._liveness.stopped(self._servers, now):
            self._server_frozen(number)
        for wire in self._liveness.silent([*self._peers, *self._launchers.all], now):
            self._loop.lose(wire, "its host no longer acknowledges data")
        for number in self.returning.overdue(now):
            self._will_not_return(number)
        for number in self._returning_servers.overdue(now):
            self._give_up_server(number)
        for pid in self._liveness.stopped_of(self._launchers.unconnected, now):
            kill_session(pid)  # the launcher sees its end, and says what that means for the run
        self._launchers.end_stopped(lambda hello: self._liveness.stopped_seconds(hello, now), self._liveness.patience)
        self._watch_hosts(now)
        self.departures.settled()
        self._meet()
        begun = self._models.begun
        missing = None if begun or self._aborted is not None else self._start_watch.line(self.absent(), now)
        if missing is not None:
            self._launchers.notice(missing, late_start=True)
        if self._waiting and self._aborted is None:
            said = self._first_hosts.missing or (self._start_watch.has_spoken and not begun)
            line = None if said else self._waiting.line(self._awaited(), now)
            if line is not None:
                self._launchers.notice(line)
            self._end_deadlock(now)

    def _watch_hosts(self, now: float) -> None:
        """Everything on a host whose launcher is stopped counts as stopped."""
        stopped, gone = self._agents.look(now)
        for entry in [each for each in self._workers.values() if each.hello.host in stopped]:
            self._frozen(entry)
        for number in [each for each, entry in self._servers.items() if entry.hello.host in stopped]:
            self._server_frozen(number)
        for wire in gone:
            self._loop.lose(wire, "its host no longer acknowledges data")

    def _launcher_waits(self) -> None:
        """The launcher has asked for the end of the run, and other workers still take part in it."""
        launcher = self._launchers.launcher
        if launcher is not None and not self._servers_told:
            self._waiting.heard(launcher, NOTICE_SECONDS, monotonic())

    def _awaited(self) -> list[str]:
        """The processes for which the run waits."""
        return self._waiting.awaited(self._needed(), self._roster, self._liveness.is_stopped, self._all_gather.calls)

    def _needed(self) -> set[int]:
        """The workers without which the run does not go on."""
        needed = self._roster.participants()
        if not self._models.begun:
            needed |= set(range(self.expected)) - self._never
        if self._stopping:
            needed |= self._roster.readers(monotonic())
        return needed

    def _end_deadlock(self, now: float) -> None:
        """If the workers wait for each other for ever, end the programs of all that take part (deadlock.py)."""
        stopped = any(self._liveness.is_stopped(entry.hello) for entry in self._servers.values())
        unsettled = any(trained.changes.unsettled for trained in self._models.all.values())
        needed = set() if stopped or unsettled or self.returning or self._returning_servers else self._needed()
        reason = self._deadlocks.look(needed, self._roster, self._all_gather.calls, now)
        if reason is not None:
            for peer in [peer for number in sorted(needed) for peer in self._workers[number].peers]:
                self.out(peer.wire, Refused(reason, usage=True))

    def _frozen(self, entry: RosterEntry) -> None:
        """A worker has been stopped for too long: remove it as a member. It learns of that when it continues."""
        what = f"stopped for more than {self._liveness.patience:g} s"
        for peer in list(entry.peers):
            if peer.trained is None or not peer.trained.begun or peer.left is not None:
                self.out(peer.wire, Refused(f"worker {peer.id.number} was {what}"))
                self._loop.lose(peer.wire, what)
            else:
                peer.trained.lose(peer, what)

    def _server_frozen(self, number: int) -> None:
        if self._aborted is not None or not self.departures.needs(number):
            return
        what = f"has been stopped for more than {self._liveness.patience:g} s"
        if not self._models.survive_servers:
            self.abort(f"server{number} {what}")
            return
        entry = self._servers[number]
        if self._liveness.is_here(entry, entry.hello.pid):
            kill_session(entry.hello.pid)  # its connections end, and the launcher says whether it returns
            return
        for peer in list(entry.peers):
            self.out(peer.wire, Refused(f"server{number} {what}"))
            self._loop.lose(peer.wire, what)

    def _process_ended(self, seen: Seen, on: str = "") -> None:
        """A process that a launcher started has ended, even if another process still holds its connections.

        `on`: the host of that process; "": this one.
        """
        if not on:
            self._launchers.ended(seen.pid)
        if seen.role == "server":
            self._server_ended(seen, on)
            return
        self.returning.word(seen.number, seen.again)
        entry = self._workers.get(seen.number)
        if entry is not None and self._liveness.is_here(entry, seen.pid, on):
            for peer in list(entry.peers):
                self._loop.lose(peer.wire, f"its process {seen.what}")
        elif seen.number not in self._roster.ever and not seen.again:  # it never connected
            self.count_out(seen.number)
        if self.returning.allowed and not seen.again:
            self._will_not_return(seen.number)

    def _will_not_return(self, number: int) -> None:
        """Stop waiting for this worker, if it is gone."""
        if number not in self._workers and number not in self._never:
            self.count_out(number)
        self._models.end_if_empty()

    def _worker_closed(self, peer: Participant, reason: str) -> None:
        number, entry = peer.id.number, self._roster.strike(peer)
        if not reason and peer.left is None:
            self.returning.lost(number, monotonic())
        if peer.trained is not None:
            entry.began |= peer.trained.begun
            peer.trained.closed(peer, reason)
            self._models.forget_if_empty(peer.trained)
        if not entry.peers:
            if not entry.began and (number < self.expected or not self._models.begun):
                self.tell(peer, f"gone before the run began{reason and ': ' + reason}")
            if number not in self.returning:
                self.count_out(number)
            self._all_gather.leave(number)
            self._checkpoints.complete()
        self._meet()

    def _server_ended(self, seen: Seen, on: str) -> None:
        """The process of a server has ended; the launcher starts it again, or it is lost for good."""
        entry = self._servers.get(seen.number)
        if entry is not None and self._liveness.is_here(entry, seen.pid, on):
            for peer in list(entry.peers):
                self._loop.lose(peer.wire, f"its process {seen.what}")
        if seen.again:
            self._roster.left.discard(seen.number)
        if self._aborted is None:
            self._returning_servers.word(seen.number, seen.again)
            if not seen.again:
                self._give_up_server(seen.number)

    def _give_up_server(self, number: int) -> None:
        """A server that has died will not return."""
        for trained in self._models.all.values():
            trained.changes.give_up(number)

    def _lose_server(self, entry: RosterEntry, peer: Participant, what: str) -> None:
        """A server is dead, without which the run can go on."""
        number, returning = peer.id.number, self._returning_servers
        returning.lost(number, monotonic())
        if number in returning:
            self._roster.left.discard(number)
        assert peer.trained is not None, "the models of this run have all their servers"
        peer.trained.lose_server(peer, number in returning)
        for other in list(entry.peers):
            self._loop.lose(other.wire, what)
        if not entry.peers and number not in returning:
            self.tell(peer, "is lost; the others go on without it")

    def _server_closed(self, peer: Participant, reason: str) -> None:
        entry = self._roster.strike(peer)
        self._sync_changes.gone(peer)
        what = f"its connection ended{reason and ': ' + reason}"
        if self._stopping:
            self.over = not self._servers
        elif entry.released or not self.departures.needs(peer.id.number):
            self.departures.gone(entry, peer, what)
        elif self._aborted is None and self._models.survive_servers and peer.trained is not None:
            self._lose_server(entry, peer, what)
        elif not self._models.over or self._roster.readers(monotonic()):
            self.abort(f"{peer.id} is gone: {what}")
        elif not entry.peers:
            self.tell(peer, f"{what}, after the training had ended")

    # The end of the run.

    def _stop_if_idle(self) -> None:
        """Stop the servers once no worker needs them, and exit when they have exited."""
        if not self._stopping:
            return
        if self._servers_told:
            self.over |= monotonic() > self._until
        elif not any(trained.members for trained in self._models.all.values()) and not self._roster.readers(
            monotonic()
        ):
            self._servers_told = True
            self._until = monotonic() + GRACE
            for entry in self._servers.values():
                self.out(entry.peers[0].wire, Stop())
            self.over = not self._servers

    def begun(self) -> None:
        """A model has begun: a launcher whose run survives the death of a server does not end it."""
        for name, words in self._settings().items():
            self._checkpoints.compare(name, words)
        strategies = [each.strategy for each in self._models.all.values() if each.begun]
        survives = all(each.survives(self.count, self.returning.allowed) for each in strategies)
        if survives != self._said_survives:
            self._said_survives = survives
            self._launchers.tell_first(SurvivesServers(survives))
        if self.growth[0]:
            self._launchers.tell_launcher(TrainingBegun())

    def ended(self) -> None:
        """A model has ended. If it was the last, tell all launchers: a server that exits is then no failure."""
        if self._models.over:
            self._launchers.tell_all(Ended())

    def abort(self, reason: str) -> None:
        self._aborted = self._aborted or reason
        for wire in (*(peer.wire for peer in self._peers.values() if peer.id.role == "worker"), *self._launchers.all):
            self.out(wire, Abort(reason))


def _may_count(peer: Participant, figures: Figures) -> bool:
    """Whether these may be the counters of this worker: it sends its own, once, after it has left."""
    return figures.of_worker and figures.server == peer.id.number and peer.left is not None and not peer.counted


def main() -> int:
    workers, servers, layers = sys.argv[1:]
    wiring = Wiring.read(os.environ)
    also_look_in(wiring.folder)
    later = tuple(map(int, os.environ.get("SYNCLINE_LATER", "0 0").split()))
    share = share_of(os.environ.get("SYNCLINE_SHARE", ""))
    made = CoordinatorProcess(int(workers), int(servers), json.loads(layers), wiring, (later[0], later[1]), share)
    return run(made.run)
