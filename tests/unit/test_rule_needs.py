"""Rules that need more than the update: its worker, what that worker read, norms over a bucket or table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from own_parts import Normalised, WorkerSum
from syncline.codecs import Codec, Dense, Fp16
from syncline.draw import Draw
from syncline.effects import Effect, Received, Send
from syncline.errors import PeerError, UsageError
from syncline.gates import Every
from syncline.layout import Bucket, Layout, Values
from syncline.messages import COORDINATOR, Handover, Member, Params, Pull, Push, View, server_id, worker_id
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.placement import Balanced, Elastic
from syncline.rules import DcAsgd, GapAware, Rule, Sgd, UpdateOrigin
from syncline.sim import Cluster, MadeUp, Quality, Scenario, World
from syncline.sim.compute import Trace
from syncline.sim.faults import AddServer, Fault, RemoveServer
from syncline.strategies.server.strategy import Mode, ServerStrategy
from syncline.sync import Asp, Bsp, Drop, Ssp, SyncModel

SIZE = 33
Reals = npt.NDArray[np.float64]
COMPENSATING: list[Rule] = [
    DcAsgd(0.1),
    DcAsgd(0.1, lam=2.0, m=0.95),
    DcAsgd(0.05, lam=1.0, m=0.0),
    GapAware(0.1),
    GapAware(0.05, gamma=0.5, eps=1e-3),
]


def drawn(*keys: int) -> Values:
    return Draw(3).normals(SIZE, "needs", *keys).astype(np.float32)


class ByFormula:
    """The rules' formulas in float64."""

    def __init__(self, rule: Rule) -> None:
        self.rule, self.s, self.t = rule, np.zeros(SIZE), 0

    def after(self, w: Reals, g: Reals, read: Reals, lr: float | None = None) -> Reals:
        self.t += 1
        match self.rule:
            case DcAsgd(alpha, lam, m, eps):
                if m is not None:
                    self.s = m * self.s + (1 - m) * g**2
                strength = lam if m is None else lam / np.sqrt(self.s + eps)
                return w - (lr or alpha) * (g + strength * g * g * (w - read))
            case GapAware(alpha, gamma, eps):
                self.s = gamma * self.s + (1 - gamma) * g**2
                c = (lr or alpha) * np.sqrt(self.s / (1 - gamma**self.t)) + eps
                return w - (lr or alpha) * g / (1 + np.abs(w - read) / c)
        raise AssertionError(self.rule)


@pytest.mark.parametrize("lr", [None, 0.02])
@pytest.mark.parametrize("rule", COMPENSATING, ids=str)
def test_a_rule_is_its_formula(rule: Rule, lr: float | None) -> None:
    params, expected, formula = drawn(0), drawn(0).astype(np.float64), ByFormula(rule)
    memory = rule.start(params)
    for step in range(1, 20):
        update, read = drawn(step), drawn(100 + step)
        rule.apply(params, update, memory, 5, lr, np.empty_like(params), UpdateOrigin(read=read))  # type: ignore[call-arg]
        expected = formula.after(expected, update.astype(np.float64), read.astype(np.float64), lr)
    np.testing.assert_allclose(params, expected, rtol=2e-4, atol=1e-4)


