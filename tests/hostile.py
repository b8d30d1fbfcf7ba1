"""Tools for a hostile peer: malformed frames, and a run to attack.

Run as a program, this file is a worker of such a run. It sends random updates, keeps pace with the attack, and records
every frame that it sends and receives:

    python tests/hostile.py DIRECTORY ITERATIONS
"""

from __future__ import annotations

import json
import os
import random
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import msgspec
import numpy as np

from syncline import Session, connect
from syncline.engines.net import addresses
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import (
    Abort,
    Begin,
    ChangeReply,
    ChangeRequest,
    Declare,
    Declared,
    Ended,
    EpochBegun,
    Figures,
    Frozen,
    Go,
    Hello,
    InForce,
    NewTerms,
    NodeAddress,
    Noted,
    Notice,
    Reach,
    Reached,
    Read,
    Refused,
    Released,
    Seated,
    Seed,
    Seen,
    Stop,
    Take,
    TermsTaken,
    Welcome,
    Whole,
    Withdraw,
)
from syncline.engines.net.frames import PREFIX, Frame, pack, unpack
from syncline.engines.net.tokens import new_token
from syncline.engines.net.wiring import Wiring
from syncline.layout import Bucket, Values
from syncline.messages import (
    Gone,
    Handover,
    JoinRequest,
    KeptUpdate,
    LeaveNotice,
    Member,
    Moved,
    Params,
    ParkedPull,
    Pull,
    Push,
    ReplicaState,
    Report,
    Settled,
    Taken,
    View,
)

SHAPES = {"w": (40, 50), "b": (77,)}
SEED = 5
SECONDS = 60.0
"""A timeout that only a test that hangs reaches."""

BUCKET = Bucket(0, 207)
"""The first of the run's buckets; a bucket has at most 1 KiB."""

UPDATE = bytes(4 * BUCKET.size)
"""A payload of the size of its update."""


class Recorded(NamedTuple):
    """One frame as it was sent."""

    header: bytes
    payload: bytes

    @property
    def whole(self) -> bytes:
        return PREFIX.pack(len(self.header), len(self.payload)) + self.header + self.payload


def recorded(frame: Frame, payload: bytes = b"") -> Recorded:
    return Recorded(pack(frame)[PREFIX.size :], payload)


def split(stream: bytes) -> list[Recorded]:
    """The complete frames at the beginning of a stream."""
    found = []
    at = 0
    while at + PREFIX.size <= len(stream):
        header, payload = PREFIX.unpack_from(stream, at)
        at += PREFIX.size
        if at + header + payload > len(stream):
            break
        found.append(Recorded(stream[at : at + header], stream[at + header : at + header + payload]))
        at += header + payload
    return found


