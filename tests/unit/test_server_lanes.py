"""A worker's connections to servers: what each server is told first, and whose payloads stay in shared memory."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pytest

from engine import until
from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Go, Hello, NodeAddress, Stop
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import map_segment
from syncline.engines.net.wiring import Wiring
from syncline.engines.process_state import host
from syncline.engines.worker.server_lanes import ServerLanes
from syncline.errors import PeerError, SynclineError, UsageError
from syncline.messages import Message, NodeId, server_id

HELLO = Hello("run", "worker", 0)
VALUES = 100


class Door:
    """Where a server listens: under a name, and at an address."""

    def __init__(self, stack: ExitStack) -> None:
        unix, name = addresses.listen_unix()
        self._stack = stack
        self._unix = stack.enter_context(unix)
        self._tcp = stack.enter_context(addresses.listen(Address("127.0.0.1", 0), "--listen"))
        self.here = NodeAddress(host(), f"@{name}", str(addresses.address_of(self._tcp)))
        self.away = NodeAddress("elsewhere", f"@{name}", self.here.tcp)
        """The same, as if it were on another host."""

    def accept(self, shared: bool) -> Connection:
        """The connection of a worker, by the name or by the address."""
        wire = Connection((self._unix if shared else self._tcp).accept()[0])
        self._stack.callback(wire.close)
        return wire


class NotedTraffic:
    """A worker's connections, as far as its lanes need them."""

    def __init__(self) -> None:
        self.wires: dict[NodeId, Connection] = {}
        self.sent: list[tuple[NodeId, Frame, bytes | None]] = []
        self.failed: list[str] = []
        self.loop = EventLoop(self)  # type: ignore[arg-type]

    def __contains__(self, id: NodeId) -> bool:
        return id in self.wires

    def add(self, id: NodeId, wire: Connection, messages: tuple[type[Message], ...] = ()) -> None:
        self.wires[id] = wire

    def send(self, to: NodeId, message: Frame, payload: memoryview | None = None) -> None:
        self.sent.append((to, message, None if payload is None else bytes(payload)))

    def end(self, id: NodeId) -> None:
        self.wires.pop(id).close()

    def fail(self, error: SynclineError) -> SynclineError:
        self.failed.append(str(error))
        return error


class Worker:
    """A worker's lanes to two servers."""

    def __init__(self, stack: ExitStack, lane: str = "") -> None:
        self.doors = [Door(stack) for _ in range(3)]
        self.traffic = NotedTraffic()
        self.lanes = ServerLanes(Wiring(lane=lane), self.traffic)  # type: ignore[arg-type]
        stack.callback(self._close)

    def reach(self, number: int, place: NodeAddress) -> str:
        """Reach a server that joins, and wait for the outcome."""
        found: list[str] = []
        self.lanes.reach(number, place, found.append)
        until(lambda: self.traffic.loop.turn(0.1) or found, "the outcome")
        return found[0]

    def _close(self) -> None:
        self.lanes.close()
        self.traffic.loop.close()
        for wire in self.traffic.wires.values():
            wire.close()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


def hello_at(wire: Connection) -> list[Frame]:
    return [message for message, _ in wire.receive(lambda *_: memoryview(b""))]


def test_a_server_of_this_host_is_given_the_workers_memory(stack: ExitStack) -> None:
    worker = Worker(stack)
    memory = worker.lanes.open({0: worker.doors[0].here, 1: worker.doors[1].away}, VALUES, HELLO)
    near, far = worker.doors[0].accept(shared=True), worker.doors[1].accept(shared=False)
    assert (hello_at(near), hello_at(far)) == ([HELLO], [HELLO])
    theirs = map_segment(near.fds[0], VALUES)
    memory.updates[:] = 7
    theirs.params[:] = 8
    assert theirs.updates.tolist() == [7] * VALUES
    assert memory.params.tolist() == [8] * VALUES
    assert far.fds == []
    assert [worker.lanes.share(server_id(number)) for number in (0, 1, 2)] == [True, False, False]


def test_a_payload_stays_where_a_server_can_read_it(stack: ExitStack) -> None:
    worker = Worker(stack)
    memory = worker.lanes.open({0: worker.doors[0].here, 1: worker.doors[1].away}, VALUES, HELLO)
    place = memory.updates[:2]
    place[:] = 1, 2
    for number in (0, 1):
        worker.lanes.send(server_id(number), Go(), place)
        worker.lanes.send(server_id(number), Stop())
    assert worker.traffic.sent == [
        (server_id(0), Go(), None),
        (server_id(0), Stop(), None),
        (server_id(1), Go(), np.array([1, 2], np.float32).tobytes()),
        (server_id(1), Stop(), None),
    ]


