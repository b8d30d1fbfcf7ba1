"""The window of a worker: which buckets it may push before earlier ones are answered."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Deliver, Depart, Ready, Received, Send
from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.messages import COORDINATOR, LeaveNotice, Member, Params, Push, View, server_id
from syncline.nodes.server.push_window import PushWindow
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.placement import Elastic
from syncline.strategies.server.strategy import ServerStrategy

A, B, C, D, E = Bucket(44, 54), Bucket(34, 44), Bucket(24, 34), Bucket(14, 24), Bucket(0, 14)
"""In the order in which a worker pushes them; E is the first quarter of the model."""

LAYOUT = Layout.of([("w", (54,))])
ONE = server_id(0)


def ready(bucket: Bucket) -> Ready:
    return Ready(bucket, np.ones(bucket.size, np.float32))


def worker(window: int | None, *holders: tuple[Bucket, ...]) -> Worker:
    parts = WorkerParts(LAYOUT, Draw(0), window=window)
    return Worker(0, 0, parts, View(0, (Member(0, 0, 0), Member(1, 0, 0)), holders or ((E, D, C, B, A),)))


def pushed(effects: list[object]) -> list[Bucket]:
    return [each.message.bucket for each in effects if isinstance(each, Send) and isinstance(each.message, Push)]


def answer(node: Worker, bucket: Bucket, server: int = 0, i: int = 0) -> list[object]:
    params = Params(node._view, 0, i, bucket, 1, i + 1)
    return list(node.handle(Received(server_id(server), params, np.zeros(bucket.size, np.float32)), 0.0))


def test_a_bucket_waits_until_the_window_reaches_it() -> None:
    node = worker(20)
    assert [pushed(node.handle(ready(each), 0.0)) for each in (A, B, C, D)] == [[A], [B], [], []]
    assert node.is_waiting
    assert all(map(node.is_given, (A, B, C, D)))
    assert not node.is_answered(C)
    assert pushed(answer(node, A)) == [C]
    assert pushed(answer(node, B)) == [D]
    assert pushed(answer(node, C)) == []
    assert pushed(node.handle(ready(E), 0.0)) == [E]
    answer(node, D)
    (last,) = answer(node, E)
    assert isinstance(last, Deliver)
    assert last.next == 1
    assert pushed(node.handle(ready(A), 0.0)) == [A]


def test_an_answer_out_of_order_does_not_move_the_window() -> None:
    node = worker(20)
    for each in (A, B, C, D):
        node.handle(ready(each), 0.0)
    assert pushed(answer(node, B)) == []
    assert pushed(answer(node, A)) == [C, D]


def test_the_first_unanswered_bucket_never_waits_whatever_its_size() -> None:
    node = worker(1)
    assert [pushed(node.handle(ready(each), 0.0)) for each in (A, B)] == [[A], []]
    assert pushed(answer(node, A)) == [B]


def test_workers_that_hand_in_buckets_in_different_order_do_not_wait_for_each_other() -> None:
    """Worker 1 finishes B before A: it holds B, so that both push A first."""
    node = worker(10)
    assert pushed(node.handle(ready(B), 0.0)) == []
    assert pushed(node.handle(ready(A), 0.0)) == [A]
    assert pushed(answer(node, A)) == [B]


def test_each_server_has_a_window_of_its_own() -> None:
    node = worker(10, (C, A), (E, D, B))
    assert [pushed(node.handle(ready(each), 0.0)) for each in (A, B, C, D)] == [[A], [B], [], []]
    assert pushed(answer(node, B, server=1)) == [D]


def test_a_new_placement_cuts_what_is_held() -> None:
    node = worker(10)
    for each in (A, B, C, D):
        node.handle(ready(each), 0.0)
    first, second = Bucket(24, 29), Bucket(29, 34)
    view = View(1, (Member(0, 0, 0), Member(1, 0, 0)), ((E, D, second, A), (first, B)))
    assert pushed(node.handle(Received(COORDINATOR, view), 0.0)) == [B], "the first of the other server"
    assert pushed(answer(node, A)) == [second]
    assert pushed(answer(node, B, server=1)) == [first]
    assert node.is_given(C)
    assert pushed(answer(node, second)) == [D]


def test_a_worker_that_leaves_pushes_what_is_held() -> None:
    node = worker(10)
    for each in (A, B, C):
        node.handle(ready(each), 0.0)
    assert pushed(node.handle(Depart(), 0.0)) == [B, C, E, D]
    effects = [effect for each in (A, B, C, D, E) for effect in answer(node, each)]
    assert isinstance(effects[-1], Send)
    assert isinstance(effects[-1].message, LeaveNotice)


def test_without_a_window_everything_leaves_at_once() -> None:
    node = worker(None)
    assert [pushed(node.handle(ready(each), 0.0)) for each in (A, B, C, D)] == [[A], [B], [C], [D]]


def test_what_is_released_after_a_change_comes_in_order() -> None:
    window = PushWindow(20, dict.fromkeys((A, B, C, D), ONE))
    for each in (D, C, B, A):
        window.hold(ready(each), always=True)
    assert window.is_holding
    assert [each.bucket for each in window.released()] == [A, B]
    assert [each.bucket for each in window.empty()] == [C, D]
    assert not window.is_holding


@pytest.mark.parametrize("word", ["0x", "-1", "", "many"])
def test_a_window_that_is_not_a_size(word: str) -> None:
    with pytest.raises(UsageError, match=r"window: .* is not a size such as 2MiB, nor 'unlimited'"):
        ServerStrategy.of({"window": word})


@pytest.mark.parametrize("number", [0, -1, 1.5, True])
def test_a_window_that_is_not_a_number_of_values(number: int) -> None:
    with pytest.raises(UsageError, match="window"):
        ServerStrategy(window=number)


@pytest.mark.parametrize("word", ["unlimited", "1MiB", "12B"])
def test_the_text_of_a_window(word: str) -> None:
    strategy = ServerStrategy.of({"window": word})
    assert ServerStrategy.of(strategy.words()) == strategy


def test_the_first_quarter_of_the_model_overtakes_the_rest() -> None:
    """It has a window of its own, four times as large."""
    node = worker(10)
    assert [pushed(node.handle(ready(each), 0.0)) for each in (A, B, C, D, E)] == [[A], [], [], [], [E]]
    assert pushed(answer(node, E)) == []
    assert pushed(answer(node, A)) == [B]


def test_stripes_are_dealt_in_turn() -> None:
    layout = Layout.of([("w", (40,))])
    first, second, third, fourth = (Bucket(start, start + 10) for start in (0, 10, 20, 30))
    assert Elastic(2).place(layout, 2) == ((first, third), (second, fourth))
    assert Elastic().place(layout, 2) == ((Bucket(0, 20),), (Bucket(20, 40),))
    with pytest.raises(UsageError, match="stripes"):
        Elastic(0)
