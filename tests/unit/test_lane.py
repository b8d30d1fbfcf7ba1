"""Which lane a worker takes to its servers, and what it says if there is none."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from syncline.engines import addresses
from syncline.engines.addresses import Address
from syncline.engines.control import Place
from syncline.engines.lane import Lane, open_lane
from syncline.engines.watch import host
from syncline.engines.wiring import Wiring
from syncline.errors import RunError, UsageError


@pytest.fixture
def place() -> Iterator[Place]:
    """A server of this process, under a name and at an address."""
    unix, name = addresses.listen_unix()
    with unix, addresses.listen(Address("127.0.0.1", 0), "--listen") as tcp:
        yield Place(host(), f"@{name}", str(addresses.address_of(tcp)))


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on this process takes itself for one of another user."""
    user = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: user)


def families(lane: Lane) -> list[socket.AddressFamily]:
    found = [wire.sock.family for wire in lane.wires]
    for wire in lane.wires:
        wire.close()
    return found


def test_memory_is_shared_on_one_host(place: Place) -> None:
    lane = open_lane((place, place), Wiring())
    assert lane.shared
    assert families(lane) == [socket.AF_UNIX] * 2


def test_tcp_is_taken_where_it_is_asked_for(place: Place) -> None:
    lane = open_lane((place,), Wiring(lane="tcp"))
    assert not lane.shared
    assert families(lane) == [socket.AF_INET]


def test_another_user_goes_by_tcp(place: Place, stranger: None) -> None:
    lane = open_lane((place, place), Wiring())
    assert not lane.shared
    assert families(lane) == [socket.AF_INET] * 2


def test_all_servers_are_reached_the_same_way(place: Place) -> None:
    """The second does not answer under its name: the first is not told of it, and called by TCP as well."""
    silent = Place(place.host, "@syncline-nobody", place.tcp)
    assert families(open_lane((place, silent), Wiring())) == [socket.AF_INET] * 2


def test_another_user_is_told_why_memory_cannot_be_shared(place: Place, stranger: None) -> None:
    with pytest.raises(UsageError, match="--lane: shm: the servers belong to another user"):
        open_lane((place,), Wiring(lane="shm"))


def test_a_server_without_an_address_is_named(place: Place, stranger: None) -> None:
    with pytest.raises(RunError, match=r"another user.*server 0 listens on no address.*--listen"):
        open_lane((Place(place.host, place.unix, ""),), Wiring())
