"""`on_skip=reapply`: where a gate skips an update, the shard applies that worker's last one again."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.codecs import Dense, Fp16
from syncline.draw import Draw
from syncline.effects import Change, Ready, Received, Send
from syncline.gates import Bandwidth, Every
from syncline.layout import Bucket, Layout, Values
from syncline.messages import COORDINATOR, Handover, Member, Params, Push, Skipped, Taken, View, Wants, worker_id
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.rules import Fasgd, Sasgd, Sgd
from syncline.sync import Asp, Bsp, Drop, SyncModel

B, LEFT, RIGHT = Bucket(0, 4), Bucket(0, 2), Bucket(2, 4)
GATE = Every(push=2, on_skip="reapply")
TWO = (Member(0, 0, 0), Member(1, 0, 0))


def shard(model: SyncModel, rule: Sgd | Sasgd | Fasgd | None = None, members: tuple[Member, ...] = TWO) -> Shard:
    terms = ShardTerms(model, rule or Sgd(1.0), Dense(), Draw(0), gate=GATE)
    return Shard(0, {B: np.zeros(4, np.float32)}, terms, View(0, members, ((B,),)))


def push(node: Shard, worker: int, i: int, value: float | None, read: int = 0, incarnation: int = 0) -> None:
    """An update of this value everywhere; None: skipped. Its memory is the worker's again at once."""
    payload = None if value is None else np.full(4, value, np.float32)
    skipped = Skipped.AGAIN if value is None else Skipped.NOTHING
    message = Push(node.terms.view, incarnation, i, B, read, empty=value is None, skipped=skipped)
    node.handle(Received(worker_id(worker), message, payload), 0.0)
    if payload is not None and not node.terms.at_close:
        payload.fill(np.nan)


def value(node: Shard) -> float:
    (bucket,) = node.buckets.values()
    assert (bucket.params == bucket.params[0]).all()
    return float(bucket.params[0])


def test_a_worker_sends_only_its_progress_and_holds_nothing() -> None:
    worker = Worker(0, 0, WorkerParts(Layout.of([("w", (4,))]), Draw(0), gate=GATE), View(0, TWO[:1], ((B,),)))
    sends = []
    for i in range(4):
        (send,) = worker.handle(Ready(B, np.full(4, i + 1, np.float32)), 0.0)
        assert isinstance(send, Send)
        sends.append((send.message, None if send.payload is None else float(send.payload[0])))
        worker.handle(Received(send.to, Params(0, 0, i, B, i + 1, i + 1), np.zeros(4, np.float32)), 0.0)
    assert sends == [
        (Push(0, 0, 0, B, 0, empty=True, skipped=Skipped.AGAIN), None),
        (Push(0, 0, 1, B, 1), 2.0),
        (Push(0, 0, 2, B, 2, empty=True, skipped=Skipped.AGAIN), None),
        (Push(0, 0, 3, B, 3), 4.0),
    ]


def test_on_arrival_the_last_update_counts_again_as_stale_as_it_is_by_then() -> None:
    """sasgd:1: 8 at staleness 0; 2 of the other; then 8 again, read at 0, at version 2: 8 / 2."""
    node = shard(Asp(), Sasgd(1.0))
    push(node, 0, 0, 8.0)
    push(node, 1, 0, 2.0, read=1)
    assert value(node) == -10
    push(node, 0, 1, None, read=1)
    assert value(node) == -14
    push(node, 0, 2, 16.0, read=3)
    push(node, 0, 3, None, read=3)
    assert value(node) == -14 - 16 - 16
    assert node.buckets[B].version == 5


def test_a_repeat_is_not_applied_a_third_time() -> None:
    node = shard(Asp())
    push(node, 0, 0, 1.0)
    push(node, 0, 1, None)
    push(node, 0, 1, None)
    assert value(node) == -2


def test_a_worker_that_has_sent_nothing_yet_adds_nothing() -> None:
    node = shard(Asp())
    push(node, 0, 0, None)
    assert (value(node), node.buckets[B].version) == (0, 0)


def test_a_joiner_has_no_last_update() -> None:
    node = shard(Asp())
    push(node, 0, 0, 1.0)
    node.handle(Received(COORDINATOR, View(1, TWO[1:], ((B,),))), 0.0)
    node.handle(Received(COORDINATOR, View(2, (Member(0, 1, 1), TWO[1]), ((B,),))), 0.0)
    push(node, 0, 1, None, incarnation=1)
    assert value(node) == -1


@pytest.mark.parametrize("model", [Bsp(), Drop(2)], ids=str)
def test_at_the_close_it_counts_as_the_update_of_that_round(model: SyncModel) -> None:
    node = shard(model)
    push(node, 0, 0, 2.0)
    push(node, 1, 0, 4.0)
    assert value(node) == -3
    push(node, 0, 1, None)
    push(node, 1, 1, 8.0)
    assert value(node) == -3 - (2 + 8) / 2
    push(node, 0, 2, None)
    push(node, 1, 2, None)
    assert value(node) == -3 - 5 - 5


