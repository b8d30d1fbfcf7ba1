"""A live run under attack: a hostile peer loses its connection, and no other process is affected."""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import numpy as np
import pytest

from hostile import (
    BUCKET,
    SECONDS,
    SHAPES,
    UPDATE,
    Caller,
    Recorded,
    Victim,
    dial,
    every_message,
    finish,
    handover,
    hear,
    mutate,
    recorded,
    tell,
    victim,
)
from samples import sampled
from syncline.engines.net.addresses import listen_unix
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    PROTOCOL,
    Begin,
    Declare,
    Declared,
    Frozen,
    Go,
    Hello,
    NodeAddress,
    Reached,
    Read,
    Refused,
    Seated,
    Seed,
    Take,
    Welcome,
    Whole,
    Withdraw,
    declared,
)
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import new_segment
from syncline.engines.net.wiring import Wiring
from syncline.engines.process_state import host
from syncline.engines.worker.session import NumpySession
from syncline.errors import PeerError, SynclineError
from syncline.layout import Bucket, Layout, Values
from syncline.messages import Gone, JoinRequest, LeaveNotice, Member, Params, Pull, Push, Report, Settled, View
from syncline.strategies.settings import defaults

ITERATIONS = 40
UPDATES = 2 * 2 * ITERATIONS
"""Two workers, counted by two servers."""

