"""The launchers of a run: what the coordinator tells them, and the process groups that the run's own launcher started.

The run's own launcher has the role "launcher". A launcher that joined from elsewhere has the role "agent".
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import suppress

from syncline.engines.coordinator.participant import Participant
from syncline.engines.net import tokens
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello, Notice, Seen
from syncline.engines.net.frames import Frame
from syncline.engines.process import outlive_parent


class Launchers:
    """The run's own launcher, and the launchers that have joined."""

    def __init__(self, out: Callable[[Connection, Frame], None]) -> None:
        self._out = out
        self.launcher: Connection | None = None
        self.all: dict[Connection, Hello] = {}
        self.groups: set[int] = set()
        """The process groups that the run's own launcher has started."""

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
        for agent, hello in self.all.items():
            mine = peer.own if agent is self.launcher else tokens.same(hello.token, peer.hello.token)
            who = (peer.id.role, peer.id.number, peer.incarnation)
            self._out(agent, Seen(*who, what, usage and mine, of=peer.hello.pid))

    def notice(self, text: str) -> None:
        """Let all launchers print this line."""
        for agent in self.all:
            self._out(agent, Notice(text))

    def tell_name(self, peer: Participant) -> None:
        """Tell the launcher of a worker or server that joins which number it got."""
        joined = Seen(peer.id.role, peer.id.number, peer.incarnation, "joined", pid=peer.hello.pid)
        for agent, hello in self.all.items():
            if agent is not self.launcher and tokens.same(hello.token, peer.hello.token):
                self._out(agent, joined)

    def kill_groups(self) -> None:
        """Kill the process groups that the launcher has started, because the launcher itself is gone."""
        for group in self.groups:
            with suppress(OSError):
                if os.getpgid(group) == group:
                    os.killpg(group, signal.SIGKILL)
