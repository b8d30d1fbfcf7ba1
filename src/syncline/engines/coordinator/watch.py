"""Looks at intervals at the processes of a run, and tells the user for whom the run waits.

What it finds becomes an input of the decisions (inputs.py). All else that it knows is of the moment: a coordinator that
is started again finds it out anew, or is told again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from syncline.engines.coordinator.agent_watch import AgentWatch
from syncline.engines.coordinator.coordination import Coordination
from syncline.engines.coordinator.deadlock import LIMIT, DeadlockWatch
from syncline.engines.coordinator.inputs import Inputs
from syncline.engines.coordinator.liveness import Liveness
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.coordinator.start_watch import StartWatch
from syncline.engines.coordinator.waiting import WaitingWorkers
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Frozen, Heartbeat, Notice, Pulse, Waiting
from syncline.engines.net.frames import Frame
from syncline.engines.process_state import host
from syncline.messages import NodeId, server_id, worker_id

NOTICE_SECONDS = 10.0
"""Seconds after which the user is told for whom the end of the run waits."""


class Watch:
    """Watches the processes of one run; `lose` ends a connection."""

    def __init__(
        self, run: Coordination, inputs: Inputs, patience: float, lose: Callable[[Connection, str], None]
    ) -> None:
        self._run = run
        self._inputs = inputs
        self._lose = lose
        self._launchers = run.launchers
        self._servers, self._workers = run.roster.servers, run.roster.workers
        self._liveness = Liveness(patience)
        self._waiting = WaitingWorkers()
        self._start_watch = StartWatch(run.first_hosts, run.roster, run.expected, run.count)
        self._deadlocks = DeadlockWatch(self._waiting, LIMIT * patience)
        self._agents = AgentWatch(host(), self._launchers.all, patience, run.out, self._say)

    # What peers say for the moment.

    def heard(self, wire: Connection, message: Frame, now: float) -> bool:
        """A frame has come; return True if it is of no concern to anybody else."""
        launchers = self._launchers
        if wire is launchers.launcher:
            if isinstance(message, Heartbeat):
                launchers.paused = message.pausing
            return isinstance(message, Heartbeat)
        if wire in launchers.all:
            self._agents.heard(wire, message, now)
            if isinstance(message, Frozen):
                self._stopped_there(wire, message)
            return isinstance(message, Frozen | Heartbeat)
        peer = self._run.peers.get(wire)
        if peer is None or peer.id.role == "server":
            return False
        if isinstance(message, Waiting):
            self._waiting.heard(wire, message.seconds, now, message.still)
        elif isinstance(message, Pulse):
            to = launchers.launcher
            if to is not None and not to.backlog:  # do not queue progress that is not read
                self._run.out(to, replace(message, worker=peer.id.number))
        return isinstance(message, Waiting | Pulse)

    def forget(self, wire: Connection) -> None:
        """A connection has ended."""
        self._liveness.forget(wire)
        self._waiting.forget(wire)
        self._agents.forget(wire)

    def launcher_waits(self, now: float) -> None:
        """The launcher has asked for the end of the run, and other workers still take part in it."""
        launcher = self._launchers.launcher
        if launcher is not None and not self._run.servers_told:
            self._waiting.heard(launcher, NOTICE_SECONDS, now)

    def _stopped_there(self, wire: Connection, message: Frozen) -> None:
        """A launcher on another host says that a process there is stopped."""

        def its(entries: Mapping[int, RosterEntry], id: Callable[[int], NodeId]) -> dict[int, RosterEntry]:
            started = self._launchers.has_started
            return {number: entry for number, entry in entries.items() if started(wire, entry.hello, id(number))}

        for number, _ in self._liveness.reported(its(self._workers, worker_id), message):
            self._inputs.stopped(worker_id(number), self._liveness.patience)
        for number, _ in self._liveness.reported(its(self._servers, server_id), message):
            self._inputs.stopped(server_id(number), self._liveness.patience)

    # What it finds by itself.

    def look(self, now: float) -> None:
        patience = self._liveness.patience
        for number, _ in self._liveness.stopped(self._workers, now):
            self._inputs.stopped(worker_id(number), patience)
        for number, _ in self._liveness.stopped(self._servers, now):
            self._inputs.stopped(server_id(number), patience)
        for wire in self._liveness.silent([*self._run.peers, *self._launchers.all], now):
            self._lose(wire, "its host no longer acknowledges data")
        for pid in self._liveness.stopped_of(self._launchers.strangers, now):
            self._run.outside.kill(pid)  # the launcher sees its end, and says what that means for the run
        self._launchers.end_stopped(lambda hello: self._liveness.stopped_seconds(hello, now), patience)
        self._look_at_hosts(now)
        self._inputs.look()
        begun, aborted = self._run.models.begun, self._run.aborted is not None
        missing = None if begun or aborted else self._start_watch.line(self._run.absent(), now)
        if missing is not None:
            self._say(missing, late_start=True)
        if self._waiting and not aborted:
            said = self._run.first_hosts.missing or (self._start_watch.has_spoken and not begun)
            line = None if said else self._waiting.line(self._awaited(), now)
            if line is not None:
                self._say(line)
            self._find_deadlock(now)

    def _look_at_hosts(self, now: float) -> None:
        """Everything on a host whose launcher is stopped counts as stopped."""
        stopped, gone = self._agents.look(now)
        for number in [each for each, entry in self._workers.items() if entry.hello.host in stopped]:
            self._inputs.stopped(worker_id(number), self._liveness.patience)
        for number in [each for each, entry in self._servers.items() if entry.hello.host in stopped]:
            self._inputs.stopped(server_id(number), self._liveness.patience)
        for wire in gone:
            self._lose(wire, "its host no longer acknowledges data")

    def _awaited(self) -> list[str]:
        """The processes for which the run waits."""
        run = self._run
        return self._waiting.awaited(run.needed(), run.roster, self._liveness.is_stopped, run.all_gather.calls)

    def _find_deadlock(self, now: float) -> None:
        """If the workers wait for each other for ever, end the programs of all that take part (deadlock.py)."""
        run = self._run
        stopped = any(self._liveness.is_stopped(entry.hello) for entry in self._servers.values())
        unsettled = any(trained.changes.unsettled for trained in run.models.all.values())
        needed = set() if stopped or unsettled or run.returning or run.returning_servers else run.needed()
        reason = self._deadlocks.look(needed, run.roster, run.all_gather.calls, now)
        if reason is not None:
            self._inputs.deadlock(reason)

    def _say(self, text: str, late_start: bool = False) -> None:
        """Let all launchers print this line, which no decision depends on; `late_start`: why the start takes long."""
        self._launchers.tell_all(Notice(text, late_start, passing=True))
