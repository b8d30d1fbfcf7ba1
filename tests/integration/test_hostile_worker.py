"""A worker under attack in the middle of a run: it goes on, or ends with an error that says why; the run goes on.

A worker listens nowhere, so an attacker is between it and its peers, or is one of them.
"""

from __future__ import annotations

import copy
import os
import random
import re
import select
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import hostile
import middleman
from engine import listening
from hostile import MUTATIONS, SECONDS, SHAPES, UPDATE, Recorded, Victim, every_message, mutate, recorded, until
from middleman import Attack, Middleman, twist, vector, whole_update
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Begin, Figures, Seed, Seen, Stop, Whole
from syncline.engines.net.frames import unpack
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.net.wiring import Wiring
from syncline.engines.process_state import host
from syncline.engines.worker.link import WorkerLink
from syncline.engines.worker.server_lanes import ServerLanes
from syncline.engines.worker.session import NumpySession
from syncline.engines.worker.traffic import Traffic
from syncline.errors import PeerError, SynclineError
from syncline.layout import Bucket, Values
from syncline.messages import COORDINATOR, Member, NodeId, Params, Push, Taken, View, server_id
from syncline.nodes.driver import Driver

ITERATIONS = 40
ATTACKED = 2
"""The number of the worker that is attacked. It joins a run of workers 0 and 1."""

OWN = 1024.0
"""The update of the attacked worker, in every value, with either sign: larger than all that the others sum up to."""

LEFT_OUT = 1
"""Frames that come before a worker takes part: `Welcome`, `Begin` and the view in which it is still a joiner."""


