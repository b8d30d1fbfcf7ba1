"""A backup reads a worker's update in the memory that both servers have mapped."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from peers import Peer
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Mapped
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import LaneMemory, map_segment, new_segment
from syncline.engines.server.mapped_workers import KEPT_SECONDS, MappedWorkers
from syncline.engines.server.worker_peer import WorkerPeer
from syncline.errors import PeerError
from syncline.layout import Bucket
from syncline.messages import Push, server_id, worker_id
from syncline.nodes.server.log_messages import LogEntry, TimerNote
from syncline.strategies.server.strategy import ServerStrategy

VALUES = 100
BUCKET = Bucket(10, 30)
WORKER = (3, 1)


class Server:
    """One of two servers of a host; `later`: what it wants to do later, in seconds."""

    def __init__(self, segment: int) -> None:
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.mapped = MappedWorkers(self._out, self._later, ServerStrategy.passed_on)
        self.memory = map_segment(segment, VALUES)

    def _out(self, wire: Connection, message: Frame, *rest: Any, **options: Any) -> None:
        assert not rest
        assert not options
        wire.send(message)

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self.later.append((seconds, action))

    def worker(self, wire: Connection, shared: bool = True) -> WorkerPeer:
        return WorkerPeer(worker_id(WORKER[0]), WORKER[1], wire, self.memory, shared)


@pytest.fixture
def segment() -> Iterator[int]:
    fd = new_segment(VALUES)
    yield fd
    os.close(fd)


@pytest.fixture
def server(segment: int) -> Server:
    return Server(segment)


@pytest.fixture
def backup(segment: int) -> Server:
    return Server(segment)


def entry(size: int = 0, incarnation: int = WORKER[1], empty: bool = False) -> LogEntry:
    push = Push(0, incarnation, 5, BUCKET, 5, size=size, empty=empty)
    return LogEntry(0, 0, 7, 1.0, push, worker_id(WORKER[0]))


def test_a_server_learns_whose_memory_its_backup_has_mapped(
    server: Server, backup: Server, peer: Callable[[], Peer]
) -> None:
    between, worker = peer(), peer()
    server.mapped.enter(server.worker(worker.wire))
    place = server.memory.update(BUCKET)
    assert not server.mapped.has(between.wire, entry(), place)

    backup.mapped.tell(between.wire)
    backup.mapped.enter(backup.worker(worker.wire))
    (message,) = between.heard()
    assert message == Mapped(*WORKER)
    server.mapped.hear(between.wire, message)
    assert server.mapped.has(between.wire, entry(), place)
    assert server.mapped.has(between.wire, entry(8), place.view(np.uint8)[:8])
    assert not server.mapped.has(between.wire, entry(), place.copy()), "a copy is somewhere else"
    assert not server.mapped.has(between.wire, entry(incarnation=2), place), "of another incarnation"
    assert not server.mapped.has(peer().wire, entry(), place), "of another server"
    server.mapped.ended(between.wire)
    assert not server.mapped.has(between.wire, entry(), place), "the connection has ended"


def test_a_server_that_connects_later_learns_of_all(backup: Server, peer: Callable[[], Peer]) -> None:
    between = peer()
    backup.mapped.enter(backup.worker(peer().wire))
    backup.mapped.tell(between.wire)
    assert between.heard() == [Mapped(*WORKER)]


def test_memory_that_is_not_shared_is_nobodys(backup: Server, peer: Callable[[], Peer]) -> None:
    between = peer()
    backup.mapped.tell(between.wire)
    backup.mapped.enter(backup.worker(peer().wire, shared=False))
    assert between.heard() == []


def test_the_backup_reads_what_the_worker_has_written(segment: int, backup: Server, peer: Callable[[], Peer]) -> None:
    worker = LaneMemory(VALUES, segment)
    worker.update(BUCKET)[:] = np.arange(BUCKET.size)
    backup.mapped.enter(backup.worker(peer().wire))
    found = backup.mapped.payload(entry())
    assert found is not None
    assert (np.frombuffer(found, np.float32) == np.arange(BUCKET.size)).all()
    encoded = backup.mapped.payload(entry(8))
    assert encoded is not None
    assert encoded.nbytes == 8


def test_what_has_no_payload_needs_no_memory(backup: Server) -> None:
    assert backup.mapped.payload(entry(empty=True)) is None
    assert backup.mapped.payload(LogEntry(0, 0, 7, 1.0, TimerNote(0, BUCKET, 1))) is None


def test_the_memory_of_a_worker_that_has_left_is_kept_for_a_while(backup: Server, peer: Callable[[], Peer]) -> None:
    worker = backup.worker(peer().wire)
    backup.mapped.enter(worker)
    backup.mapped.leave(worker)
    assert backup.mapped.payload(entry()) is not None
    ((seconds, forget),) = backup.later
    assert seconds == KEPT_SECONDS
    forget()
    with pytest.raises(PeerError, match=r"a push of worker3 without a payload, and its memory is not mapped here"):
        backup.mapped.payload(entry())


def test_an_entry_that_is_larger_than_its_bucket_is_refused(backup: Server, peer: Callable[[], Peer]) -> None:
    backup.mapped.enter(backup.worker(peer().wire))
    with pytest.raises(PeerError, match="with 81 bytes"):
        backup.mapped.payload(entry(4 * BUCKET.size + 1))


def test_only_entries_of_pushes_are_read_in_place(server: Server, peer: Callable[[], Peer]) -> None:
    between = peer()
    server.mapped.enter(server.worker(peer().wire))
    server.mapped.hear(between.wire, Mapped(*WORKER))
    place = server.memory.update(BUCKET)
    assert not server.mapped.has(between.wire, LogEntry(0, 0, 7, 1.0, TimerNote(0, BUCKET, 1)), place)
    assert not server.mapped.has(between.wire, LogEntry(0, 0, 7, 1.0, entry().event, server_id(0)), place)