STRANGE = 999
"""A worker's number that is in no view."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Values:
    """The result of the run when nobody attacks it."""
    with victim(tmp_path_factory.mktemp("undisturbed"), ITERATIONS) as run:
        final, updates = run.result()
        assert updates == UPDATES
        return final


@pytest.fixture
def run(tmp_path: Path, undisturbed: Values) -> Iterator[Victim]:
    """A run that is attacked; afterwards it ends as if it had not been."""
    with victim(tmp_path, ITERATIONS) as run:
        yield run
        run.alive()
        final, updates = run.result()
        assert updates == UPDATES
        assert np.array_equal(final.view(np.uint32), undisturbed.view(np.uint32))


def hello_of(run: Victim, number: int = STRANGE, incarnation: int = 0) -> Hello:
    """The hello of a peer that knows the run, and has no token or pass."""
    return Hello(run.run, "worker", number, incarnation)


def reasons(answers: list[object]) -> list[str]:
    return [each.reason for each in answers if isinstance(each, Refused)]


# Mutated frames.


@pytest.mark.parametrize("frames", [3_000, pytest.param(80_000, marks=pytest.mark.slow)])
def test_mutated_frames_change_nothing(run: Victim, frames: int) -> None:
    draw = random.Random(frames)
    pid = run.workers[0].pid
    pool = run.frames()
    pool = draw.sample(pool, min(len(pool), 200)) + [
        recorded(each, UPDATE if isinstance(each, Push | Params | Seed) else b"")
        for each in every_message(run.run, host(), pid)
    ]
    offices, stores, guest = (run.unix, run.tcp), run.places(), run.guest()
    sent = 0
    while sent < frames:
        batch = [mutate(draw, pool) for _ in range(draw.choice((1, 1, 1, 2, 5)))]
        where = draw.choice(offices if draw.random() < 0.4 else stores)
        match draw.randrange(3):
            case 0:
                opening = []
            case 1:
                opening = [recorded(guest if where in stores else Hello("", "server")).whole]
            case _:
                opening = [recorded(Hello("", draw.choice(("worker", "agent")))).whole]
        tell(where, *opening, *batch)
        sent += len(batch)
        if not sent % 50:
            run.pace(0.25 + 0.75 * sent / frames)


@pytest.mark.parametrize("number", range(len(every_message("", "", 0))))
def test_every_message_from_a_peer_that_must_not_send_it(shared_run: Victim, number: int) -> None:
    run = shared_run
    message = every_message(run.run, host(), run.workers[0].pid)[number]
    for payload in (b"", UPDATE):
        frame = recorded(message, payload).whole
        for where in (run.unix, run.tcp, *shared_places(run)):
            for opening in (None, run.guest(), Hello("", "worker"), hello_of(run, 0, 9), Hello("", "agent")):
                tell(where, *(() if opening is None else (recorded(opening).whole,)), frame, frame)
    run.alive()


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory, undisturbed: Values) -> Iterator[Victim]:
    """A run that many tests attack, each in its own way."""
    with victim(tmp_path_factory.mktemp("shared"), ITERATIONS) as run:
        yield run
        final, updates = run.result()
        assert updates == UPDATES
        assert np.array_equal(final.view(np.uint32), undisturbed.view(np.uint32))


def shared_places(run: Victim) -> tuple[str, ...]:
    return run.places()


# One by one.


def test_the_first_frame_must_be_a_hello_of_this_run_and_protocol(shared_run: Victim) -> None:
    run = shared_run
    for where in (run.unix, *run.places()):
        assert tell(where, recorded(Push(0, 0, 0, BUCKET, 0)).whole) == []
        assert reasons(tell(where, recorded(Hello("another", "worker", 0)).whole))
        other = Hello(run.run, "worker", STRANGE, protocol=PROTOCOL + 1)
        assert "protocol" in reasons(tell(where, recorded(other).whole))[0]


def test_a_second_hello_costs_the_connection(shared_run: Victim) -> None:
    for where, hello in ((shared_run.unix, Hello("", "worker")), (shared_run.places()[0], shared_run.guest())):
        caller = Caller(where, hello)
        caller.say(hello)
        assert caller.hangs_up()
        caller.close()


def test_nobody_takes_the_place_of_a_worker_that_is_there(run: Victim) -> None:
    """Neither its answers nor its memory, whatever incarnation is claimed."""
    guest = run.guest()
    for where in run.places():
        for incarnation in (0, 1, 2**40):
            for word in ("", guest.word, "0" * 32):
                told = tell(where, recorded(Hello(run.run, "worker", 0, incarnation, word=word)).whole)
                assert reasons(told) == ["worker 0 did not show the pass that the coordinator gave to it"]
    told = tell(run.unix, recorded(hello_of(run, 0)).whole)
    assert reasons(told) == ["worker 0 is another process: you did not show its token"]
    token = run.wiring_of("worker", 0).token
    told = tell(run.unix, recorded(Hello(run.run, "worker", 0, token=token)).whole)
    assert reasons(told) == ["worker 0 is already connected"]


def test_a_peer_without_the_servers_secret_is_not_accepted_as_a_server(run: Victim) -> None:
    """Neither by its number, nor by the run's identity, which workers know as well."""
    for where in run.places():
        for number in (0, 1, 2):
            for word in ("", "guessed", "0" * 32):
                said = tell(where, recorded(Hello(run.run, "server", number, word=word)).whole, recorded(Take(9)).whole)
                assert "did not send the secret of this model's servers" in reasons(said)[0]
    for number in (0, 1, 2, 7):
        for again in (False, True):
            hello = Hello(run.run, "server", number, again=again, token=run.guest().word)
            assert "is another process" in reasons(tell(run.unix, recorded(hello).whole))[0]


LAST: dict[str, Frame | None] = {
    "nothing": None,
    "Seated": Seated(),
    "Withdraw": Withdraw(),
    "Settled": Settled(0),
    "Report": Report(0, 3),
    "Reached": Reached(0, "no"),
    "Handover": handover(),
}