@pytest.mark.parametrize("lane", ["tcp", ""])
def test_memory_that_nobody_shared_at_the_start_is_not_shared_later(stack: ExitStack, lane: str) -> None:
    worker = Worker(stack, lane)
    worker.lanes.open({0: worker.doors[0].here if lane else worker.doors[0].away}, VALUES, HELLO)
    assert worker.reach(1, worker.doors[1].here) == ""
    wire = worker.doors[1].accept(shared=False)
    assert hello_at(wire) == [HELLO]
    assert not worker.lanes.share(server_id(1))


def test_a_server_that_has_come_is_greeted_like_the_others(stack: ExitStack) -> None:
    worker = Worker(stack)
    worker.lanes.open({0: worker.doors[0].here}, VALUES, HELLO)
    assert [worker.reach(number, worker.doors[number].here) for number in (1, 2)] == ["", ""]
    wire = worker.doors[1].accept(shared=True)
    assert hello_at(wire) == [HELLO]
    assert len(wire.fds) == 1
    assert worker.lanes.share(server_id(2))
    assert sorted(worker.traffic.wires) == [server_id(number) for number in range(3)]


def test_the_reason_why_a_new_server_cannot_be_reached_is_reported(stack: ExitStack) -> None:
    worker = Worker(stack, "shm")
    worker.lanes.open({0: worker.doors[0].here}, VALUES, HELLO)
    assert "another host" in worker.reach(1, worker.doors[1].away)
    with pytest.raises(PeerError, match="already connected"):
        worker.reach(0, worker.doors[0].here)
    assert list(worker.traffic.wires) == [server_id(0)]


def test_a_server_that_accepts_nobody_stops_no_training(stack: ExitStack) -> None:
    """Its queue is full: the worker's loop goes on turning, and connects as soon as there is room."""
    worker, found = Worker(stack, "shm"), list[str]()
    worker.lanes.open({0: worker.doors[0].here}, VALUES, HELLO)
    listener = stack.enter_context(socket.socket(socket.AF_UNIX))
    listener.bind("")  # the kernel chooses an abstract name
    listener.listen(0)
    first = stack.enter_context(socket.socket(socket.AF_UNIX))
    first.connect(listener.getsockname())
    place = NodeAddress(host(), f"@{listener.getsockname()[1:].decode()}", "")
    worker.lanes.reach(1, place, found.append)
    turns: list[int] = []
    worker.traffic.loop.call_later(0.0, lambda: turns.append(1))
    worker.traffic.loop.turn(1.0)
    assert turns == [1]
    assert found == [], "it still waits, and the loop has turned meanwhile"
    stack.enter_context(listener.accept()[0])
    second = stack.enter_context(listener.accept()[0])
    until(lambda: worker.traffic.loop.turn(0.1) or found, "the outcome")
    assert found == [""]
    assert server_id(1) in worker.traffic
    assert second.recv(1 << 16)


def test_where_one_server_cannot_be_reached_no_server_hears_of_it(stack: ExitStack) -> None:
    worker = Worker(stack, "shm")
    with pytest.raises(UsageError, match="--lane"):
        worker.lanes.open({0: worker.doors[0].here, 1: worker.doors[1].away}, VALUES, HELLO)
    with pytest.raises(EOFError):
        hello_at(worker.doors[0].accept(shared=True))
    assert worker.traffic.wires == {}


def test_a_server_that_is_let_go_shares_nothing_any_more(stack: ExitStack) -> None:
    worker = Worker(stack)
    worker.lanes.open({0: worker.doors[0].here, 1: worker.doors[1].here}, VALUES, HELLO)
    worker.lanes.let_go(server_id(0))
    assert not worker.lanes.share(server_id(0))
    assert list(worker.traffic.wires) == [server_id(1)]
    worker.lanes.forget(server_id(1))
    assert not worker.lanes.share(server_id(1))


def test_the_segment_is_closed_once(stack: ExitStack) -> None:
    before = segments()
    worker = Worker(stack)
    worker.lanes.open({0: worker.doors[0].here}, VALUES, HELLO)
    assert segments() == before + 1
    worker.lanes.close()
    worker.lanes.close()
    assert segments() == before


def segments() -> int:
    """How many descriptors of segments this process has."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{name}"))
        except FileNotFoundError:  # the one of the list itself
            continue
    return sum("memfd:syncline" in each for each in found)
