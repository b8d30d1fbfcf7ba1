"""A server and its workers in one process: which worker is let in, and what any frame of a worker can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf, nan
from typing import Any

import numpy as np
import pytest

from hostile import every_message, variants
from peers import Peer, any_payload
from syncline.engines.net import tokens
from syncline.engines.net.control import Begin, Declared, Hello, NodeAddress, Refused, Seed, Stop
from syncline.engines.net.frames import PREFIX, Frame, pack, unpack
from syncline.engines.net.wiring import Wiring
from syncline.engines.server import held_model
from syncline.engines.server.process import ServerProcess
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket
from syncline.messages import Gone, Member, Params, Push, Skipped, View, Wants
from syncline.strategies.settings import defaults

WHOLE = Bucket(0, 207)
TABLES = (Declared("w", (207,)),)
MEMBERS = (Member(0, 0, 0), Member(1, 0, 0), Member(2, 0, 0))
OWN = 2
"""Workers 0 and 1 were started with the run; worker 2 has joined."""

SECRET = "what only servers know"


class Store:
    """A server with one bucket, which its leader has seeded with zeros."""

    def __init__(self, peer: Callable[[], Peer], **settings: str) -> None:
        self._peer = peer
        self.coordinator = peer()
        self.process = ServerProcess(0, Wiring(run="run"))
        self.process._coordinator[self.coordinator.wire] = None
        words = {**defaults(), "sync": "asp", "mode": "changes", "rule": "add", **settings}
        place = NodeAddress("here", "@here", "")
        begin = Begin(TABLES, words, View(0, MEMBERS, ((WHOLE,),)), (place,), 0, word=SECRET, own_workers=OWN)
        self.process.frame(self.coordinator.wire, begin, None)
        self.leader = self.connect(0)
        self.send(self.leader, Seed(WHOLE), bytes(WHOLE.size * VALUE_BYTES))

    @property
    def held(self) -> held_model.HeldModel:
        return self.process._models["model"]

    @property
    def params(self) -> np.ndarray:
        assert self.held._keeper is not None
        return self.held._keeper.params()[WHOLE]

    def hello(self, number: int, incarnation: int = 0, **fields: str) -> Hello:
        word = tokens.server_pass(SECRET, number, incarnation)
        return Hello("run", "worker", number, incarnation, **{"word": word, **fields})

    def connect(self, number: int, incarnation: int = 0, **fields: str) -> Peer:
        made = self._peer()
        self.send(made, self.hello(number, incarnation, **fields))
        return made

    def send(self, peer: Peer, message: Frame, payload: bytes = b"") -> None:
        """Hand a frame to the server as its event loop does, and close the connection if it breaks the protocol."""
        process = self.process
        try:
            message = unpack(pack(message)[PREFIX.size :])
            place = process.sink(peer.wire, message, len(payload)) if payload else None
            if place is not None:
                place[:] = payload
            process.frame(peer.wire, message, place)
        except PeerError as error:
            process.broke(peer.wire, error)

    def push(self, peer: Peer, values: np.ndarray, progress: int = 0, **fields: Any) -> None:
        self.send(peer, Push(0, 0, progress, WHOLE, 0, **fields), values.astype(np.float32).tobytes())

    def is_open(self, peer: Peer) -> bool:
        return peer.wire.fileno() >= 0


@pytest.fixture
def store(peer: Callable[[], Peer]) -> Store:
    return Store(peer)


def ones(value: float = 1.0) -> np.ndarray:
    return np.full(WHOLE.size, value, np.float32)


# Who is let in.


def test_a_worker_shows_the_pass_that_the_coordinator_gave_to_it(store: Store) -> None:
    for word in ("", SECRET, tokens.server_pass(SECRET, 2, 0), tokens.server_pass(SECRET, 1, 1), "0" * 32):
        refused = store.connect(1, word=word)
        assert refused.heard() == [Refused("worker 1 did not show the pass that the coordinator gave to it")]
        assert not store.is_open(refused)
    assert store.is_open(store.connect(1))


def test_invented_incarnations_are_not_let_in(store: Store) -> None:
    known = tokens.server_pass(SECRET, 2, 0)
    for incarnation in range(1, 40):
        assert not store.is_open(store.connect(2, incarnation, word=known))
    assert list(store.held.workers) == [(0, 0)]


def test_a_new_incarnation_takes_the_place_of_the_old_one(store: Store) -> None:
    old = store.connect(2)
    new = store.connect(2, 1)
    assert not store.is_open(old)
    assert store.is_open(new)
    assert sorted(store.held.workers) == [(0, 0), (2, 1)]


def test_who_has_never_been_in_a_view_writes_nothing(store: Store) -> None:
    """Except a few, whose view may be in flight; a push without an update is answered."""
    for number in range(10, 10 + 2 * held_model.MOST_EARLY_WRITERS):
        guest = store.connect(number)
        store.push(guest, ones())
        assert not store.is_open(guest)
    asks = store.connect(40)
    store.send(asks, Push(0, 0, 0, WHOLE, 0, empty=True))
    assert [type(each) for each in asks.heard()] == [Gone]
    early = [store.connect(50 + number) for number in range(held_model.MOST_EARLY_WRITERS + 3)]
    for guest in early:
        store.send(guest, Push(7, 0, 0, WHOLE, 0), ones().tobytes())
    assert sum(map(store.is_open, early)) == held_model.MOST_EARLY_WRITERS


def test_the_number_of_workers_that_were_never_members_is_limited(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held_model, "MOST_GUESTS", 5)
    guests = [store.connect(number) for number in range(10, 20)]
    assert sum(map(store.is_open, guests)) == 5
    assert store.is_open(store.connect(1)), "a member is let in"


# NaN.


@pytest.mark.parametrize("bad", [nan, inf, -inf])
@pytest.mark.parametrize("where", [0, 100, 206])
def test_nan_from_a_worker_that_joined_reaches_nobody_under_asp(store: Store, bad: float, where: int) -> None:
    honest, hostile = store.connect(1), store.connect(2)
    store.push(honest, ones(3.0))
    update = ones()
    update[where] = bad
    store.push(hostile, update)
    assert not store.is_open(hostile)
    assert np.isfinite(store.params).all()
    assert np.array_equal(store.params, ones(1.0))
    store.push(honest, ones(3.0), 1)
    assert store.is_open(honest)
    assert np.array_equal(store.params, ones(2.0))


def test_nan_is_left_out_of_a_round(peer: Callable[[], Peer]) -> None:
    """The others' updates of that round count, and the sender is dropped."""
    store = Store(peer, sync="bsp")
    honest, hostile = store.connect(1), store.connect(2)
    update = ones()
    update[5] = nan
    store.push(hostile, update)
    store.push(honest, ones(3.0))
    assert np.array_equal(store.params, ones(0.0))
    store.push(store.leader, ones(6.0))
    assert not store.is_open(hostile)
    assert np.array_equal(store.params, ones(3.0))


