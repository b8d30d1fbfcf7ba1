"""The background thread: it serves the connections while the program does not, and hides no error."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from engine import until
from syncline.engines.net.connection import Connection
from syncline.engines.net.connections import Connections
from syncline.engines.net.control import Go
from syncline.engines.net.frames import Frame
from syncline.engines.worker.background_thread import BackgroundThread
from syncline.errors import PeerError, RunError, SynclineError
from syncline.messages import NodeId, server_id


class Listener:
    """A reader with one peer; it records which thread received what."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self.peer = Connection(theirs)
        self.heard: list[threading.Thread] = []
        self.errors: list[SynclineError] = []
        self.wires = Connections(self)
        self.wires.add(server_id(0), Connection(ours))
        self.background = BackgroundThread(self.wires, lambda: True, self.errors.append)

    def sink(self, source: NodeId, message: Frame, size: int) -> memoryview:
        raise PeerError("no payloads here")

    def take(self, source: NodeId, message: Frame, carried: bool) -> None:
        self.heard.append(threading.current_thread())

    def broke(self, source: NodeId, error: PeerError) -> None:
        raise error

    def lost(self, id: NodeId, reason: str) -> None:
        raise RunError(f"{id} is gone: {reason}")


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.background.close()
    made.wires.close()
    made.peer.close()
    assert "syncline" not in {thread.name for thread in threading.enumerate()}


def test_it_does_not_run_before_it_is_needed(listener: Listener) -> None:
    listener.peer.send(Go())
    with listener.background:
        listener.wires.turn(1000)
    assert listener.heard == [threading.main_thread()]


def test_it_reads_while_the_program_does_something_else(listener: Listener) -> None:
    listener.background.wake()
    for count in (1, 2, 3):
        listener.peer.send(Go())
        until(lambda count=count: len(listener.heard) == count, "a frame")
    assert threading.main_thread() not in listener.heard


def test_it_does_not_touch_the_connections_while_the_program_uses_them(listener: Listener) -> None:
    listener.background.wake()
    with listener.background:
        for count in range(100):
            with listener.background:  # a turn within a turn
                listener.peer.send(Go())
            listener.wires.turn(1000)
            assert listener.heard == [threading.main_thread()] * (count + 1)
    listener.peer.send(Go())
    until(lambda: len(listener.heard) == 101, "a frame")
    assert listener.heard[-1] is not threading.main_thread()


def test_the_program_gets_its_turn_even_under_heavy_traffic(listener: Listener) -> None:
    listener.background.wake()
    for _ in range(200):
        for _ in range(5):
            listener.peer.send(Go())
        with listener.background:
            pass
    until(lambda: listener.peer.flush() or len(listener.heard) == 1000, "all frames")  # type: ignore[func-returns-value]


def test_an_error_in_the_background_is_noted(listener: Listener) -> None:
    listener.background.wake()
    listener.peer.close()
    until(lambda: listener.errors, "the error")
    assert str(listener.errors[0]) == "server0 is gone: its connection ended"
