"""A sync model may ask to be asked again about a pull that waits: at every push, or after a time."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from own_parts import Impatient, Shy
from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Change, Effect, Ready, Received, Send, SetTimer, Timer
from syncline.engines.net.control import Declare, Declared
from syncline.engines.worker.solo_link import SoloLink
from syncline.errors import UsageError
from syncline.layout import Bucket
from syncline.messages import COORDINATOR, Handover, Member, Message, Params, Push, View, server_id, worker_id
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.rules import Sgd
from syncline.sim import Cluster, MadeUp, Scenario, World
from syncline.sim.compute import Trace
from syncline.sim.dispatch import UniformDispatch
from syncline.strategies.server.strategy import ServerStrategy, settle_mode
from syncline.sync import Asp, Psp, Ssp, SyncModel

B = Bucket(0, 4)


def shard(model: SyncModel, workers: int, number: int = 0, holders: tuple[tuple[Bucket, ...], ...] = ((B,),)) -> Shard:
    view = View(1, tuple(Member(worker, 0, 0) for worker in range(workers)), holders)
    held = holders[number] if number < len(holders) else ()
    pieces = {bucket: np.zeros(bucket.size, np.float32) for bucket in held}
    return Shard(number, pieces, ShardTerms(model, Sgd(0.1), Dense(), Draw(0)), view)


def push(node: Shard, worker: int, i: int, at: float = 0.0) -> list[Effect]:
    message = Push(node.terms.view, 0, i, B, 0)
    return node.handle(Received(worker_id(worker), message, np.ones(4, np.float32)), at)


def answered(effects: list[Effect]) -> list[tuple[int, int]]:
    """(worker, iteration) of every answer."""
    return [
        (each.to.number, each.message.progress)
        for each in effects
        if isinstance(each, Send) and isinstance(each.message, Params)
    ]


def sampled(model: Psp, workers: int, worker: int, i: int) -> list[int]:
    return list(model.sampled(range(workers), worker, i, Draw(0)))


def test_a_worker_waits_for_its_sample_and_for_nobody_else() -> None:
    model, node = Psp(1, 0), shard(Psp(1, 0), 4)
    (peer,) = sampled(model, 4, 0, 0)
    (other, third) = ({1, 2, 3} - {peer}) - {0}

    assert answered(push(node, 0, 0)) == []
    assert (0, 0) not in answered(push(node, other, 0))
    assert (0, 0) in answered(push(node, peer, 0))
    assert node.buckets[B].v == 0, "V has not advanced: worker 0 was answered before the last worker came"
    assert (third, 0) in answered(push(node, third, 0))


def test_a_sampled_worker_that_dies_is_not_waited_for() -> None:
    node = shard(Psp(3, 0), 4)
    for worker in (0, 1):
        assert answered(push(node, worker, 0)) == []
    view = View(2, tuple(Member(worker, 0, 0) for worker in (0, 1)), ((B,),))
    assert answered(node.handle(Received(COORDINATOR, view), 0.0)) == [(0, 0), (1, 0)]


@pytest.mark.parametrize(("workers", "sample"), [(5, 2), (12, 10), (3, 5)])
def test_a_sample_is_of_others_without_repeats_and_every_worker_is_as_likely(workers: int, sample: int) -> None:
    model, times, seen = Psp(sample, 1), 2000, Counter[int]()
    for i in range(times):
        chosen = sampled(model, workers, 1, i)
        assert chosen == sampled(model, workers, 1, i)
        assert 1 not in chosen
        assert len(set(chosen)) == len(chosen) == min(sample, workers - 1)
        seen.update(chosen)
    share = min(sample, workers - 1) / (workers - 1)
    assert all(abs(seen[peer] / times - share) < 0.05 for peer in range(workers) if peer != 1)


@pytest.mark.parametrize(
    ("text", "problem"), [("sample=0,s=3", "sample must be at least 1"), ("sample=1,s=-1", "s must be")]
)
def test_wrong_settings_are_refused(text: str, problem: str) -> None:
    values = {key: int(value) for key, value in (pair.split("=") for pair in text.split(","))}
    with pytest.raises(UsageError, match=problem):
        Psp(**values)


def test_by_hand_in_the_simulator() -> None:
    """Worker 2 takes 10 s for a step, the others 1 s. A worker whose sample is a fast worker continues."""
    model = Psp(1, 0)
    rows = ((1.0, 1.0), (1.0, 1.0), (10.0, 10.0))
    outcome = _simulated(model, rows)
    waits = [worker for worker in (0, 1) if any(2 in sampled(model, 3, worker, i) for i in range(2))]
    assert waits, "with this seed a worker samples the slow one"
    assert outcome.report["delayed_pulls"] < _simulated(Psp(2, 0), rows).report["delayed_pulls"]
    assert outcome.train_progress == 2


def _simulated(model: SyncModel, rows: tuple[tuple[float, ...], ...], **options: Any) -> Any:
    mode, rule = settle_mode(None, None, (model,))
    strategy = ServerStrategy((model,), mode=mode, rule=rule)
    return World(
        Scenario(Cluster(len(rows), Trace(rows)), strategy, len(rows[0]), **options), MadeUp(100, Draw(0))
    ).run()


# After a time.


def test_a_timer_asks_again_and_says_how_long_the_pull_has_waited() -> None:
    node = shard(Impatient(0, 2.0), 2)
    (timer,) = push(node, 0, 0, at=1.0)
    assert timer == SetTimer(("ask", B, 1), 2.0)
    assert answered(node.handle(Timer(timer.key), 3.0)) == [(0, 0)]
    assert node.handle(Timer(timer.key), 4.0) == [], "nothing waits any more"


def test_a_timer_is_set_again_while_a_pull_waits() -> None:
    node = shard(Impatient(0, 2.0), 3)
    (first,) = push(node, 0, 0, at=0.0)
    assert push(node, 1, 0, at=1.5) == [], "one timer for the bucket"
    early = node.handle(Timer(first.key), 2.0)
    assert answered(early) == [(0, 0)]
    assert early[-1] == SetTimer(("ask", B, 2), 2.0)
    assert answered(node.handle(Timer(("ask", B, 2)), 4.0)) == [(1, 0)]


def test_a_timer_of_before_a_change_of_the_model_does_nothing() -> None:
    node = shard(Impatient(0, 2.0), 2)
    (timer,) = push(node, 0, 0)
    assert node.handle(Change(Ssp(0)), 1.0) == []
    assert node.handle(Timer(timer.key), 2.0) == []
    assert answered(node.handle(Change(Asp()), 3.0)) == [(0, 0)]


def test_a_change_to_a_model_that_asks_again_takes_over_the_waiting_pulls() -> None:
    node = shard(Ssp(0), 2)
    assert push(node, 0, 0) == []
    assert node.handle(Change(Impatient(0, 2.0)), 1.0) == [SetTimer(("ask", B, 1), 2.0)]
    assert answered(node.handle(Timer(("ask", B, 1)), 3.0)) == [(0, 0)]


@pytest.mark.parametrize("model", [Impatient(0, 2.0), Psp(3, 0)], ids=str)
def test_a_waiting_pull_moves_with_its_bucket(model: SyncModel) -> None:
    old, new = shard(model, 2), shard(model, 2, number=1)
    push(old, 0, 0)
    view = View(2, tuple(Member(worker, 0, 0) for worker in range(2)), ((), (B,)))
    (sent,) = [each for each in old.handle(Received(COORDINATOR, view), 5.0) if _carries(each, Handover)]
    new.handle(Received(COORDINATOR, view), 7.0)
    effects = new.handle(Received(server_id(0), sent.message, sent.payload), 8.0)
    if isinstance(model, Impatient):
        (timer,) = [each for each in effects if isinstance(each, SetTimer)]
        assert answered(new.handle(Timer(timer.key), 10.0)) == [(0, 0)]
    else:
        assert answered(push(new, 1, 0)) == [(0, 0), (1, 0)]


def _carries(effect: Effect, kind: type[Message]) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, kind)


def test_in_the_simulator_nobody_waits_longer_than_the_model_says() -> None:
    rows = ((1.0,) * 4, (100.0,) * 4)
    outcome = _simulated(Impatient(0, 2.0), rows)
    assert outcome.train_progress == 4
    assert outcome.report["waiting_seconds"] == pytest.approx(2.0 * 4)


def test_dispatch_has_no_clock_to_ask_again_by() -> None:
    with pytest.raises(UsageError, match="asks again after a time"):
        _simulated(Impatient(0, 2.0), ((1.0,),) * 2, dispatch=UniformDispatch())


@pytest.mark.parametrize("again", ["soon", -1.0, 0, True, float("nan"), float("inf")])
def test_a_wrong_asks_again_is_refused(again: object) -> None:
    with pytest.raises(UsageError, match="asks_again must be 'push', a number of seconds"):
        _simulated(Shy(again), ((1.0,),) * 2)


def test_a_run_of_one_waits_for_its_timer() -> None:
    link = SoloLink()
    link.begin(Declare((Declared("w", (4,)),), {"sync": "own_parts.Shy", "mode": "changes"}))
    link.seed()
    link.take_first()
    link.following = None
    for bucket in link.ungiven():
        link.handle(Ready(bucket, np.ones(bucket.size, np.float32)))
    assert link.following is None
    link.wait(lambda: link.following is not None)
    assert link.following == 1