class Crew(Victim):
    """A run whose result does not depend on the order of updates, and to which a member without update adds nothing."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, ITERATIONS, "asp")
        self.seen: list[Seen] = []
        self.buckets: tuple[Bucket, ...] = ()
        self.attacked = False
        """The worker that is attacked has joined before; it keeps its number."""
        self._reached = 4
        self.go_on()

    def _spawn(self, words: list[str], wiring: Wiring | None = None, **more: Any) -> Any:
        words = [word.replace('"mode": "changes"', '"rule": "sgd:1"') for word in words]
        return super()._spawn(
            [middleman.__file__ if word == hostile.__file__ else word for word in words], wiring, **more
        )

    def go_on(self) -> None:
        """Let the workers do one more iteration; the last ones are for the end."""
        self._reached = min(self._reached + 1, ITERATIONS - 4)
        self.pace(self._reached / ITERATIONS)

    def listen(self) -> None:
        """Receive what the coordinator reports to the launcher."""
        while select.select([self._launcher.sock], [], [], 0)[0]:
            frame = self._launcher.hear()
            if isinstance(frame, Seen):
                self.seen.append(frame)

    def check(self) -> None:
        """The others' updates are in the result, each once; of the attacked worker's, whole ones in every bucket."""
        self.alive()
        self.listen()
        final, _ = self.result()
        steps = [whole_update(rank, iteration) for rank in range(2) for iteration in range(ITERATIONS)]
        own = final + sum(vector(step) for step in steps)
        assert not np.any(own % OWN)
        for bucket in self.buckets:
            assert len(set(own[bucket.start : bucket.stop])) == 1


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """A run under way; after all attacks it ends as it should."""
    directory = tmp_path_factory.mktemp("crew")
    run = Crew(directory)
    try:
        run.start_workers()
        until(lambda: (directory / "under way").exists(), run)
        yield run
        run.check()
    finally:
        run.close()


@contextmanager
def joined(run: Crew, between: Middleman) -> Iterator[NumpySession]:
    """A worker in this process that has joined the run, with a middleman on all its connections."""
    known = {"run": run.run, "worker": str(ATTACKED)} if run.attacked else {}
    wiring = Wiring(lane="tcp", coordinator=between.address, token="the token of the attacked worker", **known)
    with between, NumpySession().start(wiring) as session:
        run.attacked = True
        assert session.rank == ATTACKED
        session.tables({name: np.zeros(shape) for name, shape in SHAPES.items()})
        run.buckets = session._link.buckets
        yield session
        session.leave()


def push(session: NumpySession, update: float) -> None:
    for name, shape in SHAPES.items():
        session.update(name, np.full(shape, update))
    session.clock()


def attacked(run: Crew, between: Middleman, update: float = OWN) -> SynclineError | None:
    """The error of a worker that is attacked while it trains, or None."""
    try:
        with joined(run, between) as session:
            for _ in range(4):
                push(session, update)
                session.sync()
    except SynclineError as error:
        return error
    return None


def everything(run: Crew) -> list[Recorded]:
    """Frames of all kinds, as well made as can be."""
    return [
        recorded(each, UPDATE if isinstance(each, Push | Params | Seed) else b"")
        for each in every_message(run.run, host(), os.getpid())
    ]


# Mutated frames.


@pytest.mark.parametrize("frames", [200, pytest.param(10_000, marks=pytest.mark.slow)])
def test_mutated_frames_among_real_ones_cost_a_worker_at_most_its_own_part(crew: Crew, frames: int) -> None:
    draw = random.Random(frames)
    pool = everything(crew)
    sent = 0

    def says(coming: Recorded) -> bytes:
        nonlocal sent
        batch = [wrong(draw, coming, pool) for _ in range(draw.choice((1, 1, 1, 3)))]
        sent += len(batch)
        return b"".join(batch)

    ends: Counter[str] = Counter()
    before = len(crew.seen)
    while sent < frames:
        whom = draw.choice(("coordinator", "server0", "server1"))
        between = Middleman(crew.tcp, Attack(whom, draw.randrange(LEFT_OUT, 45), says), hasty=True)
        error = attacked(crew, between, draw.choice((-OWN, OWN)))
        ends[type(error).__name__] += 1
        if isinstance(error, PeerError):
            assert whom in str(error)
        pool.extend(draw.sample(between.heard, 1))
        crew.alive()
        crew.listen()
        if not ends.total() % 16:
            crew.go_on()
    assert ends["NoneType"]
    assert ends["PeerError"]
    told = [each for each in crew.seen[before:] if each.number == ATTACKED]
    assert len(told) <= ends.total() - ends["NoneType"]
    assert len({each.incarnation for each in told}) == len(told)


def wrong(draw: random.Random, frame: Recorded, pool: list[Recorded]) -> bytes:
    """A wrong frame: often the very one that comes next, with something in it changed."""
    match draw.randrange(4):
        case 0:
            return mutate(draw, pool)
        case 1:
            return draw.choice(MUTATIONS)(draw, frame, pool)
    return twist(draw, frame)


@pytest.mark.parametrize("frames", [3_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_no_mutated_frame_does_more_to_a_waiting_worker_than_end_it(crew: Crew, frames: int) -> None:
    """Each is put to a copy of a worker that takes part in the run, which goes on meanwhile."""
    draw = random.Random(frames)
    peers = [COORDINATOR, server_id(0), server_id(1)]
    with joined(crew, between := Middleman(crew.tcp)) as session:
        for step in range(20):
            push(session, draw.choice((-OWN, OWN)))
            fitting = [recorded(each, bytes(4 * each.bucket.size)) for each in answers(session)]
            pool = [*everything(crew), *draw.sample(between.heard, min(len(between.heard), 100)), *fitting * 2]
            for _ in range(frames // 20):
                endure(session._link, draw.choice(peers), wrong(draw, draw.choice(pool), pool))
            session.sync()
            if not step % 4:
                crew.go_on()


def answers(session: NumpySession) -> list[Params]:
    """What this worker waits for."""
    link = session._link
    assert link.node is not None
    return [Params(0, session.incarnation, link.node.progress, bucket, 1, 1) for bucket in link.buckets]


def endure(link: WorkerLink, whom: NodeId, bad: bytes) -> None:
    """Send this to a copy of a worker, and then nothing more: it ends with an error of ours, and stays ended."""
    twin, peers = twin_of(link)
    try:
        peers[whom].sendall(bad[: 1 << 16])
        for peer in peers.values():
            peer.close()
        with pytest.raises(SynclineError) as first:
            twin.wait(lambda: False)
        with pytest.raises(SynclineError) as again:
            twin.wait(lambda: False)
        assert again.value is first.value
        if isinstance(first.value, PeerError):
            assert str(whom) in str(first.value)
        assert written(link, twin) <= held_by(link, whom)
    finally:
        twin.close()


def twin_of(link: WorkerLink) -> tuple[WorkerLink, dict[NodeId, socket.socket]]:
    """A copy of a worker that shares nothing with it, and the other ends of its connections."""
    twin = copy.copy(link)
    twin._traffic = Traffic(twin, twin._awaits)
    twin._servers = ServerLanes(link._wiring, twin._traffic)
    twin._servers._hello = link._servers._hello
    twin.memory = LaneMemory(link.memory.params.size)
    twin.memory.params[:] = link.memory.params
    twin.node = copy.copy(link.node)
    for name in type(twin.node).__slots__:
        if isinstance(value := getattr(twin.node, name), dict | list | set):
            setattr(twin.node, name, copy.copy(value))
    twin._driver = Driver(link.me, twin.node, twin)
    twin._reads = copy.copy(link._reads)
    twin._reads._send, twin._reads._open = twin._send_control, dict(link._reads._open)
    twin._aside, twin._former = dict(link._aside), set(link._former)
    peers = {}
    for id in (COORDINATOR, server_id(0), server_id(1)):
        ours, peers[id] = socket.socketpair()
        peers[id].settimeout(SECONDS)
        twin._traffic.add(id, Connection(ours))
    return twin, peers


def written(link: WorkerLink, twin: WorkerLink) -> set[Bucket]:
    """Where the parameters of the copy differ."""
    if np.array_equal(link.memory.params, twin.memory.params):
        return set()
    return {each for each in link.buckets if not np.array_equal(link.memory.param(each), twin.memory.param(each))}


def held_by(link: WorkerLink, whom: NodeId) -> set[Bucket]:
    return {bucket for bucket, holder in link._reads._map.holder.items() if holder == whom}


# One by one.


def test_a_worker_listens_nowhere(crew: Crew) -> None:
    """Nobody can reach it but those to whom it has connected."""
    for worker in crew.workers:
        links = [os.readlink(f"/proc/{worker.pid}/fd/{fd}") for fd in os.listdir(f"/proc/{worker.pid}/fd")]
        sockets = {each.removeprefix("socket:[").rstrip("]") for each in links if each.startswith("socket:")}
        assert len(sockets) == 3
        assert not sockets & listening()


def answer(**fields: Any) -> Callable[[Recorded], bytes]:
    """The answer that comes next, with other fields."""

    def altered(coming: Recorded) -> bytes:
        message = unpack(coming.header)
        assert isinstance(message, Params)
        return recorded(msgspec.structs.replace(message, **fields), coming.payload).whole

    return altered


def unasked(coming: Recorded) -> bytes:
    message = unpack(coming.header)
    assert isinstance(message, Params)
    return recorded(Whole(message.bucket), coming.payload).whole


def view(change: Callable[[View], View]) -> Callable[[Recorded], bytes]:
    """The view in which a joiner becomes a member, with something else in it."""

    def altered(coming: Recorded) -> bytes:
        message = unpack(coming.header)
        assert isinstance(message, View)
        return recorded(change(message)).whole

    return altered


def holding(*holders: tuple[Bucket, ...]) -> Callable[[Recorded], bytes]:
    return view(lambda real: View(real.view, real.members, holders))


def starting(first: int) -> Callable[[Recorded], bytes]:
    return view(
        lambda real: View(
            real.view, tuple(Member(each.worker, each.incarnation, first) for each in real.members), real.holders
        )
    )


def _given(real: View, number: int) -> View:
    """The view, with all that the last server holds given to another."""
    holders = (*real.holders[:-1], *[()] * (number - len(real.holders) + 1), real.holders[-1])
    return View(real.view, real.members, holders)


IN_VIEW = 3
IN_TRAINING = 30

IMPOSSIBLE = {
    "V": ("server", IN_TRAINING, answer(v=2**64 - 1, late=True), "`$.v`"),
    "negative V": ("server", IN_TRAINING, answer(v=-1), "`$.v`"),
    "version": ("server", IN_TRAINING, answer(version=2**64 - 1), "`$.version`"),
    "bucket": ("server", IN_TRAINING, answer(bucket=Bucket(0, 4)), "values 0..4"),
    "unasked": ("server", IN_TRAINING, unasked, "which was not requested"),
    "garbage": ("server", IN_TRAINING, lambda coming: coming.whole + b"\xff" * 64, "too large"),
    "a server that never came": ("coordinator", IN_VIEW, view(lambda real: _given(real, 2)), "never its address"),
    "far away": ("coordinator", IN_VIEW, view(lambda real: _given(real, 40_000)), "never its address"),
    "one bucket": ("coordinator", IN_VIEW, holding((Bucket(0, 2077),), ()), "not pieces of those in view"),
    "no buckets": ("coordinator", IN_VIEW, holding((), ()), "not pieces of those in view"),
    "negative first": ("coordinator", IN_VIEW, starting(-(2**63)), "`$.members[0][2]`"),
    "first": ("coordinator", IN_VIEW, starting(2**64 - 1), "`$.members[0][2]`"),
    "answer": ("coordinator", IN_TRAINING, lambda _: recorded(Taken(0, 0, 0, Bucket(0, 4), 0, 0)).whole, "sent Taken"),
}


@pytest.mark.parametrize("what", IMPOSSIBLE)
def test_an_invalid_answer_or_view_ends_a_worker_with_the_name_of_its_sender(crew: Crew, what: str) -> None:
    whom, after, says, why = IMPOSSIBLE[what]
    names = ["server0", "server1"] if whom == "server" else [whom]
    for name in names:
        error = attacked(crew, Middleman(crew.tcp, Attack(name, after, says)))
        assert isinstance(error, PeerError)
        assert str(error).startswith(f"{name} broke the protocol")
        assert why in str(error)


def test_a_placement_that_servers_do_not_know_ends_a_worker(crew: Crew) -> None:
    """It could be one, since servers come and go; but by that view a server has what it says it has not."""
    swapped = view(lambda real: View(real.view, real.members, real.holders[::-1]))
    error = attacked(crew, Middleman(crew.tcp, Attack("coordinator", IN_VIEW, swapped)))
    assert isinstance(error, PeerError)
    assert re.search("server[01] does not accept", str(error))


# A worker that is a process, and a member from the start.


class Divided(Victim):
    """A run under BSP with a middleman between worker 1 and everyone else."""

    def start_workers_behind(self, address: str) -> None:
        for number, where in enumerate((self.unix, address)):
            words = [hostile.__file__, str(self.directory), str(self._iterations)]
            wiring = replace(self.wiring_of("worker", number), coordinator=where)
            self.workers.append(self._spawn(words, wiring))
        self.pace(1.0)

    def ends(self) -> tuple[Values, list[Seen]]:
        """Worker 1 fails, worker 0 does not: its final parameters, and what the launcher is told."""
        assert [worker.wait(SECONDS) for worker in self.workers] == [0, 1], self.story()
        self._launcher.say(Stop())
        told = []
        with suppress(EOFError):
            while True:
                told.append(self._launcher.hear())
        assert sum(isinstance(each, Figures) for each in told) == len(self.servers)
        assert [server.wait(SECONDS) for server in self.servers] == [0, 0]
        assert self.coordinator.wait(SECONDS) == 0
        return np.load(self.directory / "final0.npy"), [each for each in told if isinstance(each, Seen)]


def of_rounds(both: int, rounds: int) -> Values:
    """The result if worker 1 has taken part in so many rounds."""
    draws = [np.random.default_rng([hostile.SEED, rank]) for rank in range(2)]
    result, _ = (drawn(draw) for draw in draws)
    for done in range(rounds):
        first, second = (drawn(draw) for draw in draws)
        result += (first + second) / np.float32(2) if done < both else first
    return result


def drawn(draw: np.random.Generator) -> Values:
    return vector({name: draw.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()})


BROKEN = {
    "garbage": ("server0", b"\xff" * 64, "server0 broke the protocol: it sent a frame that is too large"),
    "half a frame": (
        "server1",
        recorded(Stop()).whole[:-2],
        "server1 broke the protocol: it sent a frame that is not a valid message",
    ),
    "not for a worker": ("coordinator", recorded(Stop()).whole, "coordinator broke the protocol: it sent Stop"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_worker_that_is_attacked_ends_with_one_clear_word_and_the_rest_go_on(tmp_path: Path, what: str) -> None:
    whom, bad, said = BROKEN[what]
    rounds, after = 20, 64
    run = Divided(tmp_path, rounds)
    try:
        with Middleman(run.tcp, Attack(whom, after, lambda _: bad)) as between:
            run.start_workers_behind(between.address)
            final, told = run.ends()
    finally:
        run.close()
    assert [(each.role, each.number) for each in told] == [("worker", 1)]
    assert any(re.match(rf"syncline\.errors\.\w+: {said}", line) for line in run.story().splitlines()), run.story()
    begin = next(each for each in map(unpack, (frame.header for frame in between.heard)) if isinstance(each, Begin))
    # Bucket by bucket worker 1 has taken part in so many rounds, to the bit, and in no bucket by more than one more.
    results = [of_rounds(both, rounds) for both in range(rounds + 1)]
    taken = [rounds_in(bucket, final, results) for held in begin.view.holders for bucket in held]
    assert 0 < min(taken) <= max(taken) <= min(taken) + 1 < rounds


def rounds_in(bucket: Bucket, final: Values, results: list[Values]) -> int:
    """In how many rounds worker 1 has taken part, by the result of this bucket."""
    piece = slice(bucket.start, bucket.stop)
    found = [both for both, result in enumerate(results) if np.array_equal(result[piece], final[piece])]
    assert len(found) == 1
    return found[0]
