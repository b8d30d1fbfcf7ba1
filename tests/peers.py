"""Connections without a network, whose frames a test can inspect, and a run that records what it is asked for.

For tests of the coordinator's and the launcher's parts in one process.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.returning_workers import ReturningWorkers
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello
from syncline.engines.net.frames import Frame
from syncline.errors import PeerError
from syncline.messages import NodeId

HERE = "this host"


class Peer:
    """A pair of sockets: `wire` is our end, and the peer has the other end."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.wire = Connection(ours)
        self.wire.trust()
        self._theirs = Connection(theirs)
        self._theirs.trust()

    def heard(self, sink: Callable[[Frame, int], memoryview] | None = None) -> list[Frame]:
        """The frames that were sent to it since the last call; `sink`: takes payloads."""
        found: list[Frame] = []
        try:
            for message, _ in self._theirs.receive(sink or no_payload):
                found.append(message)  # one by one: those before the end count
        except EOFError:
            pass
        return found

    def say(self, message: Frame, payload: bytes = b"") -> None:
        self._theirs.send(message, memoryview(payload) if payload else None)

    def hang_up(self) -> None:
        self._theirs.close()

    def close(self) -> None:
        self.wire.close()
        self._theirs.close()


def any_payload(message: Frame, size: int) -> memoryview:
    return memoryview(bytearray(size))


def no_payload(message: Frame, size: int) -> memoryview:
    raise PeerError(f"{type(message).__name__} with {size} bytes")


def participant(peer: Peer, id: NodeId, *, own: bool = True, **fields: Any) -> Participant:
    """A server or worker at the other end of this pair, as the coordinator knows it; `fields`: of its hello."""
    hello = Hello("run", id.role, id.number, **{"pid": 100 + id.number, "host": HERE, **fields})
    return Participant(id, hello, peer.wire, own=own)


@dataclass
class NotedRun:
    """A run as a model sees it; it performs or records what it is asked for."""

    expected: int = 2
    count: int = 1
    layers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    departures: Any = None
    told: list[tuple[NodeId, str]] = field(default_factory=list)
    counted_out: list[int] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)
    models_ended: int = 0
    joinable: bool = False
    growth: tuple[int, int] = (0, 0)
    returning: ReturningWorkers = field(default_factory=lambda: ReturningWorkers(False, 2))

    now: float = 0.0

    def fresh_secret(self) -> str:
        return "secret"

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        raise AssertionError("nothing here needs a timer")

    def epochs(self) -> tuple[int, ...]:
        return ()

    def absent(self) -> Collection[int]:
        return self.counted_out

    def fitting(self, values: int, said: Iterable[Mapping[str, str]]) -> dict[str, str]:
        return {"bucket": "1KiB"}

    def first_servers(self) -> Collection[int]:
        return range(self.count)

    def out(self, wire: Connection, message: Frame) -> None:
        wire.send(message)

    def tell(self, peer: Participant, what: str, usage: bool = False) -> None:
        self.told.append((peer.id, what))

    def count_out(self, number: int) -> None:
        self.counted_out.append(number)

    def begun(self) -> None:
        """Do nothing: there is no launcher."""

    def ended(self) -> None:
        self.models_ended += 1

    def abort(self, reason: str) -> None:
        self.aborted.append(reason)
