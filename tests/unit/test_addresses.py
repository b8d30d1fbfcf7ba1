"""Addresses as text, and real sockets on this host."""

from __future__ import annotations

import errno
import os
import socket
import sys

import pytest

from netns import two_hosts
from syncline.engines.net import addresses
from syncline.engines.net.addresses import (
    Address,
    address_of,
    connect,
    is_loopback,
    listen,
    listen_unix,
    parse,
    resolve,
)
from syncline.errors import UsageError

ANY_PORT = Address("127.0.0.1", 0)
OPTION = "--listen"


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.1:7070", Address("10.0.0.1", 7070)),
        ("127.0.0.1:0", Address("127.0.0.1", 0)),
        ("0.0.0.0:65535", Address("0.0.0.0", 65535)),
        ("[::1]:7070", Address("::1", 7070)),
        ("[fe80::1%eth0]:7070", Address("fe80::1%eth0", 7070)),
        ("@syncline-0a", Address(name="syncline-0a")),
    ],
)
def test_an_address_is_read_and_written(text: str, address: Address) -> None:
    assert parse(text, OPTION) == address
    assert str(address) == text


def test_an_address_has_one_spelling() -> None:
    assert str(parse("[0:0::1]:07070", OPTION)) == "[::1]:7070"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has no port"),
        ("10.0.0.1", "has no port"),
        (":7070", r"has no host; use 0\.0\.0\.0:7070 for all addresses"),
        ("@", "has no port"),
        ("localhost:7070", r"is not an address; give an address such as 192\.0\.2\.7:7070"),
        ("10.0.0.256:7070", "is not an address"),
        ("010.0.0.1:7070", "is not an address"),
        ("[]:7070", "is not an address"),
        ("http://10.0.0.1:7070", "is not an address"),
        ("::1:7070", "write an IPv6 address in brackets"),
        ("[10.0.0.1]:7070", "write an IPv6 address in brackets"),
        ("10.0.0.1:", "from 0 to 65535"),
        ("10.0.0.1:-1", "from 0 to 65535"),
        ("10.0.0.1:65536", "from 0 to 65535"),
        ("10.0.0.1:" + "9" * 5000, "from 0 to 65535"),
        ("10.0.0.1:7_0", "from 0 to 65535"),
        ("10.0.0.1:\N{ARABIC-INDIC DIGIT SEVEN}", "from 0 to 65535"),
        ("10.0.0.1:http", "from 0 to 65535"),
    ],
)
def test_an_invalid_address_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        parse(text, OPTION)
    assert caught.value.option == OPTION


def test_a_name_stands_for_all_its_addresses() -> None:
    found = resolve("localhost:7070", OPTION)
    assert found
    assert all(is_loopback(address) and address.port == 7070 for address in found)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("text", ["10.0.0.1:7070", "[::1]:0", "@syncline-0a"])
def test_an_address_stands_for_itself(text: str) -> None:
    assert resolve(text, OPTION) == [parse(text, OPTION)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nowhere.invalid:7070", "cannot look up the host name 'nowhere.invalid': "),
        (f"{'a' * 300}:7070", "cannot look up the host name"),
        ("localhost", "has no port"),
        ("localhost:x", "from 0 to 65535"),
        ("10.0.0.256:7070", "is not an address"),
        ("010.0.0.1:7070", "is not an address"),
        ("0x7f000001:7070", "is not an address"),
        ("10.1:7070", "is not an address"),
        ("a b:7070", "is not an address"),
        ("http://localhost:7070", "is not an address"),
        ("-n:7070", "is not an address"),
    ],
)
def test_an_invalid_host_name_is_refused(text: str, problem: str) -> None:
    with pytest.raises(UsageError, match=problem) as caught:
        resolve(text, OPTION)
    assert caught.value.option == OPTION


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:1", True),
        ("127.9.9.9:1", True),
        ("[::1]:1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("@name", True),
        ("0.0.0.0:1", False),
        ("[::]:1", False),
        ("10.0.0.1:1", False),
        ("[::ffff:10.0.0.1]:1", False),
    ],
)
def test_loopback_is_what_stays_on_this_host(text: str, expected: bool) -> None:
    assert is_loopback(parse(text, OPTION)) is expected