def test_large_values_are_no_nan(store: Store) -> None:
    """Their squares are infinite."""
    joined = store.connect(2)
    store.push(joined, ones(3e30))
    assert store.is_open(joined)
    assert np.array_equal(store.params, ones(3e30) / np.float32(3))


# Every frame.


def messages() -> Iterator[Frame]:
    """Every message that a member can send, with all fields written."""
    yield from every_message("run", "here", 1)
    for wants in Wants:
        yield Push(0, 0, 1, WHOLE, 1, wants, 0.5, True, 1, 1, Skipped.HELD)
    yield Push(0, 0, 1, WHOLE, 1, Wants.PARAMS, 0.5, False, 100, 1)


@pytest.mark.parametrize("settings", [{}, {"reply_codec": "int8"}, {"sync": "bsp"}, {"codec": "topk:0.5"}], ids=str)
def test_no_frame_of_a_member_does_more_than_close_its_connection(
    peer: Callable[[], Peer], settings: dict[str, str]
) -> None:
    """Field by field, with values at the edges of all ranges: the server neither dies nor loses another worker."""
    store = Store(peer, **settings)
    honest, tried, incarnation = store.connect(1), 0, 0
    member = store.connect(2)
    for message in messages():
        for header in variants(message):
            if not store.is_open(member):
                member.close()
                store.held.workers.pop((2, incarnation), None)
                member = store.connect(2)
            try:
                decoded = unpack(header)
            except PeerError:
                continue
            tried += 1
            for payload in (b"", ones().tobytes()):
                if store.is_open(member):
                    store.send(member, decoded, payload)
                    member.heard(any_payload)
    assert tried > 300
    assert store.is_open(honest)
    assert np.isfinite(store.params).all()
    honest.heard(any_payload)
    store.push(honest, ones(), 3)
    if settings.get("sync") != "bsp":
        assert [type(each) for each in honest.heard(any_payload)] == [Params]
    store.process.frame(store.coordinator.wire, Stop(), None)
    assert store.process.over
