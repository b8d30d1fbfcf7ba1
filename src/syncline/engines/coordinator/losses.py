"""Processes of a run that die, stop or leave, and what that means for the run.

1. A worker counts as dead when its connection ends before it has left (the kernel closes the connection when the
   process dies), when its launcher reports that its process has ended, when its host no longer acknowledges data, or
   when it has been stopped (SIGSTOP) for longer than the patience. A worker that computes for a long time does not. A
   worker that the launcher restarts keeps its number (returning_workers.py).
2. The death or stop of a server ends the run, unless the run no longer needs that server, or the strategy survives it
   (server_changes.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Refused, Seen
from syncline.engines.process_state import host
from syncline.errors import PeerError
from syncline.messages import server_id, worker_id

if TYPE_CHECKING:
    from syncline.engines.coordinator.coordination import Coordination


class Losses:
    """What the loss of each process means."""

    def __init__(self, run: Coordination) -> None:
        self._run = run
        self._servers, self._workers = run.roster.servers, run.roster.workers
        self._here = host()

    def _is(self, entry: RosterEntry | None, pid: int, on: str = "") -> bool:
        """Is this entry the process `pid` of this host, or of the host `on`?"""
        return entry is not None and (entry.hello.host, entry.hello.pid) == (on or self._here, pid)

    # Processes that are stopped, or have ended.

    def worker_stopped(self, number: int, patience: float) -> None:
        """A worker has been stopped for too long: remove it as a member. It learns of that when it continues."""
        entry = self._workers.get(number)
        what = f"stopped for more than {patience:g} s"
        for peer in [] if entry is None else list(entry.peers):
            if peer.trained is None or not peer.trained.begun or peer.left is not None:
                self._run.out(peer.wire, Refused(f"worker {peer.id.number} was {what}"))
                self._run.lose(peer.wire, what)
            else:
                peer.trained.lose(peer, what)

    def server_stopped(self, number: int, patience: float) -> None:
        entry = self._servers.get(number)
        if entry is None or self._run.aborted is not None or not self._run.departures.needs(number):
            return
        what = f"has been stopped for more than {patience:g} s"
        if not self._run.models.survive_servers:
            self._run.abort(f"server{number} {what}")
            return
        if entry.hello.host == self._here:
            self._run.outside.kill(entry.hello.pid)  # its connections end, and the launcher says whether it returns
            return
        for peer in list(entry.peers):
            self._run.out(peer.wire, Refused(f"server{number} {what}"))
            self._run.lose(peer.wire, what)

    def process_ended(self, seen: Seen, on: str = "") -> None:
        """A process that a launcher started has ended, even if another process still holds its connections.

        `on`: the host of that process; "": this one.
        """
        run = self._run
        if not on:
            run.launchers.ended(seen.pid)
        if seen.role == "coordinator":
            return  # the one before this one
        if seen.role == "server":
            self._server_ended(seen, on)
            return
        run.returning.word(seen.number, seen.again)
        entry = self._workers.get(seen.number)
        if entry is not None and self._is(entry, seen.pid, on):
            for peer in list(entry.peers):
                run.lose(peer.wire, f"its process {seen.what}")
        elif seen.number not in run.roster.ever and not seen.again:  # it never connected
            run.count_out(seen.number)
        if run.returning.allowed and not seen.again:
            self.will_not_return(seen.number)

    def joiner_ended(self, agent: Connection, seen: Seen) -> None:
        """The process of a worker or server that has joined has ended; it may not have come back (lasting.py)."""
        entries, id = (
            (self._servers, server_id(seen.number))
            if seen.role == "server"
            else (self._workers, worker_id(seen.number))
        )
        entry = entries.get(seen.number)
        if entry is None or not self._is(entry, seen.pid, self._run.launchers.all[agent].host):
            return
        if not self._run.launchers.has_started(agent, entry.hello, id):
            raise PeerError(f"it spoke of {id}, which it has not started")
        for peer in list(entry.peers):
            self._run.lose(peer.wire, "")

    def will_not_return(self, number: int) -> None:
        """Stop waiting for this worker, if it is gone."""
        if number not in self._workers and not self._run.is_counted_out(number):
            self._run.count_out(number)
        self._run.models.end_if_empty()

    def worker_closed(self, peer: Participant, reason: str) -> None:
        """A connection of a worker has ended."""
        run, number, entry = self._run, peer.id.number, self._run.roster.strike(peer)
        if not reason and peer.left is None:
            run.returning.lost(number, run.now)
        if peer.trained is not None:
            entry.began |= peer.trained.begun
            peer.trained.closed(peer, reason)
            run.models.forget_if_empty(peer.trained)
        if not entry.peers:
            if not entry.began and (number < run.expected or not run.models.begun):
                run.tell(peer, f"gone before the run began{reason and ': ' + reason}")
            if number not in run.returning:
                run.count_out(number)
            run.all_gather.leave(number)
            run.checkpoints.complete()
        run.meet()

    # Servers.

    def _server_ended(self, seen: Seen, on: str) -> None:
        """The process of a server has ended; the launcher starts it again, or it is lost for good."""
        entry = self._servers.get(seen.number)
        if entry is not None and self._is(entry, seen.pid, on):
            for peer in list(entry.peers):
                self._run.lose(peer.wire, f"its process {seen.what}")
        if seen.again:
            self._run.roster.left.discard(seen.number)
        if self._run.aborted is None:
            self._run.returning_servers.word(seen.number, seen.again)
            if not seen.again:
                self.give_up_server(seen.number)

    def give_up_server(self, number: int) -> None:
        """A server that has died will not return."""
        for trained in self._run.models.all.values():
            trained.changes.give_up(number)

    def _lose_server(self, entry: RosterEntry, peer: Participant, what: str) -> None:
        """A server is dead, without which the run can go on."""
        number, returning = peer.id.number, self._run.returning_servers
        returning.lost(number, self._run.now)
        if number in returning:
            self._run.roster.left.discard(number)
        assert peer.trained is not None, "the models of this run have all their servers"
        peer.trained.lose_server(peer, number in returning)
        for other in list(entry.peers):
            self._run.lose(other.wire, what)
        if not entry.peers and number not in returning:
            self._run.tell(peer, "is lost; the others go on without it")

    def server_closed(self, peer: Participant, reason: str) -> None:
        """A connection of a server has ended."""
        run, entry = self._run, self._run.roster.strike(peer)
        run.sync_changes.gone(peer)
        what = f"its connection ended{reason and ': ' + reason}"
        if run.stopping:
            run.over = not self._servers
        elif entry.released or not run.departures.needs(peer.id.number):
            run.departures.gone(entry, peer, what)
        elif run.aborted is None and run.models.survive_servers and peer.trained is not None:
            self._lose_server(entry, peer, what)
        elif not run.models.over or run.roster.readers(run.now):
            run.abort(f"{peer.id} is gone: {what}")
        elif not entry.peers:
            run.tell(peer, f"{what}, after the training had ended")
