"""The launchers of a run: what the coordinator tells them, and the sessions that the run's own launcher started.

The run's own launcher has the role "launcher". A launcher on another host has the role "agent": it has begun the run
together with the first one (first_hosts.py), or it has joined.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from syncline.engines.coordinator.first_hosts import FirstHosts
from syncline.engines.coordinator.participant import Participant
from syncline.engines.guard import kill_session
from syncline.engines.net import tokens
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello, Notice, Seen
from syncline.engines.net.frames import Frame
from syncline.engines.process import outlive_parent
from syncline.messages import NodeId

GUARD_SECONDS = 5.0
"""Seconds that the guard of a stopped launcher has before the coordinator acts."""


class Launchers:
    """The run's own launcher, and the launchers on other hosts."""

    def __init__(self, out: Callable[[Connection, Frame], None], first: FirstHosts) -> None:
        self._out = out
        self._first = first
        self.launcher: Connection | None = None
        self.all: dict[Connection, Hello] = {}
        self.paused = False
        """The user has stopped the run's own launcher (Ctrl-Z), which is no reason to end the run."""
        self.sessions: set[int] = set()
        """The processes that the run's own launcher has started; each leads a session."""
        self._unconnected: set[int] = set()
        """Those of them that have not connected."""
        self.lost = False
        """The run's own launcher is gone."""

    def enter(self, wire: Connection, hello: Hello) -> None:
        self.all[wire] = hello
        if hello.role == "launcher":
            self.launcher = wire
            outlive_parent()

    def tell_launcher(self, message: Frame) -> None:
        if self.launcher is not None:
            self._out(self.launcher, message)

    def tell(self, peer: Participant, what: str, usage: bool = False) -> None:
        """Let all launchers print what has happened to a worker or server."""
        for agent in self.all:
            mine = peer.own if agent is self.launcher else self.has_started(agent, peer.hello, peer.id)
            who = (peer.id.role, peer.id.number, peer.incarnation)
            self._out(agent, Seen(*who, what, usage and mine, of=peer.hello.pid))

    def has_started(self, agent: Connection, hello: Hello, id: NodeId) -> bool:
        """Whether this launcher on another host has started this process."""
        if self._first.rank(agent) is not None:
            return self._first.has_started(agent, id.role, id.number)
        return tokens.same(hello.token, self.all[agent].token)

    def tell_first(self, message: Frame) -> None:
        """Tell the launchers that have begun the run."""
        for wire in self.all:
            if wire is self.launcher or self._first.rank(wire) is not None:
                self._out(wire, message)

    def tell_all(self, message: Frame) -> None:
        for agent in self.all:
            self._out(agent, message)

    def notice(self, text: str) -> None:
        """Let all launchers print this line."""
        self.tell_all(Notice(text))

    def tell_name(self, peer: Participant) -> None:
        """Tell the launcher of a worker or server that joins which number it has."""
        joined = Seen(peer.id.role, peer.id.number, peer.incarnation, "joined", pid=peer.hello.pid)
        for agent in self.all:
            if peer.own if agent is self.launcher else self.has_started(agent, peer.hello, peer.id):
                self._out(agent, joined)

    def end_stopped(self, seconds: Callable[[Hello], float], patience: float) -> None:
        """Kill the run's own launcher if it stays stopped and its guard has not done so; its end ends the run.

        `seconds`: for how long a process has been stopped.
        """
        hello = None if self.launcher is None or self.paused else self.all.get(self.launcher)
        if hello is not None and seconds(hello) > patience + GUARD_SECONDS:
            os.kill(hello.pid, signal.SIGKILL)

    def started(self, pid: int) -> None:
        """The run's own launcher has started a process."""
        self.sessions.add(pid)
        self._unconnected.add(pid)

    @property
    def strangers(self) -> set[int]:
        """The processes that the run's own launcher has started and that have not connected."""
        return self._unconnected - {os.getpid()}

    def connected(self, pid: int) -> None:
        """A process of this host has connected: from now on it is watched as a worker or server."""
        self._unconnected.discard(pid)

    def ended(self, pid: int) -> None:
        """A process has ended, with its session."""
        self.sessions.discard(pid)
        self._unconnected.discard(pid)

    def kill_sessions(self) -> None:
        """Kill the sessions that the launcher has started, because the launcher itself is gone."""
        for leader in self.sessions - {os.getpid()}:
            kill_session(leader)
