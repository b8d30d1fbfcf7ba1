"""A host that acknowledges nothing is gone; one that acknowledges, however little it reads, is not."""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest

from peers import Peer
from syncline.engines.net.connection import Connection
from syncline.engines.net.tcp_liveness import LIMIT, TcpLiveness


class Wire:
    """A connection of which the kernel says what it is told to: what is under way, and when it last heard something."""

    def __init__(self) -> None:
        self.sock = self
        self.family = socket.AF_INET
        self.unacked = self.probes = 0
        self.heard_seconds_ago = 0.0

    def fileno(self) -> int:
        return 3

    def getsockopt(self, level: int, option: int, size: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_INFO)
        bytes_ = [0] * 8
        bytes_[3] = self.probes
        words = [0] * 13
        words[4], words[12] = self.unacked, int(1000 * self.heard_seconds_ago)
        return struct.pack("8B13I", *bytes_, *words)[:size]


@pytest.fixture
def wire() -> Any:
    return Wire()


@pytest.mark.parametrize("what", ["unacked", "probes"])
def test_a_host_is_gone_when_nothing_was_acknowledged_for_as_long_as_the_limit(wire: Any, what: str) -> None:
    """The time counts from the first look, because what was in flight before is not known."""
    setattr(wire, what, 1)
    liveness = TcpLiveness()
    wire.heard_seconds_ago = 1000.0
    assert not liveness.gone(wire, 50.0)
    wire.heard_seconds_ago += LIMIT
    assert not liveness.gone(wire, 50.0 + LIMIT)
    wire.heard_seconds_ago += 1
    assert liveness.gone(wire, 51.0 + LIMIT)


def test_an_acknowledgement_gives_it_all_the_time_again(wire: Any) -> None:
    wire.unacked = 1
    liveness = TcpLiveness(10.0)
    wire.heard_seconds_ago = 100.0
    assert not liveness.gone(wire, 0.0)
    wire.heard_seconds_ago = 1.0  # at 8 s
    assert not liveness.gone(wire, 9.0)
    wire.heard_seconds_ago = 11.0
    assert not liveness.gone(wire, 19.0)
    wire.heard_seconds_ago = 12.0
    assert liveness.gone(wire, 20.0)


def test_a_host_that_has_nothing_to_acknowledge_may_be_silent(wire: Any) -> None:
    liveness = TcpLiveness(10.0)
    for now, unacked in ((0.0, 1), (9.0, 0), (18.0, 1), (27.0, 1)):
        wire.unacked, wire.heard_seconds_ago = unacked, 1000.0 + now
        assert not liveness.gone(wire, now)
    wire.heard_seconds_ago = 2000.0
    assert liveness.gone(wire, 29.0)


def test_a_connection_that_was_forgotten_is_looked_at_anew(wire: Any) -> None:
    wire.unacked, wire.heard_seconds_ago = 1, 1000.0
    liveness = TcpLiveness(10.0)
    assert not liveness.gone(wire, 0.0)
    liveness.forget(wire)
    liveness.forget(wire)
    assert not liveness.gone(wire, 11.0)


def test_a_connection_on_this_host_has_no_host_to_lose(peer: Callable[[], Peer]) -> None:
    pair = peer()
    liveness = TcpLiveness(0.0)
    for now in (0.0, 1000.0):
        assert not liveness.gone(pair.wire, now)


@pytest.mark.parametrize("closed", [False, True])
def test_a_live_host_that_reads_nothing_is_not_gone(closed: bool) -> None:
    """Its kernel acknowledges; and of a connection that is closed there is nothing to ask."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as ours:
        theirs, _ = listener.accept()
        with theirs:
            wire = Connection(ours)
            ours.send(bytes(1000))
            if closed:
                wire.close()
            liveness = TcpLiveness(10.0)
            for now in (0.0, 1000.0, 2000.0):
                assert not liveness.gone(wire, now)
