"""Connections: frames survive any division of the stream, on every kind of socket; no queue grows without bound."""

from __future__ import annotations

import os
import random
import resource
import select
import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostile import recorded
from syncline.engines.net import connection as wires
from syncline.engines.net import event_loop as reactors
from syncline.engines.net.addresses import listen_unix
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Declare, Declared, Ended, Go, Hello, Seed
from syncline.engines.net.event_loop import EventLoop
from syncline.engines.net.frames import FIRST_HEADER, HEADER, PREFIX, Frame, pack
from syncline.engines.net.keys import client_context, make_key_file, server_context
from syncline.errors import PeerError
from syncline.layout import Bucket
from syncline.messages import PAYLOAD, Params, Push

Got = tuple[Frame, bytes]
Pair = tuple[socket.socket, socket.socket]

HELLO = Hello("a run", "worker", 3)
PUSH = Push(0, 1, 2, Bucket(0, 4), 5)


# Sockets of every kind.


def unix_pair() -> Pair:
    return socket.socketpair()


def tcp_pair() -> Pair:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
    return ours, theirs


def tls_pair(key: Path) -> Pair:
    ours, theirs = tcp_pair()
    wrapped: list[socket.socket] = []
    side = Thread(target=lambda: wrapped.append(server_context(key).wrap_socket(theirs, server_side=True)))
    side.start()
    client = client_context(key).wrap_socket(ours)
    side.join()
    return client, wrapped[0]


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "key.pem"
    make_key_file(path)
    return path


@pytest.fixture(params=["unix", "tcp", "tls"])
def pair(request: pytest.FixtureRequest, key: Path) -> Iterator[tuple[Connection, Connection]]:
    make: dict[str, Callable[[], Pair]] = {"unix": unix_pair, "tcp": tcp_pair, "tls": lambda: tls_pair(key)}
    ours, theirs = (Connection(sock) for sock in make[request.param]())
    ours.trust()
    theirs.trust()
    yield ours, theirs
    ours.close()
    theirs.close()


def anywhere(_: Frame, size: int) -> memoryview:
    return memoryview(bytearray(size))


def nowhere(message: Frame, size: int) -> memoryview:
    raise PeerError(f"{type(message).__name__} with a payload of {size} bytes")


def take(wire: Connection, count: int, other: Connection | None = None) -> list[Got]:
    """So many frames, while `other` sends what it has left."""
    got: list[Got] = []
    while len(got) < count:
        if other is not None:
            other.flush()
        got += [(message, bytes(payload or b"")) for message, payload in wire.receive(anywhere)]
    return got


# There and back.


def test_frames_come_in_order_with_their_payloads(pair: tuple[Connection, Connection]) -> None:
    ours, theirs = pair
    sent = [(PUSH, b"payload!" * 2), (Go(), b""), (Seed(Bucket(0, 1)), b"1234"), (HELLO, b"")]
    for message, payload in sent:
        ours.send(message, memoryview(payload) if payload else None)
    assert take(theirs, len(sent), ours) == sent


def test_a_payload_larger_than_any_buffer(pair: tuple[Connection, Connection]) -> None:
    ours, theirs = pair
    values = np.random.default_rng(1).standard_normal(3 << 20).astype(np.float32)
    expected = values.tobytes()
    ours.send(PUSH, values.data)
    assert ours.waiting
    assert 0 < ours.backlog < len(expected) + 200
    values[:] = 0  # it may change as soon as `send` has returned
    ours.send(Go())
    assert take(theirs, 2, ours) == [(PUSH, expected), (Go(), b"")]
    assert not ours.waiting
    assert ours.backlog == 0


