"""Which lane a worker takes to its servers, and what it says if there is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.engines.net.control import NodeAddress
from syncline.engines.net.lanes import Lane, open_lane, open_lanes
from syncline.engines.net.wiring import Wiring
from syncline.engines.process_state import host
from syncline.errors import RunError, UsageError


@pytest.fixture
def place() -> Iterator[NodeAddress]:
    """A server of this process, under a name and at an address."""
    unix, name = addresses.listen_unix()
    with unix, addresses.listen(Address("127.0.0.1", 0), "--listen") as tcp:
        yield NodeAddress(host(), f"@{name}", str(addresses.address_of(tcp)))


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this process takes itself for one of another user."""
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)


def families(lanes: dict[int, Lane]) -> list[socket.AddressFamily]:
    found = [lane.wire.sock.family for lane in lanes.values()]
    for lane in lanes.values():
        assert lane.shared == (lane.wire.sock.family == socket.AF_UNIX)
        lane.wire.close()
    return found


def test_memory_is_shared_on_one_host(place: NodeAddress) -> None:
    assert families(open_lanes({0: place, 3: place}, Wiring())) == [socket.AF_UNIX] * 2


def test_tcp_is_taken_where_it_is_asked_for(place: NodeAddress) -> None:
    assert families(open_lanes({0: place}, Wiring(lane="tcp"))) == [socket.AF_INET]


def test_another_user_goes_by_tcp(place: NodeAddress, stranger: None) -> None:
    assert families(open_lanes({0: place, 1: place}, Wiring())) == [socket.AF_INET] * 2


def test_every_server_is_reached_in_its_own_way(place: NodeAddress) -> None:
    """The second does not answer under its name: it is called by TCP, and the first shares memory all the same."""
    silent = NodeAddress(place.host, "@syncline-nobody", place.tcp)
    assert families(open_lanes({0: place, 1: silent}, Wiring())) == [socket.AF_UNIX, socket.AF_INET]


def test_a_worker_without_a_segment_goes_by_tcp(place: NodeAddress) -> None:
    assert families({0: open_lane(0, place, Wiring(), share=False)}) == [socket.AF_INET]


def test_if_one_server_cannot_be_reached_no_connection_stays_open(place: NodeAddress) -> None:
    nowhere = NodeAddress("elsewhere", "@syncline-nobody", "127.0.0.1:1")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0syncline-test-{os.getpid()}")
        listener.listen()
        first = NodeAddress(place.host, f"@syncline-test-{os.getpid()}", "")
        with pytest.raises(RunError, match=r"cannot reach server 1 at 127\.0\.0\.1:1"):
            open_lanes({0: first, 1: nowhere}, Wiring())
        caller, _ = listener.accept()
        with caller:
            assert caller.recv(1) == b"", "the first is hung up on, and was told nothing"


def test_another_user_is_told_why_memory_cannot_be_shared(place: NodeAddress, stranger: None) -> None:
    with pytest.raises(UsageError, match="--lane: shm is not possible: server 0 belongs to another user"):
        open_lane(0, place, Wiring(lane="shm"))


def test_a_server_without_an_address_is_named(place: NodeAddress, stranger: None) -> None:
    with pytest.raises(RunError, match=r"another user.*server 0 has no TCP address.*--listen"):
        open_lane(0, NodeAddress(place.host, place.unix, ""), Wiring())
