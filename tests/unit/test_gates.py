"""Gates in a worker: what they are offered, what they decide, and what is held back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Depart, Ready, Received, Send
from syncline.errors import PeerError, UsageError
from syncline.gates import Bandwidth, Budget, Cached, Every, Gate, Offer, Significance
from syncline.layout import Bucket, Layout, Values
from syncline.messages import Member, Params, Push, Skipped, Taken, View, Wants, server_id
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.sim import Cluster, MadeUp, Scenario, World
from syncline.sim.compute import Lognormal
from syncline.spec import parse
from syncline.strategies.server.strategy import ServerStrategy, settle_mode

BUCKET = Bucket(0, 4)
VIEW = View(0, (Member(0, 0, 0),), ((BUCKET,),))


@dataclass(frozen=True)
class Noting:
    """Sends what is larger than a limit, and notes all offers."""

    limit: float
    offers: list[Offer]

    def sends(self, offer: Offer) -> bool:
        self.offers.append(offer)
        return offer.update is not None and float(np.abs(offer.update).max()) > self.limit

    def fetches(self, offer: Offer) -> bool:
        return self.sends(offer)


def pushes(gate: Gate, updates: list[float]) -> list[Push]:
    """What a worker with this gate sends for updates of these sizes, each answered at once."""
    node = Worker(0, 0, WorkerParts(Layout.of([("w", (4,))]), Draw(0), gate=gate), VIEW)
    found: list[Push] = []
    for i, size in enumerate(updates):
        (send,) = node.handle(Ready(BUCKET, np.full(4, size, np.float32)), 0.0)
        assert isinstance(send, Send)
        assert isinstance(send.message, Push)
        found.append(send.message)
        kind = Params if send.message.wants is Wants.PARAMS else Taken
        answer = kind(0, 0, i, BUCKET, i + 1, i + 1)
        node.handle(Received(server_id(0), answer, np.zeros(4, np.float32) if kind is Params else None), 0.0)
    return found


@pytest.mark.parametrize("s", [0, 1, 3])
def test_cached_sends_and_fetches_before_the_copy_is_too_old(s: int) -> None:
    found = pushes(Cached(s), [1.0] * 12)
    assert [not push.empty for push in found] == [(i + 1) % (s + 1) == 0 for i in range(12)]
    assert [push.wants is Wants.PARAMS for push in found] == [not push.empty for push in found]
    read = [push.read for push in found if not push.empty]
    assert read == [round * (s + 1) for round in range(len(read))]


def test_a_gate_is_offered_all_that_was_held_back() -> None:
    gate = Noting(2.5, [])
    found = pushes(gate, [1.0, 1.0, 1.0, 1.0])
    assert [push.empty for push in found] == [True, True, False, True]
    offered = [(offer.i, offer.age, float(offer.update[0])) for offer in gate.offers[::2] if offer.update is not None]
    assert offered == [(0, 1, 1.0), (1, 2, 2.0), (2, 3, 3.0), (3, 1, 1.0)]


@pytest.mark.parametrize("sync", ["ssp:2", "asp", "drop:2"])
def test_cached_is_every_where_nobody_joins(sync: str) -> None:
    def trace(gate: Gate) -> str:
        model = parse("sync", sync)
        mode, rule = settle_mode(None, None, (model,))
        strategy = ServerStrategy((model,), mode=mode, rule=rule, gate=gate)
        world = World(Scenario(Cluster(3, Lognormal(0.1, 0.5), None), strategy, 20), MadeUp(100, Draw(0)))
        world.run()
        return world.trace.sha256()

    if sync == "drop:2":  # a late worker skips iterations, so that their numbers say nothing about age
        assert trace(Cached(0)) == trace(Every(1, 1))
    else:
        assert trace(Cached(2)) == trace(Every(3, 3))


# Two tables in three buckets: the first table's two, and the second's.

LAYOUT = Layout.of([("a", (8,)), ("b", (4,))])
A, REST, B = Bucket(0, 6), Bucket(6, 8), Bucket(8, 12)
BUCKETS = (A, REST, B)


class Hand:
    """A worker with a gate, whose shard is the test: every push is answered at once, with these means."""

    def __init__(self, gate: Gate, seed: int = 0) -> None:
        self.node = Worker(
            0, 0, WorkerParts(LAYOUT, Draw(seed), gate=gate), View(0, (Member(0, 0, 0),), ((A, REST), (B,)))
        )
        self.sent = np.zeros(12, np.float32)

    def ready(self, bucket: Bucket, update: Values | None = None, params: Values | None = None) -> Push:
        update = np.ones(bucket.size, np.float32) if update is None else update
        (send,) = self.node.handle(Ready(bucket, update, None, params), 0.0)
        assert isinstance(send, Send)
        assert isinstance(send.message, Push)
        if send.payload is not None:
            self.sent[bucket.start : bucket.stop] += send.payload
        return send.message

    def answer(self, push: Push, mean: float | None = None) -> None:
        kind = Params if push.wants is Wants.PARAMS else Taken
        source = server_id(0 if push.bucket.start < 8 else 1)
        said = () if mean is None else (mean,)
        answer = kind(0, 0, push.progress, push.bucket, push.progress + 1, push.progress + 1, False, said)
        payload = np.zeros(push.bucket.size, np.float32) if kind is Params else None
        self.node.handle(Received(source, answer, payload), 0.0)

    def iterate(self, *means: float | None) -> tuple[list[bool], list[bool]]:
        """One iteration: which of the buckets were sent, and which are fetched."""
        pushes = [self.ready(bucket) for bucket in BUCKETS]
        for push, mean in zip(pushes, means or (None,) * 3, strict=True):
            self.answer(push, mean)
        return [not push.empty for push in pushes], [push.wants is Wants.PARAMS for push in pushes]


# B-FASGD.


def test_for_the_whole_model_all_buckets_go_or_stay_together() -> None:
    hand = Hand(Bandwidth(push=1.0, fetch=1.0))
    found = [hand.iterate(0.5, 3.0, 1.0) for _ in range(60)]
    assert {tuple(sent) for sent, _ in found} == {(True,) * 3, (False,) * 3}
    assert {tuple(fetched) for _, fetched in found} == {(True,) * 3, (False,) * 3}
    assert any(sent != fetched for sent, fetched in found), "one draw for both"


def test_per_table_each_table_goes_or_stays_by_itself() -> None:
    hand = Hand(Bandwidth(push=1.0, per="table"))
    found = {tuple(hand.iterate(0.5, 3.0, 1.0)[0]) for _ in range(60)}
    assert found == {(a, a, b) for a in (True, False) for b in (True, False)}


@pytest.mark.parametrize(
    ("gate", "mean"),
    [
        (Bandwidth(push=0.5), (6 * 0.25 + 2 * 1.0 + 4 * 0.5) / 12),
        (Bandwidth(push=3.0), (6 * 0.25 + 2 * 1.0 + 4 * 0.5) / 12),
        (Bandwidth(push=3.0, per="table"), (6 * 0.25 + 2 * 1.0) / 8),
    ],
    ids=str,
)
def test_the_larger_the_deviation_the_more_is_sent(gate: Bandwidth, mean: float) -> None:
    """Equation 9, over 2,000 iterations; table `a` is in the first two buckets."""
    hand = Hand(gate)
    sent = [hand.iterate(0.25, 1.0, 0.5)[0][0] for _ in range(2000)]
    expected = 1 / (1 + gate.push / (mean + gate.eps))
    assert sum(sent[1:]) / 1999 == pytest.approx(expected, abs=0.04)


def test_before_the_first_answer_the_deviation_is_one() -> None:
    first = [Hand(Bandwidth(push=1.0), seed).ready(A).empty for seed in range(2000)]
    assert sum(first) / 2000 == pytest.approx(0.5, abs=0.04)


def test_what_comes_in_the_middle_of_an_iteration_counts_from_the_next_on() -> None:
    """Otherwise the two halves of the model would be judged by different figures."""
    for seed in range(20):
        hand = Hand(Bandwidth(push=1.0), seed)
        first = hand.ready(A)
        hand.answer(first, 1e-12)
        assert hand.ready(REST).empty == first.empty


@pytest.mark.parametrize("mean", [float("nan"), float("inf"), -1.0])
def test_an_invalid_mean_is_an_error_of_the_server(mean: float) -> None:
    hand = Hand(Bandwidth(push=1.0))
    with pytest.raises(PeerError, match="with an invalid mean"):
        hand.answer(hand.ready(A), mean)


# Significance.


def test_a_bucket_is_sent_once_its_update_is_significant() -> None:
    """|w| = 10, t = 0.25: three updates of size 1 add up to 3 > 2.5. Parameters are always fetched."""
    hand, params, update = Hand(Significance(0.25)), np.zeros(4, np.float32), np.zeros(4, np.float32)
    params[1], update[2] = 10, 1
    found = []
    for _ in range(6):
        push = hand.ready(B, update, params)
        found.append((push.empty, push.skipped, push.wants))
        for bucket in (A, REST):
            hand.answer(hand.ready(bucket))
        hand.answer(push)
    held, sent = (True, Skipped.HELD, Wants.PARAMS), (False, Skipped.NOTHING, Wants.PARAMS)
    assert found == [held, held, sent] * 2


def test_where_there_is_nothing_to_compare_with_anything_is_significant() -> None:
    assert not Hand(Significance(1e6)).ready(A, params=np.zeros(6, np.float32)).empty
    assert not Hand(Significance(1e6)).ready(A, params=None).empty


# A budget. A value takes 4 bytes: the buckets cost 48, 16 and 32 both ways.


def test_a_budget_is_not_exceeded_and_nothing_of_it_is_lost() -> None:
    hand, spent = Hand(Budget(40)), 0
    for turn in range(1, 60):
        sent, fetched = hand.iterate(1.0, 1.0, 1.0)
        assert sent == fetched
        spent += sum(8 * bucket.size for bucket, there in zip(BUCKETS, sent, strict=True) if there)
        assert spent <= 40 * turn
    assert spent > 40 * 59 - 48, "what is saved is spent as soon as it is enough for the largest"


def test_every_bucket_gets_a_turn_however_low_its_priority() -> None:
    hand, last = Hand(Budget(24)), dict.fromkeys(BUCKETS, 0)
    longest = 0
    for turn in range(1, 400):
        sent, _ = hand.iterate(1.0, 0.1, 0.01)
        for bucket, there in zip(BUCKETS, sent, strict=True):
            last[bucket] = turn if there else last[bucket]
            longest = max(longest, turn - last[bucket])
    assert min(last.values()) > 0
    assert longest < 300


def test_a_budget_goes_to_what_becomes_stale_soonest() -> None:
    """The last bucket's deviation is eight times that of the others, so at equal age it comes first."""
    hand, often = Hand(Budget(32)), [0, 0, 0]
    for _ in range(600):
        sent, _ = hand.iterate(0.1, 0.1, 0.8)
        often = [count + there for count, there in zip(often, sent, strict=True)]
    assert often[2] > 4 * often[0]