def test_both_sides_send_more_than_the_sockets_hold(pair: tuple[Connection, Connection]) -> None:
    """Neither blocks, so neither waits for the other."""
    payload = bytes(range(256)) * (1 << 14)
    for wire in pair:
        for _ in range(3):
            wire.send(PUSH, memoryview(payload), lasting=True)
    got: dict[Connection, list[Got]] = {wire: [] for wire in pair}
    while any(len(each) < 3 for each in got.values()):
        for wire in pair:
            wire.flush()
            got[wire] += [(message, bytes(payload or b"")) for message, payload in wire.receive(anywhere)]
    assert all(each == [(PUSH, payload)] * 3 for each in got.values())


def test_a_payload_is_read_straight_to_where_it_belongs(pair: tuple[Connection, Connection]) -> None:
    ours, theirs = pair
    place = np.zeros(100_000, np.float32)
    values = np.arange(100_000, dtype=np.float32)
    ours.send(PUSH, values.data)
    found: list[memoryview | None] = []
    while not found:
        ours.flush()
        found += [payload for _, payload in theirs.receive(lambda *_: place.data.cast("B"))]
    assert np.array_equal(place, values)
    assert found[0] is not None
    assert np.shares_memory(np.frombuffer(found[0], np.float32), place)


def test_only_what_the_socket_does_not_take_is_copied() -> None:
    ours, theirs = (Connection(sock) for sock in unix_pair())
    values = np.zeros(1 << 20, np.float32)
    ours.send(PUSH, values.data, lasting=True)
    kept = ours._queue[-1]
    assert np.shares_memory(np.frombuffer(kept, np.uint8), values.view(np.uint8))
    ours.send(PUSH, values.data)
    copied = ours._queue[-1]
    assert not np.shares_memory(np.frombuffer(copied, np.uint8), values.view(np.uint8))
    del kept, copied
    for wire in (ours, theirs):
        wire.close()


def test_what_the_socket_takes_at_once_is_not_kept() -> None:
    ours, theirs = (Connection(sock) for sock in unix_pair())
    ours.send(PUSH, memoryview(bytes(1000)))
    assert not ours.waiting
    assert ours.backlog == 0
    for wire in (ours, theirs):
        wire.close()


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([PUSH, HELLO, Go(), Ended()]), st.binary(max_size=300)), max_size=8), st.data()
)
def test_a_stream_that_is_cut_anywhere_gives_the_same_frames(frames: list[Got], data: st.DataObject) -> None:
    stream = b"".join(recorded(message, payload).whole for message, payload in frames)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    assert through(stream, cuts) == frames


def test_byte_by_byte() -> None:
    frames = [(PUSH, b"12345678"), (HELLO, b""), (Params(0, 0, 0, Bucket(0, 1), 1, 1), b"1234")]
    stream = b"".join(recorded(message, payload).whole for message, payload in frames)
    assert through(stream, list(range(len(stream)))) == frames


def through(stream: bytes, cuts: list[int]) -> list[Got]:
    """What a wire makes of a stream that arrives in pieces."""
    ours, theirs = unix_pair()
    wire = Connection(theirs)
    got: list[Got] = []
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        ours.sendall(stream[start:stop])
        got += [(message, bytes(payload or b"")) for message, payload in wire.receive(anywhere)]
    wire.close()
    ours.close()
    return got


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=6), st.integers(0, 2**32))
def test_partial_sends(sizes: list[int], seed: int) -> None:
    """The socket takes little, and is read in pieces of any size."""
    draw = random.Random(seed)
    ours, theirs = unix_pair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    wire = Connection(ours)
    payloads = [draw.randbytes(size) for size in sizes]
    for payload in payloads:
        wire.send(PUSH, memoryview(payload) if payload else None, lasting=draw.random() < 0.5)
    stream = b""
    whole = b"".join(recorded(PUSH, payload).whole for payload in payloads)
    while len(stream) < len(whole):
        stream += theirs.recv(draw.randint(1, 50_000))
        wire.flush()
    assert stream == whole
    assert wire.backlog == 0
    wire.close()
    theirs.close()


# What breaks the rules.


