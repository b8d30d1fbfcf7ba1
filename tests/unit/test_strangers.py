"""Unidentified connections: many of them displace each other, but not connections from other hosts."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest

from hostile import SECONDS, recorded
from syncline.cli.run import _without_key
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.net import event_loop
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello, Welcome
from syncline.engines.net.event_loop import EventLoop, source_of
from syncline.engines.net.frames import Frame, unpack
from syncline.engines.net.keys import make_key_file
from syncline.engines.net.wiring import JOIN_PAUSES, Wiring, connect_coordinator
from syncline.errors import PeerError, RunError

MOST = 8


class Owner:
    """Accepts every hello."""

    def __init__(self) -> None:
        self.loop = EventLoop(self)
        self.known: list[Connection] = []

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        raise PeerError("no payload")

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        self.known.append(wire)
        self.loop.known(wire)

    def broke(self, wire: Connection, error: PeerError) -> None:
        self.loop.lose(wire, str(error))

    def closed(self, wire: Connection, reason: str) -> None:
        pass


@pytest.fixture
def owner(monkeypatch: pytest.MonkeyPatch) -> Iterator[Owner]:
    monkeypatch.setattr(event_loop, "MOST_UNAUTHENTICATED", MOST)
    made = Owner()
    yield made
    made.loop.close()


@pytest.fixture
def place(owner: Owner) -> tuple[str, int]:
    listener = socket.create_server(("127.0.0.1", 0))
    owner.loop.listen(listener)
    found: tuple[str, int] = listener.getsockname()
    return found


def dial(owner: Owner, place: tuple[str, int], source: str) -> socket.socket:
    """A connection from this address of this host, which has been accepted."""
    made = socket.create_connection(place, SECONDS, (source, 0))
    owner.loop.turn(0.0)
    return made


def test_a_flood_from_elsewhere_does_not_displace_a_caller(owner: Owner, place: tuple[str, int]) -> None:
    """However long it takes to identify itself: the flood displaces its own connections."""
    caller = dial(owner, place, "127.0.0.2")
    flood = [dial(owner, place, "127.0.0.1") for _ in range(20 * MOST)]
    caller.sendall(recorded(Hello("run", "worker", 0)).whole)
    while not owner.known:
        owner.loop.turn(SECONDS)
    assert len(owner.loop._unauthenticated) <= MOST
    for each in (caller, *flood):
        each.close()


def test_in_a_flood_from_the_same_host_the_oldest_is_not_always_the_one(owner: Owner, place: tuple[str, int]) -> None:
    """A caller that needs two round trips does not always lose: some of many callers are left after as many others."""
    left = 0
    for _ in range(40):
        caller = dial(owner, place, "127.0.0.1")
        (wire,) = [each for each in owner.loop._unauthenticated if each.sock.getpeername() == caller.getsockname()]
        flood = [dial(owner, place, "127.0.0.1") for _ in range(MOST)]
        left += wire in owner.loop._unauthenticated
        for each in (caller, *flood):
            each.close()
        while owner.loop._unauthenticated:
            owner.loop.turn(SECONDS)
    assert 0 < left < 40


@pytest.mark.parametrize(
    ("address", "source"),
    [
        (("192.0.2.7", 1234), "192.0.2.7"),
        (("2001:db8::1:2", 1234, 0, 0), "2001:db8::/64"),
        (("fe80::1%eth0", 1234, 0, 2), "fe80::/64"),
        ("", ""),
    ],
)
def test_where_a_connection_comes_from(address: object, source: str) -> None:
    assert source_of(address) == source


class Shy(Thread):
    """A coordinator that closes the first connections without an answer, as if strangers had displaced them."""

    def __init__(self, closes: int) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._closes = closes
        self.accepted = 0

    def run(self) -> None:
        with self._listener:
            for _ in range(self._closes):
                self._accept().close()
            if self._closes < len(JOIN_PAUSES):
                with self._accept() as last:
                    last.sendall(recorded(Welcome("run", 2, 0, 2)).whole)
                    last.recv(1 << 16)

    def _accept(self) -> socket.socket:
        found = self._listener.accept()[0]
        self.accepted += 1
        return found


def test_a_process_that_is_displaced_tries_again_to_join() -> None:
    shy = Shy(3)
    shy.start()
    wire = connect_coordinator(Wiring(coordinator=shy.address), Hello("", "worker"))
    wire.sock.settimeout(SECONDS)
    assert isinstance(unpack(wire.sock.recv(1 << 16)[8:]), Welcome), "nothing of the answer is lost"
    assert shy.accepted == 4
    wire.close()
    shy.join()


def test_it_does_not_try_for_ever() -> None:
    shy = Shy(len(JOIN_PAUSES))
    shy.start()
    with pytest.raises(RunError, match="the peer closed the connection"):
        connect_coordinator(Wiring(coordinator=shy.address), Hello("", "worker"))
    shy.join()


# Without a key.


@pytest.mark.parametrize(
    ("wiring", "listen", "said"),
    [
        (Wiring(), "127.0.0.1:0", "no key: every user of this host can join"),
        (Wiring(insecure="1"), "0.0.0.0:0", "--insecure: anybody on the network can join"),
        (Wiring(), None, ""),
    ],
)
def test_without_a_key_one_line_says_who_can_join(wiring: Wiring, listen: str | None, said: str) -> None:
    words = _without_key(checked(Plan([], wiring=wiring), listen))
    assert words.startswith(said)
    assert bool(words) == bool(said)
    assert "\n" not in words


def test_with_a_key_nothing_is_said(tmp_path: Path) -> None:
    make_key_file(tmp_path / "key")
    plan = Plan([], wiring=Wiring(key_file=str(tmp_path / "key")))
    assert _without_key(checked(plan, "127.0.0.1:0")) == ""
    assert _without_key(checked(Plan([], wiring=Wiring(insecure="1")), join="127.0.0.1:7")).startswith("--insecure")