@pytest.mark.parametrize("name", sampled(LAST, "nothing", "Seated", "Handover"))
def test_a_server_that_joins_and_disconnects_does_not_disturb_the_run(run: Victim, name: str) -> None:
    """It is told what is trained; what it says of itself is not true; nobody reaches it, so it gets nothing."""
    last = LAST[name]
    for where in (run.unix, run.tcp):
        caller = Caller(where, Hello("", "server", unix="@syncline-nobody", tcp="127.0.0.1:1", host="elsewhere"))
        assert caller.hears(Welcome).worker >= 2
        assert caller.hears(Begin).leader == -1
        if last is not None:
            caller.say(last)
        if isinstance(last, Seated):
            assert "cannot reach it" in caller.hears(Refused).reason
        caller.close()
    run.pace(1.0)


def test_a_handover_that_is_not_expected(run: Victim) -> None:
    """From a worker, or from a peer that claims to be a server: the connection is closed, and nothing changes."""
    frame = recorded(handover(), 2 * UPDATE).whole
    for where in run.places():
        for opening in (run.guest(), Hello(run.run, "server", 1, word="guessed")):
            caller = Caller(where, opening)
            with suppress(ConnectionError):
                caller.sock.sendall(frame)
            assert caller.hangs_up()
            caller.close()


def test_a_stranger_that_joins_is_given_a_number_and_cannot_name_one(shared_run: Victim) -> None:
    for number in (0, 5, 2**16 - 1):
        assert reasons(tell(shared_run.unix, recorded(Hello("", "worker", number)).whole))
    far = msg_hello(shared_run, 2**64 - 1)
    assert not any(isinstance(each, Welcome) for each in tell(shared_run.unix, far))
    caller = Caller(shared_run.unix, Hello("", "worker"))
    assert 2 <= caller.hears(Welcome).worker < 2**16
    caller.close()


def msg_hello(run: Victim, number: int) -> bytes:
    """A hello with a number that no honest side would write."""
    return Recorded(recorded(Hello(run.run, "worker", number)).header, b"").whole


def test_only_members_of_the_right_incarnation_are_heard(shared_run: Victim) -> None:
    caller = Caller(shared_run.places()[0], shared_run.guest())
    caller.say(Push(0, 0, 0, BUCKET, 0, empty=True))
    assert isinstance(caller.hear(), Gone)
    caller.say(Push(0, 3, 0, BUCKET, 0, empty=True))
    assert caller.hangs_up()
    caller.close()


@pytest.mark.parametrize("lr", [float("nan"), float("inf"), -1.0, 1e300])
def test_an_invalid_learning_rate(shared_run: Victim, lr: float) -> None:
    caller = Caller(shared_run.places()[0], shared_run.guest())
    caller.say(Push(0, 0, 0, BUCKET, 0, lr=lr, empty=True))
    with pytest.raises(EOFError):
        caller.hear()
    caller.close()


@pytest.mark.parametrize("bucket", [(-4, 4), (4, 4), (8, 4), (0, 2**40), (2**62, 2**63), (1, 3)])
def test_an_unknown_bucket(shared_run: Victim, bucket: tuple[int, int]) -> None:
    for frame in (Push(0, 0, 0, Bucket(*bucket), 0, empty=True), Pull(0, 0, 0, Bucket(*bucket)), Read(Bucket(*bucket))):
        caller = Caller(shared_run.places()[0], shared_run.guest())
        caller.say(frame)
        with pytest.raises(EOFError):
            caller.hear()
        caller.close()


def test_what_a_peer_may_leave_unanswered_is_bounded(shared_run: Victim) -> None:
    """A push for a view that nobody has made waits; a second one of the same bucket costs the connection."""
    caller = Caller(shared_run.places()[0], shared_run.guest())
    caller.say(Push(10**9, 0, 0, BUCKET, 0, empty=True))
    caller.say(Push(10**9, 0, 1, BUCKET, 0, empty=True))
    assert caller.hangs_up()
    caller.close()


def test_only_the_leader_seeds_and_only_once(shared_run: Victim) -> None:
    for hello in (shared_run.guest(), hello_of(shared_run, 0, 5)):
        caller = Caller(shared_run.places()[0], hello)
        with suppress(ConnectionError):
            caller.say(Seed(BUCKET), UPDATE)
        assert caller.hangs_up()
        caller.close()