@contextmanager
def listening(*, trusted: bool = False) -> Iterator[tuple[socket.socket, Connection]]:
    ours, theirs = unix_pair()
    wire = Connection(theirs)
    if trusted:
        wire.trust()
    yield ours, wire
    wire.close()
    ours.close()


@pytest.mark.parametrize(
    ("header", "payload", "trusted"),
    [
        (FIRST_HEADER + 1, 0, False),
        (HEADER + 1, 0, True),
        (2**32 - 1, 0, True),
        (1, PAYLOAD + 1, True),
        (1, 2**32 - 1, False),
    ],
)
def test_a_frame_that_is_too_large_is_refused_by_its_first_eight_bytes(
    header: int, payload: int, trusted: bool
) -> None:
    with listening(trusted=trusted) as (ours, wire):
        ours.sendall(PREFIX.pack(header, payload))
        with pytest.raises(PeerError, match="too large"):
            list(wire.receive(nowhere))


def test_a_header_as_long_as_its_sender_is_trusted_with() -> None:
    declare = Declare(tuple(Declared(f"table {number}", (number,)) for number in range(300)))
    frame = pack(declare)
    for limit, fits in ((len(frame), True), (len(frame) - PREFIX.size - 1, False)):
        with listening() as (ours, wire):
            wire.trust(limit)
            ours.sendall(frame)
            if fits:
                assert take(wire, 1) == [(declare, b"")]
            else:
                with pytest.raises(PeerError, match="too large"):
                    list(wire.receive(nowhere))


def test_room_is_made_for_what_has_arrived_and_given_back() -> None:
    declare = Declare(tuple(Declared("x" * 1000 + str(number), (number,)) for number in range(3000)))
    frame = pack(declare)
    with listening(trusted=True) as (ours, wire):
        ours.sendall(PREFIX.pack(HEADER, 0))
        assert list(wire.receive(nowhere)) == []
        assert len(wire._buffer) == wires._BUFFER_BYTES
    with listening(trusted=True) as (ours, wire):
        sender = Connection(ours)
        sender.send(declare)
        rooms, got = [], []
        while not got:
            sender.flush()
            got = list(wire.receive(nowhere))
            rooms.append(len(wire._buffer))
        assert got == [(declare, None)]
        assert wires._BUFFER_BYTES < max(rooms) <= len(frame)
        assert rooms[-1] == wires._BUFFER_BYTES


@pytest.mark.parametrize("payload", [1, 3, 5, 1 << 20])
def test_a_payload_is_of_the_size_that_its_reader_expects(payload: int) -> None:
    with listening() as (ours, wire):
        ours.sendall(pack(PUSH, payload))
        with pytest.raises(PeerError, match="payload"):
            list(wire.receive(lambda *_: memoryview(bytearray(4))))


def test_a_payload_that_nobody_wants() -> None:
    with listening() as (ours, wire):
        ours.sendall(recorded(HELLO, b"1234").whole)
        with pytest.raises(PeerError, match="Hello with a payload"):
            list(wire.receive(nowhere))


def test_an_empty_header() -> None:
    with listening() as (ours, wire):
        ours.sendall(PREFIX.pack(0, 0))
        with pytest.raises(PeerError, match="not a valid message"):
            list(wire.receive(nowhere))


@pytest.mark.parametrize("length", range(0, len(recorded(PUSH, b"1234").whole), 3))
def test_the_end_in_the_middle_of_a_frame(length: int) -> None:
    with listening() as (ours, wire):
        ours.sendall(recorded(PUSH, b"1234").whole[:length])
        ours.shutdown(socket.SHUT_WR)
        with pytest.raises(EOFError):
            list(wire.receive(anywhere))


def test_what_arrived_before_the_end_is_handed_over_first() -> None:
    with listening() as (ours, wire):
        ours.sendall(pack(HELLO) + pack(Go()))
        ours.shutdown(socket.SHUT_WR)
        frames = wire.receive(nowhere)
        assert [next(frames)[0], next(frames)[0]] == [HELLO, Go()]
        with pytest.raises(EOFError):
            next(frames)