@pytest.mark.parametrize("rule", COMPENSATING, ids=str)
def test_where_nothing_has_moved_it_is_sgd(rule: Rule) -> None:
    params, plain, sgd = drawn(0), drawn(0), Sgd(rule.lr)  # type: ignore[attr-defined]
    memory = rule.start(params)
    for step in range(1, 20):
        seen = UpdateOrigin(read=params.copy())
        rule.apply(params, drawn(step), memory, 0, None, np.empty_like(params), seen)  # type: ignore[call-arg]
        sgd.apply(plain, drawn(step), {}, 0, None, np.empty_like(plain))
    assert params.tobytes() == plain.tobytes()


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: DcAsgd(0.0), "learning rate"),
        (lambda: DcAsgd(0.1, lam=-1.0), "lam must be"),
        (lambda: DcAsgd(0.1, m=1.0), "m must be in"),
        (lambda: DcAsgd(0.1, eps=0.0), "eps must be"),
        (lambda: GapAware(0.1, gamma=1.0), "gamma must be in"),
        (lambda: GapAware(0.1, eps=float("inf")), "eps must be"),
    ],
)
def test_wrong_settings_are_refused(make: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        make()


# On a server.

B = Bucket(0, 80_000)
"""Three blocks."""


class Server:
    """A shard with one bucket, and the version that each worker has."""

    def __init__(self, rule: Any, workers: int = 2, number: int = 0, reply: Codec | None = None) -> None:
        held = ((B,),) if number == 0 else ((), ())
        self.view = View(1, tuple(Member(worker, 0, 0) for worker in range(workers)), held)
        pieces = {B: np.linspace(-1, 1, B.size, dtype=np.float32)} if number == 0 else {}
        terms = ShardTerms(Asp(), rule, Dense(), Draw(0), layout=Layout.of([("w", (B.size,))]), reply=reply)
        self.node = Shard(number, pieces, terms, self.view)

    @property
    def params(self) -> Values:
        return self.node.buckets[B].params

    def push(self, worker: int, i: int, read: int, value: float = 1.0, incarnation: int = 0) -> Send:
        push = Push(self.view.view, incarnation, i, B, read)
        return self._only(Received(worker_id(worker), push, np.full(B.size, value, np.float32)))

    def pull(self, worker: int, i: int, incarnation: int = 0) -> Send:
        return self._only(Received(worker_id(worker), Pull(self.view.view, incarnation, i, B)))

    def see(self, *members: Member) -> list[Effect]:
        self.view = View(self.view.view + 1, members, self.view.holders)
        return self.node.handle(Received(COORDINATOR, self.view), 0.0)

    def _only(self, event: Received) -> Send:
        (send,) = self.node.handle(event, 0.0)
        assert isinstance(send, Send)
        assert isinstance(send.message, Params)
        return send


def dc(w: Values, g: float, read: Values, lam: float = 0.5) -> Values:
    return w - np.float32(0.1) * (g + np.float32(lam * g * g) * (w - read))


def test_a_worker_is_compensated_for_what_has_changed_since_it_read() -> None:
    server = Server(DcAsgd(0.1, lam=0.5))
    first = server.params.copy()
    server.push(0, 0, read=0)
    np.testing.assert_allclose(server.params, first - np.float32(0.1), rtol=1e-6)
    once = server.params.copy()
    server.push(1, 0, read=0, value=2.0)
    np.testing.assert_allclose(server.params, dc(once, 2.0, first), rtol=1e-5, atol=1e-6)
    twice = server.params.copy()
    server.push(0, 1, read=1)
    np.testing.assert_allclose(server.params, dc(twice, 1.0, once), rtol=1e-5, atol=1e-6)


def test_an_answer_is_a_copy_that_never_changes() -> None:
    server = Server(DcAsgd(0.1))
    payload = server.push(0, 0, read=0).payload
    assert payload is not None
    before = payload.copy()
    server.push(1, 0, read=0)
    assert np.array_equal(payload, before)


def test_a_repeat_is_answered_with_what_the_worker_was_sent_before() -> None:
    server = Server(DcAsgd(0.1))
    first = server.push(0, 0, read=0)
    server.push(1, 0, read=0)
    again = server.push(0, 0, read=0)
    assert again.message.version == first.message.version == 1
    assert np.array_equal(again.payload, first.payload)
    server.push(0, 1, read=1)  # whichever of the two has arrived


def test_workers_that_read_the_same_version_share_one_copy() -> None:
    server = Server(DcAsgd(0.1), workers=50)
    copies = server.node.buckets[B].reads
    assert copies is not None
    assert len({id(each.values) for _, each in copies.everything()}) == 1
    assert len(copies.everything()) == 50


def test_what_a_worker_cannot_have_read_is_refused() -> None:
    server = Server(DcAsgd(0.1))
    server.push(0, 0, read=0)
    server.push(1, 0, read=0)
    with pytest.raises(PeerError, match="worker 0 sent an update of version 2, but the server sent version 1 to it"):
        server.push(0, 1, read=2)


def test_a_worker_that_comes_back_has_read_what_it_pulled() -> None:
    server = Server(DcAsgd(0.1, lam=0.5))
    server.push(0, 0, read=0)
    server.see(Member(0, 0, 0), Member(1, 1, None))
    server.see(Member(0, 0, 0), Member(1, 1, 1))
    with pytest.raises(PeerError, match="the server sent nothing to it"):
        server.push(1, 1, read=0, incarnation=1)
    read = server.pull(1, 0, incarnation=1).payload.copy()
    server.push(0, 1, read=1)
    now = server.params.copy()
    server.push(1, 2, read=1, incarnation=1)
    np.testing.assert_allclose(server.params, dc(now, 1.0, read), rtol=1e-5, atol=1e-6)
    server.see(Member(0, 0, 0))
    assert [worker for worker, _ in server.node.buckets[B].reads.everything()] == [0]


def test_the_copies_move_with_the_bucket_and_are_cut_with_it() -> None:
    old, new, stays = (Server(DcAsgd(0.1, lam=0.5), number=number) for number in (0, 1, 0))
    for each in (old, stays):
        each.push(0, 0, read=0)
    left, right = Bucket(0, 30_000), Bucket(30_000, B.size)
    view = View(2, old.view.members, ((left,), (right,)))
    (sent,) = [e for e in old.node.handle(Received(COORDINATOR, view), 0.0) if isinstance(e.message, Handover)]
    assert len(sent.message.reads) == 2
    new.node.handle(Received(COORDINATOR, view), 0.0)
    new.node.handle(Received(server_id(0), sent.message, sent.payload), 0.0)
    for worker, read in ((1, 0), (0, 1)):
        stays.push(worker, 1, read=read, value=2.0)
        for piece, node in ((left, old.node), (right, new.node)):
            update = np.full(piece.size, 2.0, np.float32)
            node.handle(Received(worker_id(worker), Push(2, 0, 1, piece, read), update), 0.0)
    moved = np.concatenate([old.node.buckets[left].params, new.node.buckets[right].params])
    assert moved.tobytes() == stays.params.tobytes()


def test_with_a_reply_codec_the_copy_is_what_the_worker_really_has() -> None:
    server = Server(DcAsgd(0.1, lam=0.5), reply=Fp16())
    server.node.all_hold(server.view.members)
    server.push(0, 0, read=0)
    copies = server.node.buckets[B].reads
    assert copies is not None
    held = copies.of((0, 0))
    assert held is not None
    assert held.version == 1
    assert not np.array_equal(held.values, server.params), "half precision loses bits"
    np.testing.assert_allclose(held.values, server.params, atol=1e-3)


def test_a_rule_gets_the_number_of_the_worker() -> None:
    server = Server(WorkerSum(), workers=3)
    before = server.params.copy()
    for worker in (2, 0, 1, 2):
        server.push(worker, 0 if worker != 2 else int(server.node.buckets[B].version), read=0)
    np.testing.assert_allclose(server.params, before + 3 + 1 + 2 + 3, rtol=1e-6)


def test_norms_are_over_the_whole_bucket() -> None:
    server = Server(Normalised(0.1))
    before = server.params.copy()
    server.push(0, 0, read=0, value=3.0)
    size = np.linalg.norm(before.astype(np.float64)) / (3.0 * np.sqrt(B.size))
    np.testing.assert_allclose(server.params, before - np.float32(0.1 * size * 3.0), rtol=1e-5)


# In the simulator.


class Rough:
    """A model whose updates depend on its parameters."""

    always_finite = True
    layout = Layout.of([("a", (7,)), ("b", (30,)), ("c", (1,)), ("d", (4, 5))])
    optimizer = Sgd(0.1)

    def start(self, buckets: Sequence[Bucket]) -> list[Values]:
        self.buckets = buckets
        return self.cut(np.sin(np.arange(self.layout.size, dtype=np.float32)))

    def cut(self, whole: Values) -> list[Values]:
        return [whole[bucket.start : bucket.stop].copy() for bucket in self.buckets]

    @staticmethod
    def of(whole: Any, worker: int, iteration: int) -> Any:
        return np.sin(whole * (7 + worker) + iteration) + np.roll(whole, 1) / 3

    def gradient(self, pieces: Sequence[Values], worker: int, iteration: int) -> list[Values]:
        whole = np.concatenate(pieces)
        return self.cut(self.of(whole, worker, iteration).astype(np.float32))

    def quality(self, pieces: Sequence[Values]) -> Quality | None:
        return None


ROWS = ((1.0, 1.1, 0.7, 1.3), (0.45, 2.05, 1.15, 0.35), (3.03, 0.31, 0.29, 1.5))
"""The compute times of three workers, in seconds. No two workers finish a step at the same time."""


def by_hand(rule: Rule) -> Reals:
    """The algorithm as the papers have it, with one whole vector and a copy per worker."""
    w = np.sin(np.arange(58, dtype=np.float32)).astype(np.float64)
    reads, formula = [w] * len(ROWS), ByFormula(rule)
    formula.s = np.zeros(58)
    ends = [(sum(row[: i + 1]), worker, i) for worker, row in enumerate(ROWS) for i in range(len(row))]
    for _, worker, i in sorted(ends):
        w = formula.after(w, Rough.of(reads[worker], worker, i), reads[worker])
        reads[worker] = w
    return w


def simulated(rule: Rule, *faults: Fault, servers: int = 2, **options: Any) -> Any:
    strategy = ServerStrategy((Asp(),) * servers, mode=Mode.RULE, rule=rule, bucket_values=9, **options)
    return World(Scenario(Cluster(3, Trace(ROWS)), strategy, 4, faults=faults), Rough()).run()


MOVES = (AddServer(0.5), RemoveServer(1.7, 0), AddServer(2.6), RemoveServer(3.4, 1))


@pytest.mark.parametrize("rule", COMPENSATING, ids=str)
def test_a_run_is_the_algorithm_of_the_paper(rule: Rule) -> None:
    outcome = simulated(rule)
    np.testing.assert_allclose(outcome.model_vector(), by_hand(rule), rtol=1e-3, atol=1e-4)
    assert simulated(rule, *MOVES).model_vector().tobytes() == outcome.model_vector().tobytes()


def test_norms_over_a_table_are_those_of_the_table() -> None:
    """Of any size of the buckets, on any number of servers, also when servers come and go."""
    rule = Normalised(0.1, "table-norms")
    alone = simulated(rule, servers=1, placement=Balanced()).model_vector().tobytes()
    assert simulated(rule, placement=Balanced()).model_vector().tobytes() == alone
    assert simulated(rule, *MOVES, placement=Balanced()).model_vector().tobytes() == alone
    with pytest.raises(UsageError, match="needs norms over whole tables, but 'elastic' splits table 'b'"):
        simulated(rule, placement=Elastic())


# What cannot work is refused before anything runs.


@dataclass(frozen=True)
class Wishful(Sgd):
    needs = ("reads",)


@dataclass(frozen=True)
class Word(Sgd):
    needs = "read"


@dataclass(frozen=True)
class NoNeeds(Sgd):
    needs = None


@pytest.mark.parametrize(
    ("rule", "sync", "more", "problem"),
    [
        (DcAsgd(0.1), Bsp(), {}, "needs to know this of each update: read. But under 'bsp' the servers"),
        (GapAware(0.1), Ssp(0), {}, "under 'ssp:0' the servers apply"),
        (WorkerSum(), Drop(2), {}, "needs to know this of each update: worker. But under 'drop:2'"),
        (DcAsgd(0.1), Asp(), {"gate": Every(push=2)}, "with the gate 'every:2' an update can be a sum"),
        (Wishful(0.1), Asp(), {}, "a rule cannot need 'reads'; it can need worker, read, bucket-norms"),
        (Word(0.1), Asp(), {}, r"needs must be a tuple of names, such as \('read',\), not 'read'"),
        (NoNeeds(0.1), Asp(), {}, "needs must be a tuple of names"),
    ],
)
def test_what_cannot_work_is_refused(rule: Any, sync: SyncModel, more: dict[str, Any], problem: str) -> None:
    strategy = ServerStrategy((sync,), mode=Mode.RULE, rule=rule, **more)
    with pytest.raises(UsageError, match=problem):
        World(Scenario(Cluster(3), strategy, 4), MadeUp(100, Draw(0)))


def test_a_change_to_a_model_that_applies_at_the_close_is_refused() -> None:
    strategy = ServerStrategy((Asp(),), mode=Mode.RULE, rule=DcAsgd(0.1))
    with pytest.raises(UsageError, match="But under 'bsp' the servers apply the updates of a round together"):
        strategy.changed({"sync": "bsp"}, 3)
    assert strategy.changed({"sync": "ssp:3"}, 3).sync == (Ssp(3),)


def test_the_costs_are_told() -> None:
    strategy = ServerStrategy((Asp(),), mode=Mode.RULE, rule=GapAware(0.1))
    assert strategy.costs(4) == (
        "rule gap-aware:0.1 keeps its state on the servers: 2 x the model",
        "rule gap-aware:0.1 needs read, which costs memory on the servers: a copy of the parameters for each worker, "
        "4 x the model",
    )
    assert ServerStrategy(mode=Mode.RULE, rule=Sgd(0.1)).costs(4) == ()