def test_without_statistics_the_size_of_the_last_update_counts() -> None:
    hand, often = Hand(Budget(32)), {A: 0, B: 0}
    for _ in range(400):
        pushes = [hand.ready(A), hand.ready(REST), hand.ready(B, np.full(4, 9, np.float32))]
        for push in pushes:
            hand.answer(push)
        for push in pushes[::2]:
            often[push.bucket] += not push.empty
    assert often[B] > 4 * often[A]


def test_a_budget_of_fetches_sends_every_update() -> None:
    hand, fetched = Hand(Budget(24, of="fetch")), 0
    for turn in range(1, 50):
        sent, asked = hand.iterate(1.0, 1.0, 1.0)
        assert all(sent)
        fetched += sum(4 * bucket.size for bucket, there in zip(BUCKETS, asked, strict=True) if there)
        assert fetched <= 24 * turn
    assert fetched > 24 * 49 - 24


# What is held back.

HOLDING: list[Gate] = [
    Every(push=3, fetch=2),
    Cached(2),
    Bandwidth(push=3.0, fetch=3.0),
    Bandwidth(push=3.0, per="table"),
    Significance(3.0),
    Budget(24),
    Budget(24, of="fetch"),
]


@pytest.mark.parametrize("gate", HOLDING, ids=str)
def test_nothing_is_lost_what_is_sent_and_what_is_held_are_all_updates(gate: Gate) -> None:
    hand, given = Hand(gate), np.zeros(12, np.float32)
    held_back = 0
    for i in range(40):
        pushes = []
        for bucket in BUCKETS:
            update = Draw(1).values(bucket.size, "update", i, bucket.start)
            given[bucket.start : bucket.stop] += update
            memory = update.copy()
            pushes.append(hand.ready(bucket, memory, np.ones(bucket.size, np.float32)))
            memory.fill(np.nan)  # what is held back is not the application's memory
        held_back += sum(push.empty for push in pushes)
        for push in pushes:
            hand.answer(push, 1.0)
        whole = hand.sent.copy()
        gating = hand.node._gating
        assert gating is not None
        for bucket, (values, _) in gating.held.items():
            whole[bucket.start : bucket.stop] += values
        assert whole.tobytes() == given.tobytes()
    assert held_back > 0 or gate == Budget(24, of="fetch")