def every_message(run: str, host: str, pid: int) -> list[Frame]:
    """One message of each kind, as an attacker who knows the run can make it."""
    view = View(10**6, (Member(0, 0, 0), Member(999, 0, 0)), ((BUCKET,), (Bucket(207, 415),)))
    tables = tuple(Declared(name, shape) for name, shape in SHAPES.items())
    return [
        Push(0, 0, 0, BUCKET, 0, lr=0.1),
        Push(10**9, 0, 0, BUCKET, 0, empty=True),
        Pull(0, 0, -1, BUCKET),
        Pull(0, 0, 10**18, BUCKET),
        Params(0, 0, 0, BUCKET, 1, 1, statistics=(1.0,)),
        Taken(0, 0, 0, BUCKET, 1, 1),
        Gone(0, 0),
        Moved(0, 0, 0, BUCKET),
        view,
        JoinRequest(0, 0),
        LeaveNotice(0, 0),
        Report(0, 3),
        Report(0, 2**61 - 1),
        ReplicaState(0, 0, 0),
        Hello(run, "worker", 0, 0),
        Hello(run, "worker", 0, 7),
        Hello(run, "server", 0),
        Hello(run, "launcher"),
        Hello("", "agent"),
        Hello("", "worker"),
        Refused("no"),
        Welcome(run, 0, 0, 2),
        Declare(tables, {"sync": "asp"}),
        Declare((Declared("w", (2**40, 2**40)),)),
        Begin(tables, {}, view, (), 0),
        Seated(),
        Go(),
        Seed(BUCKET),
        Seed(BUCKET, "velocity"),
        Noted(BUCKET),
        Read(BUCKET),
        Read(BUCKET, "velocity"),
        Whole(BUCKET),
        Whole(BUCKET, "velocity"),
        Ended(),
        Seen("worker", 0, 0, "gone"),
        Frozen(host, pid, 1e9),
        Abort("stop it"),
        Figures(0, 1, 1, 1, 1, 1, 1),
        Stop(),
        handover(),
        Settled(10**6),
        Hello("", "server"),
        Hello(run, "server", 1, word="guessed"),
        Reach(2, NodeAddress(host, "@syncline-nobody", "127.0.0.1:1")),
        Reached(2),
        Reached(2, "no"),
        Take(10**6),
        Withdraw(),
        Released(),
        Moved(0, 0, -1, BUCKET),
        Read(BUCKET, view=10**6),
        Hello("", "operator"),
        Hello(run, "operator"),
        ChangeRequest(1, ("asp",), "soft", ("nobody",)),
        ChangeReply(1),
        NewTerms(1, "asp", "soft"),
        TermsTaken(1, "no"),
        InForce({"sync": "asp"}),
        Notice("attention"),
        EpochBegun(3, 10**9),
    ]


def handover() -> Handover:
    """A handover of the first bucket, as a server would send it, for a view that does not exist."""
    return Handover(
        10**6, BUCKET, 3, 3, "bsp lazy", 0, 2, -1, ((3, ((0, 0),)),), ((0, 0, 3, False),), ((0, 0, -1),),
        ((0, (0.1,)),), (ParkedPull(0, 3, Push(0, 0, 3, BUCKET, 0)),), (KeptUpdate(3, 0, 0, 0, 0.1, False),), (),
        (("<f4", BUCKET.size), ("<f4", BUCKET.size)),
    )  # fmt: skip


# Mutations.

NASTY: tuple[Any, ...] = (
    *(-1, 0, 1, 7, 255, 2**31, 2**62, -(2**63), 2**63 - 1, 2**63, 2**64 - 1),
    *(float("nan"), float("inf"), -0.5, 1e300, None, True, "", "x" * 300, b"\xff", [], {}, [0, 0], [207, 0], [-4, 4]),
    *([0, 2**63], [[[[]]]], {"type": "push"}, "worker", "server", "agent", "launcher"),
)