def test_an_agent_cannot_have_a_worker_of_this_host_declared_dead(run: Victim) -> None:
    caller = Caller(run.unix, Hello("", "agent", host="elsewhere"))
    caller.hears(Welcome)
    caller.say(Frozen(host(), run.workers[0].pid, 1e9))
    finish(caller.sock)
    caller.close()


def test_a_joiner_that_never_pushes_delays_nobody_once_it_is_gone(run: Victim) -> None:
    caller = Caller(run.unix, Hello("", "worker"))
    welcome = caller.hears(Welcome)
    caller.say(Declare(tuple(Declared(name, shape) for name, shape in SHAPES.items())))
    caller.hears(Begin)
    caller.say(JoinRequest(0, welcome.incarnation))
    assert any(each.worker == welcome.worker for each in caller.hears(View).members)
    caller.say(Report(0, 2**63))
    assert caller.hangs_up()
    caller.close()


def test_a_join_or_leave_of_another_incarnation(shared_run: Victim) -> None:
    for frame in (
        JoinRequest(0, 1),
        LeaveNotice(0, 1),
        JoinRequest(0, 2**63),
        Report(0, 0),
        View(9, (Member(0, 0, 0),), ()),
    ):
        caller = Caller(shared_run.unix, Hello("", "worker"))
        caller.hears(Welcome)
        caller.say(frame)
        assert caller.hangs_up()
        caller.close()


@pytest.mark.parametrize(
    "tables",
    [
        (Declared("w", (2**40, 2**40)),),
        (Declared("w", (2**40,)),),
        (Declared("w", (3,)), Declared("w", (3,))),
        (),
    ],
)
def test_a_declaration_of_another_model(shared_run: Victim, tables: tuple[Declared, ...]) -> None:
    caller = Caller(shared_run.unix, Hello("", "worker"))
    caller.hears(Welcome)
    caller.say(Declare(tables, {"seed": "x", "sync": "no.such"}))
    assert not any(isinstance(each, Begin) for each in finish(caller.sock))
    caller.close()


def test_a_peer_that_does_not_read_gets_no_endless_answers(shared_run: Victim) -> None:
    """Each request is 30 bytes and each answer a kilobyte: the server stops reading, and its memory stays small."""
    where = shared_run.places()[0]
    caller, other = (Caller(where, shared_run.guest(number)) for number in (0, 1))
    caller.sock.setblocking(False)
    left = memoryview(recorded(Read(BUCKET)).whole * (1 << 21))
    silent = 0
    while silent < TURNS:
        try:
            left, silent = left[caller.sock.send(left) :], 0
            assert left, "it reads on, though its answers are not read"
        except BlockingIOError:
            other.say(Read(BUCKET))
            other.hears(Whole)  # the server has looked at all its connections meanwhile
            silent += 1
    grown = max(resident(server.pid) for server in shared_run.servers)
    assert grown < 600 << 20
    caller.close()
    other.close()


TURNS = 200
"""How often a server answers somebody else without reading from one, until it is clear that it does not."""


def resident(pid: int) -> int:
    """The memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_strangers_that_say_nothing_are_sent_away_when_they_are_many(shared_run: Victim) -> None:
    for where in (shared_run.unix, shared_run.places()[0]):
        crowd = [dial(where) for _ in range(300)]
        assert list(hear(crowd[0])) == []
        caller = Caller(where, Hello("", "worker"))
        with suppress(ConnectionError):
            caller.say(Hello("", "worker"))
        assert caller.hangs_up()
        caller.close()
        for each in crowd:
            each.close()


# Segments.


def segment(kind: str, directory: Path, values: int) -> int:
    """A descriptor that looks like a worker's memory, and is not."""
    match kind:
        case "small":
            return new_segment(values - 1)
        case "unsealed":
            fd = os.memfd_create("syncline", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, 8 * values)
            return fd
        case "file":
            (directory / "file").write_bytes(bytes(8 * values))
            return os.open(directory / "file", os.O_RDWR)
    return os.open(os.devnull, os.O_RDWR)