def test_what_is_held_back_leaves_with_its_worker() -> None:
    hand = Hand(Every(push=9))
    hand.iterate()
    hand.iterate()
    rest = [effect for effect in hand.node.handle(Depart(), 0.0) if isinstance(effect, Send)]
    assert [(send.payload is not None and float(send.payload[0])) for send in rest] == [2.0] * 3
    assert {send.message.wants for send in rest if isinstance(send.message, Push)} == {Wants.NOTHING}


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Bandwidth(push=-1.0), "push must be at least 0"),
        (lambda: Bandwidth(fetch=float("nan")), "fetch must be at least 0"),
        (lambda: Bandwidth(eps=0.0), "eps must be above 0"),
        (lambda: Bandwidth(per="row"), "per must be model or table"),  # type: ignore[arg-type]
        (lambda: Bandwidth(on_skip="forget"), "on_skip must be accumulate or reapply"),  # type: ignore[arg-type]
        (lambda: Every(2, on_skip="forget"), "on_skip must be accumulate or reapply"),  # type: ignore[arg-type]
        (lambda: Significance(-0.1), "t must be at least 0"),
        (lambda: Significance(float("inf")), "t must be at least 0"),
        (lambda: Budget(0), "bytes must be at least 1"),
        (lambda: Budget(10, of="push"), "of must be both or fetch"),  # type: ignore[arg-type]
        (lambda: Budget(10, eps=0.0), "eps must be above 0"),
    ],
)
def test_what_is_out_of_range_is_refused(make: Callable[[], Gate], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        make()