def test_a_connection_that_is_cut_off_hard() -> None:
    ours, theirs = tcp_pair()
    wire = Connection(theirs)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    ours.close()
    with pytest.raises(EOFError):
        list(wire.receive(nowhere))
    wire.close()


def test_a_connection_that_is_cut_counts_as_ended() -> None:
    with listening() as (_, wire):
        wire.cut()
        wire.cut()
        with pytest.raises(EOFError):
            list(wire.receive(nowhere))


def test_a_peer_that_sends_without_end_is_read_in_portions() -> None:
    """So the loop can serve other connections; it reads the rest in the next round."""
    with listening(trusted=True) as (ours, wire):
        flood = pack(Go()) * 20_000
        ours.settimeout(10)
        sender = Thread(target=ours.sendall, args=(flood,))
        sender.start()
        sizes = []
        while sum(sizes) < 20_000:
            sizes.append(len(list(wire.receive(nowhere))))
        sender.join()
        most = wires._BUFFER_BYTES // len(pack(Go())) + wires._SHARE_FRAMES
        assert max(sizes) <= most


def test_tls_hides_nothing_when_a_share_is_over(key: Path) -> None:
    ours, theirs = (Connection(sock) for sock in tls_pair(key))
    ours.send(Go())
    ours.send(Go())
    for _ in range(3 * wires._SHARE_FRAMES):
        ours.send(PUSH, memoryview(bytes(20_000)))
    got = 0
    while got < 3 * wires._SHARE_FRAMES + 2:
        ours.flush()
        got += len(list(theirs.receive(anywhere)))
        assert isinstance(theirs.sock, ssl.SSLSocket)
        assert not theirs.sock.pending()
    for wire in (ours, theirs):
        wire.close()


# Descriptors.


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_a_descriptor_comes_along_with_the_first_frame() -> None:
    ours, theirs = unix_pair()
    sender, wire = Connection(ours), Connection(theirs)
    read, write = os.pipe()
    sender.send_with(HELLO, write)
    assert [message for message, _ in wire.receive(nowhere)] == [HELLO]
    os.write(wire.fds[0], b"here")
    assert os.read(read, 4) == b"here"
    wire.trust()
    assert wire.fds == []
    for each in (sender, wire):
        each.close()
    os.close(read)
    os.close(write)


def test_at_most_one_descriptor_is_kept() -> None:
    before = open_files()
    ours, theirs = unix_pair()
    wire = Connection(theirs)
    for byte in pack(HELLO):
        socket.send_fds(ours, [bytes([byte])], [0, 1, 2, 0, 1, 2, 0])
        list(wire.receive(nowhere))
        assert len(wire.fds) == 1
        assert open_files() <= before + 3
    wire.close()
    ours.close()
    assert open_files() == before


def test_no_descriptor_is_taken_from_whom_we_know() -> None:
    before = open_files()
    ours, theirs = unix_pair()
    wire = Connection(theirs)
    wire.trust()
    for _ in range(20):
        socket.send_fds(ours, [pack(Go())], [0, 1, 2])
        assert [message for message, _ in wire.receive(nowhere)] == [Go()]
    assert wire.fds == []
    assert open_files() == before + 2
    wire.close()
    ours.close()


# The reactor.


class Listener:
    """An owner that accepts hellos, records everything, and can be told to send long answers."""

    def __init__(self) -> None:
        self.got: list[Frame] = []
        self.lost: list[str] = []
        self.answer = b""
        self.reactor = EventLoop(self)

    def sink(self, wire: Connection, message: Frame, size: int) -> memoryview:
        raise PeerError("no payloads")

    def frame(self, wire: Connection, message: Frame, payload: memoryview | None) -> None:
        if isinstance(message, Ended):
            raise PeerError("not this one")
        if isinstance(message, Hello):
            self.reactor.known(wire)
        self.got.append(message)
        if self.answer and isinstance(message, Go):
            wire.send(PUSH, memoryview(self.answer))
            self.reactor.write(wire)

    def broke(self, wire: Connection, error: PeerError) -> None:
        self.reactor.lose(wire, str(error))

    def closed(self, wire: Connection, reason: str) -> None:
        self.lost.append(reason)

    def turn_until(self, done: Callable[[], bool]) -> None:
        for _ in range(20_000):
            if done():
                return
            self.reactor.turn(0.01)
        raise AssertionError(f"got {self.got[-3:]}, lost {self.lost[-3:]}")