@pytest.mark.parametrize("kind", ["small", "unsealed", "file", "device"])
def test_an_invalid_segment_is_refused(shared_run: Victim, kind: str, tmp_path: Path) -> None:
    fd = segment(kind, tmp_path, sum(np.zeros(shape).size for shape in SHAPES.values()))
    with dial(shared_run.places()[0]) as sock:
        socket.send_fds(sock, [recorded(shared_run.guest()).whole], [fd])
        os.close(fd)
        assert list(hear(sock)) == []


def test_a_push_without_segment_or_payload(shared_run: Victim) -> None:
    caller = Caller(shared_run.places()[0], shared_run.guest())
    caller.say(Push(0, 0, 0, BUCKET, 0))
    assert caller.hangs_up()
    caller.close()


def test_a_push_in_bytes_where_values_are_sent(shared_run: Victim) -> None:
    caller = Caller(shared_run.places()[0], shared_run.guest())
    caller.say(Push(0, 0, 0, BUCKET, 0, size=BUCKET.size * 4), bytes(BUCKET.size * 4))
    assert caller.hangs_up()
    caller.close()


def test_descriptors_do_not_pile_up(shared_run: Victim) -> None:
    fds = [os.open(os.devnull, os.O_RDONLY) for _ in range(4)]
    with dial(shared_run.places()[0]) as sock:
        for byte in recorded(shared_run.guest()).whole[:-1]:
            socket.send_fds(sock, [bytes([byte])], fds)
        caller = Caller(shared_run.places()[0], shared_run.guest())
        caller.say(Push(0, 0, 0, BUCKET, 0, empty=True))
        assert isinstance(caller.hear(), Gone)
        assert all(len(os.listdir(f"/proc/{server.pid}/fd")) < 60 for server in shared_run.servers)
        caller.close()
    for fd in fds:
        os.close(fd)


# A worker, whose server or coordinator is hostile.


class FalseRun(Thread):
    """A coordinator and one server that behave until a worker is under way; then one of them says something wrong."""

    def __init__(self, where: str, bad: bytes) -> None:
        super().__init__(daemon=True)
        self._bad, self._liar = bad, where
        self._office, office = listen_unix()
        self._store = socket.create_server(("127.0.0.1", 0))
        host_, port = self._store.getsockname()
        self.wiring = Wiring(run="r", token="t", coordinator=f"@{office}", worker="0", lane="tcp")
        layout = Layout.of(SHAPES.items())
        self._buckets = (Bucket(0, 2000), Bucket(2000, layout.size))
        view = View(0, (Member(0, 0, 0),), (self._buckets,))
        settings = {**defaults(), "mode": "changes", "rule": "add"}
        place = NodeAddress("elsewhere", "", f"{host_}:{port}")
        self._begin = Begin(declared(layout), settings, view, (place,), 0)

    def run(self) -> None:
        with self._office, self._store:
            office = self._office.accept()[0]
            self._say(office, Welcome("r", 0, 0, 1))
            self._say(office, self._begin)
            store = self._store.accept()[0]
            for bucket in self._buckets:
                answer = Params(0, 0, -1, bucket, 0, 0)
                store.sendall(recorded(answer, np.ones(bucket.size, np.float32).tobytes()).whole)
            self._say(office, Go())
            liar = office if self._liar == "coordinator" else store
            try:
                self._listen_for_a_push(store)
                liar.sendall(self._bad)
            except ConnectionError:
                pass
            for each in (office, store):
                each.close()

    def _say(self, sock: socket.socket, frame: object) -> None:
        sock.sendall(recorded(frame).whole)  # type: ignore[arg-type]

    def _listen_for_a_push(self, sock: socket.socket) -> None:
        stream = b""
        while b"push" not in stream and (data := sock.recv(1 << 16)):
            stream = stream[-8:] + data