def test_a_connection_over_tcp_is_tuned() -> None:
    with (
        listen(ANY_PORT, OPTION) as listener,
        connect(address_of(listener), timeout=10) as here,
        listener.accept()[0] as there,
    ):
        here.sendall(b"hello")
        assert there.recv(5) == b"hello"
        assert here.gettimeout() == 10
        assert here.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        asked = [socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT]
        assert [here.getsockopt(socket.IPPROTO_TCP, option) for option in asked] == [5, 2, 13]
        assert here.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_ipv6_serves_ipv6_only() -> None:
    try:
        listener = listen(Address("::1", 0), OPTION)
    except UsageError as error:
        pytest.skip(f"no IPv6 here: {error}")
    with listener, connect(address_of(listener), timeout=10) as here, listener.accept()[0] as there:
        assert listener.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY) == 1
        assert here.getsockname() == there.getpeername()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_a_taken_port_is_refused(host: str) -> None:
    with listen(ANY_PORT, OPTION) as listener:
        taken = address_of(listener).port
        with pytest.raises(
            UsageError, match=f"--listen: port {taken} .* is in use; use port 0 to let the system choose"
        ):
            listen(Address(host, taken), OPTION)


def test_a_port_is_free_again_at_once() -> None:
    with listen(ANY_PORT, OPTION) as listener:
        address = address_of(listener)
        with connect(address, timeout=10) as here:
            listener.accept()[0].close()  # the side that closes first keeps the port in TIME_WAIT
            assert here.recv(1) == b""
    listen(address, OPTION).close()


def test_an_address_of_another_host_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--listen: 192\.0\.2\.7 is not an address of this host"):
        listen(Address("192.0.2.7", 0), OPTION)


def test_a_port_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    with pytest.raises(UsageError, match=r"no permission to listen on 127\.0\.0\.1:80; use a port from 1024 up"):
        listen(Address("127.0.0.1", 80), OPTION)


def test_a_unix_name_is_not_listened_on_over_tcp() -> None:
    with pytest.raises(UsageError, match="@name is a Unix socket, which other hosts cannot reach"):
        listen(Address(name="name"), OPTION)


def test_a_unix_socket_knows_its_peer() -> None:
    listener, name = listen_unix()
    with listener:
        assert address_of(listener) == Address(name=name)
        with connect(Address(name=name), timeout=10) as here, listener.accept()[0] as there:
            here.sendall(b"hello")
            assert there.recv(5) == b"hello"
            assert addresses.peer_credentials(there) == (os.getpid(), os.getuid())
            assert addresses.peer_credentials(here) == (os.getpid(), os.getuid())


def test_unix_names_differ_and_are_long() -> None:
    (one, first), (other, second) = listen_unix(), listen_unix()
    one.close()
    other.close()
    assert first != second
    assert len(first) >= 32


def test_connecting_where_no_process_listens_is_refused() -> None:
    with listen(ANY_PORT, OPTION) as listener:
        address = address_of(listener)
    with pytest.raises(ConnectionRefusedError):
        connect(address, timeout=10)
    with pytest.raises(ConnectionRefusedError):
        connect(Address(name="syncline-nobody"), timeout=10)


def test_a_socket_connected_to_itself_counts_as_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = socket.socket.connect

    def from_the_same_port(self: socket.socket, target: tuple[str, int]) -> None:
        self.bind(target)
        plain(self, target)

    with listen(ANY_PORT, OPTION) as listener:
        address = address_of(listener)
    monkeypatch.setattr(socket.socket, "connect", from_the_same_port)
    with pytest.raises(ConnectionRefusedError):
        connect(address, timeout=10)


def test_the_route_decides_the_address() -> None:
    assert addresses.route_to("127.0.0.1") == "127.0.0.1"
    assert addresses.own_address_for("10.1.2.3") == "10.1.2.3"
    assert not is_loopback(Address(addresses.own_address_for("0.0.0.0"))) or offline()


def offline() -> bool:
    return [name for _, name in socket.if_nameindex()] == ["lo"]


TELL = """
from syncline.engines.net.addresses import own_address_for, route_to
print(own_address_for("0.0.0.0"), route_to("{peer}"))
"""


def test_a_network_without_a_way_out_has_addresses_too() -> None:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with two_hosts() as (left, right):
        told = left.run(sys.executable, "-c", TELL.format(peer=right.address), env=environment)
        assert told.stdout.split() == [left.address, left.address]
