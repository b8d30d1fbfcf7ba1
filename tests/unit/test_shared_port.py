"""The port that the processes of a host share: what it reads, to whom it passes connections, and what strangers get."""

from __future__ import annotations

import os
import resource
import select
import socket
from collections.abc import Callable, Iterator
from time import monotonic

import pytest

from syncline.engines.launch import shared_port
from syncline.engines.launch.shared_port import MOST_UNDECIDED, PREAMBLE_SECONDS, SharedPort
from syncline.engines.net import addresses
from syncline.engines.net.addresses import Address
from syncline.engines.net.control import Passed
from syncline.engines.net.frames import pack
from syncline.engines.net.port_preamble import MAGIC, preamble


class Desk:
    """A shared port on loopback, and the sockets of two processes behind it."""

    def __init__(self) -> None:
        self.actions: dict[int, Callable[[], None]] = {}
        self.listeners: dict[str, socket.socket] = {}
        self.coordinator = self.process("syncline-run")
        self.server = self.process("syncline")
        self.port = SharedPort(self.actions.__setitem__, self.actions.pop, lambda: self.coordinator)
        self.port.start("127.0.0.1", 0)
        (listening,) = self.actions
        with socket.socket(fileno=os.dup(listening)) as bound:
            self.address = addresses.address_of(bound)

    def process(self, kind: str) -> str:
        listener, name = addresses.listen_unix(kind)
        listener.settimeout(10)
        self.listeners[name] = listener
        return name

    def turn(self) -> int:
        """Call what is ready, and return how many that were."""
        ready = select.select([*self.actions], [], [], 0.005)[0]
        for fd in ready:
            if fd in self.actions:
                self.actions[fd]()
        return len(ready)

    def settle(self) -> None:
        while self.turn():
            pass

    def call(self, data: bytes) -> socket.socket:
        caller = socket.create_connection((self.address.host, self.address.port), 10)
        if data:
            caller.sendall(data)
        self.settle()
        return caller

    def passed(self, name: str) -> socket.socket:
        """The connection that this process has got."""
        wire, _ = self.listeners[name].accept()
        with wire:
            data, fds, _, _ = socket.recv_fds(wire, 100, 1)
        assert data == pack(Passed())
        return socket.socket(fileno=fds[0])

    def close(self) -> None:
        self.port.close()
        for each in self.listeners.values():
            each.close()


def ended(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except ConnectionResetError:
        return True  # it was closed before all was read


@pytest.fixture
def desk() -> Iterator[Desk]:
    made = Desk()
    yield made
    made.close()
    assert not made.actions


def test_a_connection_goes_to_the_process_that_it_names(desk: Desk) -> None:
    """All bytes after the preamble are left to that process."""
    with desk.call(preamble(desk.server) + b"hello"), desk.passed(desk.server) as got:
        assert got.recv(100) == b"hello"


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00", pack(Passed()), b"\xff\xff\xff\x00 anything"])
def test_a_connection_without_a_preamble_goes_to_the_coordinator(desk: Desk, data: bytes) -> None:
    with desk.call(data), desk.passed(desk.coordinator) as got:
        assert got.recv(100) == data


def test_a_preamble_in_pieces(desk: Desk) -> None:
    data = preamble(desk.server)
    with desk.call(data[:2]) as caller:
        for each in data[2:]:
            caller.sendall(bytes([each]))
            desk.settle()
        with desk.passed(desk.server) as got:
            caller.sendall(b"x")
            assert got.recv(100) == b"x"


def test_addresses_name_a_process(desk: Desk) -> None:
    """What a process tells the others is the whole way to it."""
    place = Address(desk.address.host, desk.address.port, behind=desk.server)
    assert addresses.parse(str(place), "x") == place
    with addresses.connect(place, 5.0) as caller:
        desk.settle()
        with desk.passed(desk.server) as got:
            caller.sendall(b"x")
            assert got.recv(100) == b"x"


@pytest.mark.parametrize("few", [b"\xff", b"\xff\xff\xff", MAGIC, MAGIC + b"\x29sync"])
def test_a_stranger_who_sends_too_little_is_closed_in_time(desk: Desk, few: bytes) -> None:
    """And it does not keep the launcher busy: there is nothing to do for it until then."""
    with desk.call(few) as caller:
        assert desk.turn() == 0
        desk.port.close_silent(monotonic() + PREAMBLE_SECONDS - 1)
        assert len(desk.actions) == 2
        desk.port.close_silent(monotonic() + PREAMBLE_SECONDS + 1)
        assert ended(caller)


@pytest.mark.parametrize(
    "data",
    [
        MAGIC + b"\xff" + b"a" * 255,
        MAGIC + b"\x05hello",
        MAGIC + b"\x00",
        MAGIC + bytes([41]) + b"syncline-" + b"\xff" * 32,
        preamble("syncline-" + "0" * 32),
    ],
    ids=["too long", "no name", "empty", "not text", "no such process"],
)
def test_a_wrong_preamble_costs_its_sender_the_connection(
    desk: Desk, data: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    with desk.call(data) as caller:
        assert ended(caller)
    assert "refused a connection" in capsys.readouterr().err
    test_a_connection_goes_to_the_process_that_it_names(desk)


def test_one_that_only_looks_is_not_reported(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.call(b"").close()
    desk.settle()
    assert len(desk.actions) == 1
    assert capsys.readouterr().err == ""


def test_many_strangers_displace_each_other(desk: Desk) -> None:
    callers = [desk.call(b"") for _ in range(MOST_UNDECIDED + 10)]
    assert len(desk.actions) == 1 + MOST_UNDECIDED
    test_a_connection_goes_to_the_process_that_it_names(desk)
    for each in callers:
        each.close()


def test_a_host_without_coordinator(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.coordinator = ""
    with desk.call(b"\x16\x03\x01\x02\x00"):
        pass
    assert "it is for the coordinator, which runs on another host" in capsys.readouterr().err


def test_no_descriptor_is_left(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection is closed, and the next one is served."""
    lowest = os.dup(0)
    os.close(lowest)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    caller = socket.socket()
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, limits[1]))
    try:
        caller.connect((desk.address.host, desk.address.port))
        for action in list(desk.actions.values()):
            action()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    with caller:
        assert caller.recv(1) == b""
    test_a_connection_goes_to_the_process_that_it_names(desk)


def test_a_process_of_another_user_gets_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_port.os, "geteuid", lambda: os.getuid() + 1)
    with desk.call(preamble(desk.server) + b"hello"):
        wire, _ = desk.listeners[desk.server].accept()
        with wire:
            assert wire.recv(100) == b""
