"""The launchers that have joined from other hosts: heartbeats to them, and what their silence means.

A launcher that joined reports which processes of its host are stopped. If that launcher is stopped itself, nobody there
can report, so all processes of its host count as stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Heartbeat, Hello
from syncline.engines.net.frames import Frame
from syncline.engines.net.heartbeats import LATE_SECONDS, Heartbeats, Silence
from syncline.engines.net.tcp_liveness import unacknowledged


class AgentWatch:
    """Watches the launchers in `agents`, apart from those of the host `here`, whose processes the kernel shows us."""

    def __init__(
        self,
        here: str,
        agents: Mapping[Connection, Hello],
        patience: float,
        out: Callable[[Connection, Frame], None],
        notice: Callable[[str], None],
    ) -> None:
        """`notice`: print a line for the user."""
        self._here = here
        self._agents = agents
        self._out = out
        self._notice = notice
        self._beats = Heartbeats(patience, unacknowledged)
        self._late: set[Connection] = set()
        """Those of whose silence the user was told."""

    def heard(self, wire: Connection, message: Frame, now: float) -> None:
        """This launcher has sent something."""
        if wire in self._late:
            self._late.discard(wire)
            seconds = self._beats.silence(wire, now)
            self._notice(f"{self._named(wire)} continues after {seconds:.0f} s of silence, on the same connection")
        self._beats.heard(wire, now)
        if isinstance(message, Heartbeat) and message.pausing:
            self._beats.excuse(wire)

    def forget(self, wire: Connection) -> None:
        self._late.discard(wire)
        self._beats.forget(wire)

    def look(self, now: float) -> tuple[set[str], list[Connection]]:
        """Send heartbeats; return the hosts where everything is stopped, and the connections to hosts that are gone."""
        if self._beats.due(now):
            for wire, hello in self._agents.items():
                if hello.role == "agent":
                    self._out(wire, Heartbeat())
        found = {wire: self._beats.verdict(wire, now) for wire in self._far()}
        for wire in found:
            if wire not in self._late and self._beats.silence(wire, now) > LATE_SECONDS:
                self._late.add(wire)
                self._notice(f"{self._named(wire)} has sent nothing for {LATE_SECONDS:g} s")
        alive = {self._agents[wire].host for wire, verdict in found.items() if verdict is not Silence.STOPPED}
        stopped = {self._agents[wire].host for wire in found} - alive
        return stopped, [wire for wire, verdict in found.items() if verdict is Silence.GONE]

    def _far(self) -> list[Connection]:
        return [wire for wire, hello in self._agents.items() if self._is_far(wire, hello)]

    def _is_far(self, wire: Connection, hello: Hello) -> bool:
        return hello.role == "agent" and hello.host != self._here and not wire.away

    def _named(self, wire: Connection) -> str:
        return f"the launcher that joined from {wire.peer}"