def flip(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    """Flip some bits."""
    whole = bytearray(frame.whole)
    for _ in range(draw.choice((1, 1, 2, 8))):
        whole[draw.randrange(min(len(whole), PREFIX.size + len(frame.header)))] ^= 1 << draw.randrange(8)
    return bytes(whole)


def truncate(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    """Cut off the end, so that what follows is read as part of the frame."""
    return frame.whole[: draw.randrange(len(frame.whole))] + draw.choice(others).whole


def lie(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    """Give a wrong length."""
    lengths = [len(frame.header), len(frame.payload)]
    which = draw.randrange(2)
    lengths[which] = draw.choice((0, 1, lengths[which] + draw.randint(-4, 4), 4097, 1 << 20, 1 << 30, 2**32 - 1))
    return PREFIX.pack(*(max(each, 0) for each in lengths)) + frame.header + frame.payload


def swap(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    """Replace a field: by another field's value, by an unexpected value, or by the tag of another message."""
    try:
        fields = msgspec.msgpack.decode(frame.header)
        donor = msgspec.msgpack.decode(draw.choice(others).header)
    except msgspec.DecodeError:
        return frame.whole
    key = draw.choice(list(fields))
    match draw.randrange(5):
        case 0:
            fields[key] = donor.get(key, draw.choice(list(donor.values())))
        case 1:
            del fields[key]
        case 2:
            fields["type"] = donor["type"]
        case _:
            fields[key] = draw.choice(NASTY)
    return Recorded(msgspec.msgpack.encode(fields), frame.payload).whole


def carry(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    """Replace the payload by that of another frame, or by one of another size."""
    payload = draw.choice((b"", bytes(4), UPDATE, UPDATE + bytes(4), draw.choice(others).payload))
    return Recorded(frame.header, payload).whole


def repeat(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    return frame.whole * draw.choice((2, 3, 50))


def reorder(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    """Send valid frames in a wrong order."""
    return b"".join(each.whole for each in [*draw.choices(others, k=draw.randint(1, 4)), frame])


def noise(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    return draw.randbytes(draw.choice((1, 7, 8, 9, 64, 5000)))


def nest(draw: random.Random, frame: Recorded, others: list[Recorded]) -> bytes:
    """Nest values deeper than decoders allow."""
    return Recorded(b"\x82\xa4type\xa4push\xa1x" + draw.choice((b"\x91", b"\x81\xa1a")) * 900, b"").whole


MUTATIONS: tuple[Callable[[random.Random, Recorded, list[Recorded]], bytes], ...] = (
    flip,
    flip,
    truncate,
    lie,
    swap,
    swap,
    swap,
    carry,
    repeat,
    reorder,
    noise,
    nest,
)


def mutate(draw: random.Random, frames: list[Recorded]) -> bytes:
    """Choose one of the frames, and mutate it in one way."""
    return draw.choice(MUTATIONS)(draw, draw.choice(frames), frames)


BOUNDARY = (
    0,
    -1,
    2**31,
    2**62,
    2**62 - 1,
    2**63 - 1,
    2**64 - 1,
    float("nan"),
    float("inf"),
    -0.5,
    1e300,
    "",
    "x",
    None,
    [],
    {},
    True,
)


def variants(message: Frame) -> Iterator[bytes]:
    """The header with each field, also inside of others, replaced by each of the boundary values."""
    raw = {"type": message.__struct_config__.tag, **msgspec.to_builtins(message, order=None)}
    raw |= {name: msgspec.to_builtins(getattr(message, name)) for name in message.__struct_fields__}
    for key, value in raw.items():
        for wrong in BOUNDARY:
            yield msgspec.msgpack.encode({**raw, key: wrong})
            if isinstance(value, list) and value:
                for place in range(len(value)):
                    yield msgspec.msgpack.encode({**raw, key: [*value[:place], wrong, *value[place + 1 :]]})


# Connections, as an unauthenticated peer can open them.


def dial(where: str) -> socket.socket:
    """Connect; retry while the queue of waiting connections is full."""
    give_up = time.monotonic() + SECONDS
    while True:
        try:
            return addresses.connect(addresses.parse(where, "where"), SECONDS)
        except BlockingIOError:
            assert time.monotonic() < give_up
            time.sleep(0.001)


def tell(where: str, *parts: bytes) -> list[Frame]:
    """Send these bytes and nothing more; return the answers. The other side must close the connection."""
    with dial(where) as sock:
        with suppress(ConnectionError):
            for part in parts:
                sock.sendall(part)
        return finish(sock)


def finish(sock: socket.socket) -> list[Frame]:
    """Send nothing more; return what arrives until the other side closes the connection."""
    with suppress(OSError):  # the other side has already closed the connection
        sock.shutdown(socket.SHUT_WR)
    return list(hear(sock))


def hear(sock: socket.socket) -> Iterator[Frame]:
    """The frames that arrive until the other side closes the connection."""
    stream = b""
    with suppress(ConnectionError):
        while data := sock.recv(1 << 16):
            stream += data
    return iter([unpack(each.header) for each in split(stream)])


class Caller:
    """A connection from which a test reads answers one by one."""

    def __init__(self, where: str, hello: Hello, context: ssl.SSLContext | None = None) -> None:
        """`context`: speak TLS."""
        sock = dial(where)
        self.sock = sock if context is None else context.wrap_socket(sock)
        self._stream = b""
        self.say(hello)

    def say(self, frame: Frame, payload: bytes = b"") -> None:
        self.sock.sendall(recorded(frame, payload).whole)

    def hear(self) -> Frame:
        """The next frame; `EOFError` if the other side has closed the connection."""
        while not (found := split(self._stream)):
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionError:
                data = b""
            if not data:
                raise EOFError
            self._stream += data
        self._stream = self._stream[len(found[0].whole) :]
        return unpack(found[0].header)

    def hears(self, kind: type) -> Any:
        """The next frame of this kind."""
        while not isinstance(frame := self.hear(), kind):
            pass
        return frame

    def hangs_up(self) -> bool:
        """True if the other side closes the connection."""
        with suppress(EOFError):
            while True:
                self.hear()
        return True

    def close(self) -> None:
        self.sock.close()


# A run to attack.


class Victim:
    """A coordinator, two servers and two workers, each a process; the test process is their launcher."""

    def __init__(self, directory: Path, iterations: int, sync: str = "bsp", *, key_file: str = "", **more: str) -> None:
        """`more`: further settings."""
        self.directory = directory
        self.run = token_hex(16)
        self._iterations = iterations
        self._children: list[subprocess.Popen[bytes]] = []
        self._wiring = Wiring(run=self.run, lane="tcp", listen="127.0.0.1", token=new_token(), key_file=key_file)
        self._guests: dict[int, Hello] = {}
        self._log = (directory / "log").open("wb")
        settings = {"sync": sync, "bucket": "1KiB", "mode": "changes", **more}
        self.coordinator = self._spawn(
            ["-m", "syncline.engines.coordinator", "2", "2", json.dumps({"a test": settings})],
            stdout=subprocess.PIPE,
        )
        assert self.coordinator.stdout is not None
        self.unix, self.tcp = self.coordinator.stdout.readline().decode().split()
        self._wiring = replace(self._wiring, coordinator=self.unix)
        self._launcher = Caller(self.unix, Hello(self.run, "launcher", token=self.wiring_of("launcher", -1).token))
        self._launcher.hears(Welcome)
        self.servers = [
            self._spawn(["-m", "syncline.engines.server", str(number)], self.wiring_of("server", number))
            for number in range(2)
        ]
        self.workers: list[subprocess.Popen[bytes]] = []

    def wiring_of(self, role: str, number: int) -> Wiring:
        """The wiring that a launcher would give to this process."""
        return self._wiring.of(role, number)

    def _spawn(self, words: list[str], wiring: Wiring | None = None, **more: Any) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **(wiring or self._wiring).environment(), "OMP_NUM_THREADS": "1"}
        child = subprocess.Popen([sys.executable, *words], env=environment, stderr=self._log, **more)
        self._children.append(child)
        return child

    def start_workers(self) -> None:
        for number in range(2):
            words = [__file__, str(self.directory), str(self._iterations)]
            self.workers.append(self._spawn(words, self.wiring_of("worker", number)))

    def pace(self, part: float) -> None:
        """Let the workers do this share of their iterations."""
        new = self.directory / "pace.new"
        new.write_text(str(int(part * self._iterations)))
        new.rename(self.directory / "pace")

    def places(self) -> tuple[str, ...]:
        """The servers' addresses, as the coordinator sends them to joiners."""
        _, begin = self.join()
        return tuple(where for place in begin.servers for where in (place.unix, place.tcp))

    def join(self) -> tuple[Welcome, Begin]:
        """What a worker that joins is told; it goes no further."""
        caller = Caller(self.unix, Hello("", "worker", token=new_token()))
        welcome: Welcome = caller.hears(Welcome)
        caller.say(Declare(tuple(Declared(name, shape) for name, shape in SHAPES.items())))
        begin: Begin = caller.hears(Begin)
        caller.close()
        return welcome, begin

    def guest(self, which: int = 0) -> Hello:
        """The hello to servers of a worker that has joined and is not a member; each `which` is another worker."""
        if which not in self._guests:
            welcome, begin = self.join()
            who = (welcome.worker, welcome.incarnation)
            self._guests[which] = Hello(self.run, "worker", *who, word=begin.word)
        return self._guests[which]

    def frames(self) -> list[Recorded]:
        """The frames that the workers have sent and received so far."""
        return [frame for path in self.directory.glob("frames*") for frame in split(path.read_bytes())]

    def alive(self) -> None:
        """Check that no process has ended, except workers that are done."""
        for child in self._children:
            assert child.poll() is None or (child in self.workers and child.returncode == 0), self.story()

    def result(self) -> tuple[Values, int]:
        """The final parameters, which are the same for all workers, and the number of updates that the servers took."""
        self.pace(1.0)
        for worker in self.workers:
            assert worker.wait(SECONDS) == 0, self.story()
        first, second = (np.load(self.directory / f"final{number}.npy") for number in range(2))
        assert np.array_equal(first, second)
        self.alive()
        self._launcher.say(Stop())
        figures = [self._launcher.hears(Figures) for _ in range(2)]
        return first, sum(each.updates for each in figures)

    def story(self) -> str:
        return (self.directory / "log").read_text(errors="replace")[-4000:]

    def close(self) -> None:
        for child in self._children:
            child.kill()
            child.wait()
            if child.stdout is not None:
                child.stdout.close()
        self._launcher.close()
        self._log.close()


@contextmanager
def victim(directory: Path, iterations: int = 8, sync: str = "bsp") -> Iterator[Victim]:
    """A run that is training and has recorded some frames."""
    run = Victim(directory, iterations, sync)
    try:
        run.start_workers()
        run.pace(0.25)
        until(lambda: (directory / "under way").exists(), run)
        yield run
    finally:
        run.close()


def until(condition: Callable[[], Any], run: Victim) -> None:
    give_up = time.monotonic() + SECONDS
    while not condition():
        run.alive()
        assert time.monotonic() < give_up, run.story()
        time.sleep(0.01)


# The worker.


def note_frames(path: Path) -> None:
    """Make every connection of this process record what it sends and receives."""
    file = path.open("ab", buffering=0)
    send, receive = Connection.send, Connection.receive

    def noting_send(self: Connection, message: Frame, payload: memoryview | None = None, **more: Any) -> None:
        file.write(recorded(message, b"" if payload is None else bytes(payload)).whole)
        send(self, message, payload, **more)

    def noting_receive(self: Connection, sink: Any) -> Iterator[tuple[Frame, memoryview | None]]:
        for message, payload in receive(self, sink):
            file.write(recorded(message, b"" if payload is None else bytes(payload)).whole)
            yield message, payload

    Connection.send = noting_send  # type: ignore[method-assign]
    Connection.receive = noting_receive  # type: ignore[method-assign]


def may_begin(directory: Path, iteration: int) -> bool:
    try:
        return iteration < int((directory / "pace").read_text())
    except FileNotFoundError:
        return False


def train(session: Session, directory: Path, iterations: int) -> None:
    draw = np.random.default_rng([SEED, session.rank])
    tables = session.tables({name: draw.standard_normal(shape) for name, shape in SHAPES.items()})
    for iteration in range(iterations):
        while not may_begin(directory, iteration):
            time.sleep(0.005)
        for name, shape in SHAPES.items():
            session.update(name, draw.standard_normal(shape))
        session.clock()
        session.sync()
        if iteration == 0:
            (directory / "under way").touch()
    session.close()
    np.save(directory / f"final{session.rank}.npy", np.concatenate([table.ravel() for table in tables.values()]))


if __name__ == "__main__":
    here = Path(sys.argv[1])
    note_frames(here / f"frames{os.environ['SYNCLINE_WORKER']}")
    train(connect(), here, int(sys.argv[2]))
