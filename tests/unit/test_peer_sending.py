"""How much the link of a worker's host has carried, from the kernel's counts of its connections."""

from __future__ import annotations

import socket

import pytest

from syncline.effects import LinkUse
from syncline.engines.net.addresses import UNSENT, keep_unsent
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Go
from syncline.engines.net.link_use import ConnectionUse, connection_use
from syncline.engines.worker.peer_sending import HostUse
from syncline.messages import NodeId, worker_id

A, B = worker_id(1), worker_id(2)


class Counts:
    """What the kernel says of two connections."""

    def __init__(self) -> None:
        self.of: dict[NodeId, ConnectionUse] = {}
        self.asked: list[NodeId] = []

    def __call__(self, peer: NodeId) -> ConnectionUse | None:
        self.asked.append(peer)
        return self.of.get(peer)


def test_connections_in_use_at_the_same_time_count_once() -> None:
    counts = Counts()
    counts.of = {A: ConnectionUse(1000, 9.0, True), B: ConnectionUse(70, 5.0, True)}
    host = HostUse(counts)
    host.look(A)  # what it has carried before is not counted
    host.look(B)
    assert host.total == LinkUse(0, 0.0)
    counts.of = {A: ConnectionUse(1300, 9.5, False), B: ConnectionUse(90, 5.25, True)}
    host.look()
    assert host.total == LinkUse(320, 0.5)
    counts.of[B] = ConnectionUse(100, 5.5, False)
    host.look()
    assert host.total == LinkUse(330, 0.75)
    counts.asked.clear()
    host.look()
    assert counts.asked == []  # nothing is under way


def test_a_connection_that_is_gone_or_that_the_kernel_does_not_know_counts_nothing() -> None:
    counts = Counts()
    host = HostUse(counts)
    host.look(A)
    assert host.total is None
    counts.of = {A: ConnectionUse(10, 1.0, True)}
    host.look(A)
    counts.of = {}
    host.look()
    counts.of = {A: ConnectionUse(3, 0.1, True)}  # a new connection to the same peer
    host.look(A)
    assert host.total == LinkUse(0, 0.0)


@pytest.fixture
def ends() -> tuple[Connection, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        near = socket.create_connection(server.getsockname())
        far, _ = server.accept()
    return Connection(near), far


def test_the_kernel_counts_what_has_arrived(ends: tuple[Connection, socket.socket]) -> None:
    wire, far = ends
    before = connection_use(wire)
    assert before is not None
    wire.send(Go(), memoryview(bytes(5000)))
    with far:
        got = 0
        while got < 5000:
            got += len(far.recv(65536))
        after = connection_use(wire)
    assert after is not None
    assert before.arrived <= after.arrived
    wire.close()
    assert connection_use(wire) is None


def test_the_kernel_takes_little_more_than_it_can_send(ends: tuple[Connection, socket.socket]) -> None:
    wire, far = ends
    keep_unsent(wire.sock)
    assert wire.sock.getsockopt(socket.IPPROTO_TCP, 25) == UNSENT
    near, other = socket.socketpair()
    keep_unsent(near)  # nothing to limit
    for each in (wire, far, near, other):
        each.close()
