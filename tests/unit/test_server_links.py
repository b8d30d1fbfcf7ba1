"""Messages between servers: when a server connects, what waits, and what is dropped."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from peers import Peer, any_payload
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Laid, Lifted
from syncline.engines.net.frames import Frame
from syncline.engines.server.server_links import ServerLinks
from syncline.errors import PeerError
from syncline.layout import Bucket
from syncline.messages import Settled, server_id
from syncline.nodes.tree.messages import SideHeard, SideSum
from syncline.strategies.tree.strategy import TreeStrategy

BUCKET = Bucket(0, 4)
HEARD = SideHeard(0, 1, 0, 0, BUCKET, 3)
SUM = SideSum(0, 1, 0, 0, BUCKET, 3, ())


class Caller:
    """The links of a server that connects when the test says so."""

    def __init__(self, peer: Callable[[], Peer]) -> None:
        self._peer = peer
        self.opened: dict[int, Connection] = {}
        self.peers: dict[int, Peer] = {}
        self.calls: list[tuple[int, Callable[[str], None]]] = []
        self.links = ServerLinks(TreeStrategy(), self.opened, self._out, self._call, self._drop)
        self.links.adopt(frozenset({0, 1, 2}))

    def _out(
        self, wire: Connection, message: Frame, payload: memoryview | None = None, *, lasting: bool = False
    ) -> None:
        wire.send(message, payload, lasting=lasting)

    def _call(self, number: int, done: Callable[[str], None]) -> None:
        self.calls.append((number, done))

    def _drop(self, wire: Connection) -> None:
        wire.close()

    def connect(self) -> Peer:
        number, done = self.calls.pop(0)
        self.peers[number] = self._peer()
        self.peers[number]._theirs.further = TreeStrategy.messages
        self.opened[number] = self.peers[number].wire
        done("")
        return self.peers[number]


@pytest.fixture
def caller(peer: Callable[[], Peer]) -> Caller:
    return Caller(peer)


def test_messages_wait_until_the_server_is_connected(caller: Caller) -> None:
    values = np.ones(4, np.float32)
    caller.links.send(1, SUM, values)
    values[:] = 0  # the node uses its array again
    caller.links.send(1, HEARD, None)
    assert len(caller.calls) == 1
    peer = caller.connect()
    assert peer.heard(any_payload) == [SUM, HEARD]
    caller.links.send(1, HEARD, None)
    assert peer.heard() == [HEARD]


def test_messages_are_lost_if_the_server_cannot_be_reached(caller: Caller) -> None:
    caller.links.send(1, HEARD, None)
    caller.calls.pop()[1]("nobody is there")
    caller.links.send(1, SUM, None)
    assert caller.connect().heard() == [SUM]


def test_a_view_without_a_server_ends_its_connection(caller: Caller) -> None:
    caller.links.send(1, HEARD, None)
    peer = caller.connect()
    caller.links.send(2, HEARD, None)
    caller.links.adopt(frozenset({0}))
    assert peer.wire.fileno() < 0
    assert caller.opened == {}
    assert caller.connect().heard() == []
    caller.links.send(1, HEARD, None)
    assert caller.calls == []


def test_payloads_are_checked_before_memory_is_allocated(caller: Caller, peer: Callable[[], Peer]) -> None:
    links, wire = caller.links, peer().wire
    assert links.sink(wire, SUM, 16).nbytes == 16
    for message, size in [(SUM, 12), (HEARD, 16), (Settled(1), 16)]:
        with pytest.raises(PeerError):
            links.sink(wire, message, size)
    event = links.received(2, SUM, memoryview(np.ones(4, np.float32).tobytes()))
    assert event.source == server_id(2)
    assert event.payload is not None
    assert event.payload.tolist() == [1, 1, 1, 1]


def test_two_servers_that_send_at_the_same_time_do_not_share_a_buffer(caller: Caller, peer: Callable[[], Peer]) -> None:
    one, other = peer().wire, peer().wire
    first = caller.links.sink(one, SUM, 16)
    first[:8] = b"11111111"  # the rest is still on its way
    caller.links.sink(other, SUM, 16)[:] = b"2222222222222222"
    assert bytes(first[:8]) == b"11111111"
    first.release()
    assert caller.links.sink(one, SUM, 16).nbytes == 16


def test_a_message_about_memory_that_is_not_shared_is_refused(caller: Caller, peer: Callable[[], Peer]) -> None:
    for message in (Laid(16), Lifted()):
        with pytest.raises(PeerError, match="shares no memory"):
            caller.links.on_memory(peer().wire, message)