def worker_against(where: str, bad: bytes) -> BaseException | None:
    """The error with which the worker ends, if any."""
    false = FalseRun(where, bad)
    false.start()
    try:
        with NumpySession().start(false.wiring) as session:
            tables = session.tables({name: np.zeros(shape) for name, shape in SHAPES.items()})
            while True:
                for name, table in tables.items():
                    session.update(name, np.ones_like(table))
                session.clock()
                session.sync()
    except SynclineError as error:
        return error
    finally:
        false.join(SECONDS)
        assert not false.is_alive()


def wrong_for_a_worker() -> list[tuple[str, Recorded]]:
    """Frames that are well formed, from one who must not send them, or without what belongs to them."""
    first = Bucket(0, 2000)
    frames = every_message("r", host(), os.getpid())
    not_from_server = [each for each in frames if type(each).__name__ in ("Welcome", "Begin", "Go", "Ended", "View")]
    not_from_coordinator = [each for each in frames if type(each).__name__ in ("Params", "Taken", "Moved", "Whole")]
    nobody = [each for each in frames if type(each).__name__ in ("Push", "Pull", "Join", "Hello", "Seed", "Stop")]
    return [
        *(("server", recorded(each)) for each in (*not_from_server, *nobody)),
        *(("coordinator", recorded(each)) for each in (*not_from_coordinator, *nobody)),
        ("server", recorded(Params(0, 0, 0, first, 1, 1))),
        ("server", recorded(Params(0, 0, 0, first, 1, 1), bytes(4))),
        ("server", recorded(Params(0, 0, 0, Bucket(0, 2**40), 1, 1), bytes(8))),
        ("coordinator", recorded(Seated(), bytes(16))),
    ]


@pytest.mark.parametrize("number", range(len(wrong_for_a_worker())))
def test_a_worker_names_who_broke_the_protocol(number: int) -> None:
    where, frame = wrong_for_a_worker()[number]
    error = worker_against(where, frame.whole)
    assert isinstance(error, PeerError)
    assert where in str(error)


@pytest.mark.parametrize("frames", [300, pytest.param(20_000, marks=pytest.mark.slow)])
def test_mutated_frames_end_a_worker_with_an_error_of_ours_and_in_no_other_way(frames: int) -> None:
    draw = random.Random(frames)
    pool = [recorded(each) for each in every_message("r", host(), os.getpid())]
    pool += [recorded(Params(0, 0, 0, Bucket(0, 2000), 1, 1), bytes(8000)) for _ in range(5)]
    for _ in range(frames):
        where = draw.choice(("coordinator", "server"))
        assert isinstance(worker_against(where, mutate(draw, pool)), SynclineError)


def test_a_wire_on_a_pair_of_sockets_survives_mutated_frames_as_well() -> None:
    """The same for all kinds of frames and without a run: nothing but `PeerError` and the end comes out of a wire."""
    draw = random.Random(1)
    pool = [recorded(each, bytes(draw.choice((0, 64)))) for each in every_message("r", host(), os.getpid())]
    for _ in range(2_000):
        ours, theirs = socket.socketpair()
        wire = Connection(ours)
        if draw.random() < 0.5:
            wire.trust()
        with theirs:
            theirs.settimeout(1.0)
            theirs.sendall(mutate(draw, pool)[: 1 << 16])
            theirs.shutdown(socket.SHUT_WR)
            with pytest.raises((PeerError, EOFError)):
                drain(wire)
        wire.close()


def drain(wire: Connection) -> None:
    """Read to the end."""
    while True:
        for _ in wire.receive(lambda _, size: memoryview(bytearray(min(size, 1 << 16)))):
            pass