@pytest.fixture
def office() -> Iterator[tuple[Listener, str]]:
    listener = Listener()
    sock, name = listen_unix()
    listener.reactor.listen(sock)
    yield listener, f"\0{name}"
    listener.reactor.close()


def knock(where: str | tuple[str, int]) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX if isinstance(where, str) else socket.AF_INET)
    sock.connect(where)
    return sock


def test_a_bad_frame_closes_only_the_connection_of_its_sender(office: tuple[Listener, str]) -> None:
    owner, where = office
    good, bad = knock(where), knock(where)
    for sock in (good, bad):
        sock.sendall(pack(HELLO))
    bad.sendall(pack(Ended()) + pack(Go()))
    owner.turn_until(lambda: owner.lost == ["not this one"])
    assert bad.recv(1) == b""
    good.sendall(pack(Go()))
    owner.turn_until(lambda: owner.got[-1] == Go())
    assert owner.got == [HELLO, HELLO, Go()]
    good.close()
    bad.close()
    owner.turn_until(lambda: owner.lost == ["not this one", ""])


def test_a_stranger_must_identify_itself_in_time(office: tuple[Listener, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither silence nor one byte at a time extends the time."""
    monkeypatch.setattr(reactors, "HELLO_SECONDS", 0.2)
    owner, where = office
    silent, slow = knock(where), knock(where)
    for byte in pack(HELLO)[:-1]:
        if len(owner.lost) == 2:
            break
        slow.sendall(bytes([byte]))
        owner.reactor.turn(0.01)
    owner.turn_until(lambda: len(owner.lost) == 2)
    assert set(owner.lost) == {"it did not identify itself within 0.2 s"}
    assert owner.got == []
    silent.close()
    slow.close()


def test_a_peer_that_has_identified_itself_may_be_silent(
    office: tuple[Listener, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reactors, "HELLO_SECONDS", 0.05)
    owner, where = office
    with knock(where) as known, knock(where) as stranger:
        known.sendall(pack(HELLO))
        owner.turn_until(lambda: bool(owner.lost))
        assert stranger.recv(1) == b""
        known.sendall(pack(Go()))
        owner.turn_until(lambda: owner.got == [HELLO, Go()])


def test_many_strangers_do_not_keep_others_out(office: tuple[Listener, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reactors, "MOST_UNAUTHENTICATED", 8)
    owner, where = office
    crowd = [knock(where) for _ in range(20)]
    owner.turn_until(lambda: len(owner.lost) == 12)
    assert sum(bool(select.select([each], [], [], 0)[0]) for each in crowd) == 12
    with knock(where) as known:
        known.sendall(pack(HELLO))
        owner.turn_until(lambda: owner.got == [HELLO])
    for each in crowd:
        each.close()


def test_without_free_descriptors_new_connections_are_refused(office: tuple[Listener, str]) -> None:
    owner, where = office
    with knock(where) as known:
        known.sendall(pack(HELLO))
        owner.turn_until(lambda: owner.got == [HELLO])
        late = knock(where)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(map(int, os.listdir("/proc/self/fd"))) + 1, hard))
        filled = fill_descriptors()
        try:
            known.sendall(pack(Go()))
            owner.turn_until(lambda: owner.got == [HELLO, Go()])
            late.settimeout(10)
            assert late.recv(1) == b""
        finally:
            for fd in filled:
                os.close(fd)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        late.close()
        with knock(where) as another:
            another.sendall(pack(HELLO))
            owner.turn_until(lambda: len(owner.got) == 3)


def fill_descriptors() -> list[int]:
    taken: list[int] = []
    while True:
        try:
            taken.append(os.dup(0))
        except OSError:
            return taken


def test_a_peer_that_does_not_read_its_answers_is_not_read(
    office: tuple[Listener, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reactors, "BACKLOG", 1 << 20)
    owner, where = office
    owner.answer = bytes(100_000)
    asker = knock(where)
    asker.sendall(pack(HELLO) + pack(Go()) * 200)
    for _ in range(50):
        owner.reactor.turn(0.001)
    assert len(owner.got) < 20
    asker.setblocking(False)
    wire = Connection(asker)
    wire.trust()
    answers: list[Frame] = []

    def all_answered() -> bool:
        answers.extend(message for message, _ in wire.receive(anywhere))
        return len(answers) == 200

    owner.turn_until(all_answered)
    assert len(owner.got) == 201
    wire.close()


def test_one_who_floods_does_not_keep_others_waiting(office: tuple[Listener, str]) -> None:
    owner, where = office
    flooder, other = knock(where), knock(where)
    for sock in (flooder, other):
        sock.sendall(pack(HELLO))
    owner.turn_until(lambda: len(owner.got) == 2)
    flooder.settimeout(10)
    flood = Thread(target=flooder.sendall, args=(pack(Go()) * 200_000,))
    flood.start()
    owner.turn_until(lambda: len(owner.got) > 2)
    other.sendall(pack(PUSH))
    owner.turn_until(lambda: PUSH in owner.got)
    assert len(owner.got) < 200_000
    owner.turn_until(lambda: len(owner.got) == 200_003)
    flood.join()
    flooder.close()
    other.close()


def test_a_stranger_that_resets_before_tls_has_begun(key: Path) -> None:
    owner = Listener()
    sock = socket.create_server(("127.0.0.1", 0))
    owner.reactor.listen(sock, server_context(key))
    where = sock.getsockname()
    for first in (b"", b"x" * 100):
        rude = knock(where)
        rude.sendall(first)
        rude.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        rude.close()
        for _ in range(5):
            owner.reactor.turn(0.01)
    noisy = knock(where)
    noisy.sendall(pack(HELLO) * 100)
    owner.turn_until(lambda: any("TLS" in reason for reason in owner.lost))
    noisy.close()
    assert owner.got == []
    owner.reactor.close()


def test_the_reactor_speaks_tls(key: Path) -> None:
    owner = Listener()
    owner.answer = bytes(1 << 20)
    sock = socket.create_server(("127.0.0.1", 0))
    owner.reactor.listen(sock, server_context(key))
    raw = knock(sock.getsockname())
    raw.settimeout(10)
    made: list[Connection] = []
    side = Thread(target=lambda: made.append(Connection(client_context(key).wrap_socket(raw))))
    side.start()
    owner.turn_until(lambda: bool(made))
    side.join()
    client = made[0]
    client.trust()
    client.send(HELLO)
    client.send(Go())
    answers: list[Got] = []

    def answered() -> bool:
        answers.extend((message, bytes(payload or b"")) for message, payload in client.receive(anywhere))
        return bool(answers)

    owner.turn_until(answered)
    assert answers == [(PUSH, owner.answer)]
    client.close()
    owner.turn_until(lambda: owner.lost == [""])
    owner.reactor.close()


def test_closing_leaves_no_descriptor_behind() -> None:
    before = open_files()
    owner = Listener()
    sock, name = listen_unix()
    owner.reactor.listen(sock)
    peers = [knock(f"\0{name}") for _ in range(5)]
    for peer in peers[:3]:
        peer.sendall(pack(HELLO))
    owner.turn_until(lambda: len(owner.got) == 3)
    owner.reactor.close()
    for peer in peers:
        peer.close()
    assert open_files() == before
