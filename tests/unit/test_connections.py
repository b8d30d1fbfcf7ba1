"""All connections of a worker: one that is lost is lost once."""

from __future__ import annotations

import socket

from syncline.engines.net.connection import Connection
from syncline.engines.net.connections import Connections
from syncline.engines.net.control import Go
from syncline.engines.net.frames import Frame
from syncline.errors import PeerError
from syncline.messages import NodeId, server_id


class Answering:
    """A reader that answers every frame, and goes on when a connection is lost."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.peer = Connection(theirs)
        self.heard = 0
        self.losses: list[NodeId] = []
        self.wires = Connections(self)
        self.wires.add(server_id(0), Connection(ours))

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        raise PeerError("no payloads here")

    def take(self, source: NodeId, message: Frame, carried: bool) -> None:
        self.heard += 1
        if source in self.wires:
            self.wires.send(source, Go())

    def broke(self, source: NodeId, error: PeerError) -> None:
        raise error

    def lost(self, id: NodeId, reason: str) -> None:
        self.losses.append(id)


def test_a_peer_that_is_gone_before_it_is_answered_is_lost_once() -> None:
    """Its last messages are read. Both the answer to the first of them and the reading find that the peer is gone."""
    reader = Answering()
    for _ in range(3):
        reader.peer.send(Go())
    reader.peer.close()
    while not reader.losses:
        reader.wires.turn(1000)
    reader.wires.turn(0)
    assert reader.losses == [server_id(0)]
    assert reader.heard >= 1
    reader.wires.close()