def test_what_was_kept_stays_when_the_model_changes() -> None:
    node = shard(Asp())
    push(node, 0, 0, 1.0)
    push(node, 1, 0, 1.0)
    node.handle(Change(Bsp()), 0.0)
    push(node, 0, 1, None)
    push(node, 1, 1, 3.0)
    assert value(node) == -2 - (1 + 3) / 2
    node.handle(Change(Asp()), 0.0)
    push(node, 1, 2, None)
    assert value(node) == -4 - 3


@pytest.mark.parametrize("codec", [Dense(), Fp16()], ids=str)
def test_the_last_update_moves_with_its_bucket_and_is_cut_with_it(codec: Dense | Fp16) -> None:
    node, other = (
        Shard(number, pieces, ShardTerms(Asp(), Sgd(1.0), codec, Draw(0), gate=GATE), View(0, TWO, ((B,), ())))
        for number, pieces in ((0, {B: np.zeros(4, np.float32)}), (1, {}))
    )
    update = np.array([1, 2, 3, 4], np.float32)
    payload = codec.encode(update, codec.memory(4), np.empty(16, np.uint8), lambda: Draw(0).generator("x"))
    size = payload.nbytes if payload.dtype == np.uint8 else 0
    node.handle(Received(worker_id(0), Push(0, 0, 0, B, 0, size=size), payload), 0.0)
    view = View(1, TWO, ((LEFT,), (RIGHT,)))
    other.handle(Received(COORDINATOR, view), 0.0)
    for effect in node.handle(Received(COORDINATOR, view), 0.0):
        if isinstance(effect, Send) and isinstance(effect.message, Handover):
            assert [(last.worker, last.read) for last in effect.message.last] == [(0, 0)]
            other.handle(Received(worker_id(0), effect.message, effect.payload), 0.0)
    for holder, bucket in ((node, LEFT), (other, RIGHT)):
        again = Push(1, 0, 1, bucket, 0, empty=True, skipped=Skipped.AGAIN)
        holder.handle(Received(worker_id(0), again), 0.0)
    found: list[Values] = [node.buckets[LEFT].params, other.buckets[RIGHT].params]
    assert np.concatenate(found).tolist() == [-2, -4, -6, -8]


@pytest.mark.parametrize("wants", [Wants.PARAMS, Wants.TAKEN], ids=["params", "taken"])
def test_every_answer_says_what_the_rule_reports(wants: Wants) -> None:
    """The mean of v, after the update, whether parameters come along or not."""
    terms = ShardTerms(Asp(), Fasgd(0.1, 0.5, 0.5), Dense(), Draw(0), gate=Bandwidth(push=1.0))
    node = Shard(0, {B: np.zeros(4, np.float32)}, terms, View(0, TWO, ((B,),)))
    update = np.array([0, 1, -2, 8], np.float32)
    (send,) = node.handle(Received(worker_id(0), Push(0, 0, 0, B, 0, wants), update), 0.0)
    assert isinstance(send, Send)
    answer = send.message
    assert isinstance(answer, Params if wants is Wants.PARAMS else Taken)
    assert answer.statistics == pytest.approx((float(node.buckets[B].memory["v"].mean()),))
    assert answer.statistics[0] != 1.0


@pytest.mark.parametrize("values", [1, 4, (1 << 15) + 7, 3 << 15])
def test_the_mean_is_taken_in_passing_block_by_block(values: int) -> None:
    bucket = Bucket(0, values)
    terms = ShardTerms(Asp(), Fasgd(0.1, 0.5, 0.5), Dense(), Draw(0), gate=Bandwidth(push=1.0))
    node = Shard(0, {bucket: np.zeros(values, np.float32)}, terms, View(0, TWO, ((bucket,),)))
    held = node.buckets[bucket]
    assert held.optimised.mean == 1
    for i in range(3):
        update = Draw(0).normals(values, "update", i).astype(np.float32)
        node.handle(Received(worker_id(0), Push(0, 0, i, bucket, 0), update), 0.0)
        assert held.optimised.mean == pytest.approx(float(held.memory["v"].mean(dtype=np.float64)), rel=1e-5)
    held.optimised.remember("v", np.full(values, 3, np.float32))
    assert held.optimised.mean == 3


def test_without_a_gate_nothing_is_said() -> None:
    terms = ShardTerms(Asp(), Fasgd(0.1), Dense(), Draw(0))
    node = Shard(0, {B: np.zeros(4, np.float32)}, terms, View(0, TWO, ((B,),)))
    (send,) = node.handle(Received(worker_id(0), Push(0, 0, 0, B, 0), np.ones(4, np.float32)), 0.0)
    assert isinstance(send, Send)
    assert isinstance(send.message, Params)
    assert send.message.statistics == ()
