"""One worker of the exchange strategy: exact effects of single events."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Deliver, Depart, Effect, Finish, How, Idle, Ready, Received, Reject, Send
from syncline.errors import PeerError
from syncline.layout import Bucket, Layout, Values, within
from syncline.messages import COORDINATOR, LeaveNotice, Member, Mesh, View, worker_id
from syncline.nodes.exchange.messages import Farewell, RangeSum
from syncline.nodes.exchange.peer import ExchangeWorker
from syncline.nodes.exchange.terms import ExchangeTerms
from syncline.nodes.peer_losses import PeerLoss, loss_figures, loss_line
from syncline.nodes.phase import Phase
from syncline.sim import Cluster, Lognormal, MadeUp, Scenario, World
from syncline.strategies.exchange.strategy import ExchangeStrategy

WHOLE, LOW, HIGH = Bucket(0, 4), Bucket(0, 2), Bucket(2, 4)
OTHER = worker_id(1)


def view(number: int, *workers: int) -> View:
    return View(number, tuple(Member(worker, 0, 0) for worker in workers), Mesh())


def worker(parts: int = 2, tau: int = 0, workers: int = 2, **terms: object) -> ExchangeWorker:
    made = ExchangeTerms(Layout.of([("a", (4,))]), Draw(0), within, parts, tau, **terms)  # type: ignore[arg-type]
    return ExchangeWorker(0, 0, made, (WHOLE,), view(0, *range(workers)))


def values(*numbers: float) -> Values:
    return np.array(numbers, np.float32)


def step(node: ExchangeWorker, *numbers: float) -> list[Effect]:
    return node.handle(Ready(WHOLE, values(*numbers)), 0.0)


def range_sum(part: int, bucket: Bucket, first: int, last: int) -> RangeSum:
    return RangeSum(0, 0, part, bucket, first, last)


def arrives(node: ExchangeWorker, part: int, bucket: Bucket, first: int, last: int, *numbers: float) -> list[Effect]:
    return node.handle(Received(OTHER, range_sum(part, bucket, first, last), values(*numbers)), 0.0)


def payloads(effects: list[Effect]) -> list[list[float]]:
    return [each.payload.tolist() for each in effects if isinstance(each, Send) and each.payload is not None]


def test_after_an_update_each_peer_gets_the_range_whose_turn_it_is() -> None:
    node = worker()
    effects = step(node, 2, 4, 6, 8)
    assert effects == [
        Deliver(WHOLE, None, None, How.ADD),
        Send(OTHER, range_sum(0, LOW, 0, 1)),
        Deliver(WHOLE, None, 1),
    ]
    assert payloads(effects) == [[1, 2]]  # divided by the number of workers
    node.handle(Idle(OTHER), 0.0)
    effects = step(node, 20, 20, 20, 20)
    assert effects[1] == Send(OTHER, range_sum(1, HIGH, 1, 2))
    assert payloads(effects) == [[3 + 10, 4 + 10]]


def test_while_a_link_is_busy_a_sum_grows_and_is_sent_when_it_is_free() -> None:
    node = worker(tau=5)
    step(node, 2, 2, 2, 2)
    for _ in range(3):
        assert not payloads(step(node, 2, 2, 2, 2))
    first = node.handle(Idle(OTHER), 0.0)
    assert first == [Send(OTHER, range_sum(1, HIGH, 1, 4))]
    assert payloads(first) == [[4, 4]]
    assert node.handle(Idle(OTHER), 0.0) == [Send(OTHER, range_sum(0, LOW, 2, 4))]
    assert node.handle(Idle(OTHER), 0.0) == []


def sent_to(effects: list[Effect]) -> list[int]:
    return [each.to.number for each in effects if isinstance(each, Send)]


def test_between_hosts_a_worker_sends_to_a_few_peers_at_a_time_in_turn() -> None:
    node = worker(workers=5, tau=9, at_once=2)
    assert sent_to(step(node, 2, 2, 2, 2)) == [1, 2]
    assert sent_to(node.handle(Idle(worker_id(2)), 0.0)) == [3]
    assert sent_to(step(node, 2, 2, 2, 2)) == []
    assert sent_to(node.handle(Idle(worker_id(1)), 0.0)) == [4]  # the first update is still due here
    assert sent_to(node.handle(Idle(worker_id(4)), 0.0)) == [2]
    assert sent_to(node.handle(Idle(worker_id(3)), 0.0)) == [1]


def test_a_peer_that_dies_while_it_is_sent_to_does_not_hold_up_the_others() -> None:
    node = worker(workers=4, tau=9, at_once=1)
    assert sent_to(step(node, 2, 2, 2, 2)) == [1]
    assert sent_to(node.handle(Received(COORDINATOR, view(1, 0, 2, 3)), 0.0)) == [2]
    node.handle(Received(COORDINATOR, view(2, 0, 2)), 0.0)
    assert sent_to(node.handle(Idle(worker_id(2)), 0.0)) == []


def test_peers_that_share_memory_do_not_wait_for_each_other() -> None:
    node = worker(workers=4, tau=9, at_once=1)
    assert sent_to(step(node, 2, 2, 2, 2)) == [1]
    for peer, following in ((1, [2]), (2, [3]), (3, [])):
        assert sent_to(node.handle(Idle(worker_id(peer), shared=True), 0.0)) == following
    assert sent_to(step(node, 2, 2, 2, 2)) == [1, 2, 3]


def test_what_arrives_during_a_step_is_applied_after_it() -> None:
    node = worker()
    assert arrives(node, 1, HIGH, 0, 1, 7, 7) == []
    effects = step(node, 0, 0, 0, 0)
    assert effects[1] == Deliver(WHOLE, None, None, How.ADD)
    assert effects[1].payload.tolist() == [0, 0, 7, 7]  # type: ignore[union-attr]


def test_a_worker_waits_at_the_bound_and_goes_on_when_the_slowest_does() -> None:
    node = worker()
    assert step(node, 0, 0, 0, 0)[-1] == Deliver(WHOLE, None, 1)
    assert not any(isinstance(each, Deliver) and each.next for each in step(node, 0, 0, 0, 0))
    assert arrives(node, 1, HIGH, 0, 1, 7, 7) == [Deliver(HIGH, None, None, How.ADD), Deliver(WHOLE, None, 2)]


def test_a_repeat_is_ignored_and_a_gap_is_refused() -> None:
    node = worker(tau=9)
    step(node, 0, 0, 0, 0)
    arrives(node, 1, HIGH, 0, 1, 7, 7)
    assert arrives(node, 1, HIGH, 0, 1, 7, 7) == []
    assert arrives(node, 1, HIGH, 3, 3, 7, 7) == [
        Reject(OTHER, "it sent updates 3 to 3 of values 2..4 after 1"),
    ]


@pytest.mark.parametrize(
    ("message", "payload", "problem"),
    [
        (range_sum(0, HIGH, 0, 1), values(1, 1), "which is not that range"),
        (range_sum(7, HIGH, 0, 1), values(1, 1), "which is not that range"),
        (range_sum(1, HIGH, 0, 1), None, "without values"),
        (range_sum(1, HIGH, 0, 1), values(1, 1, 1), "with 3 values"),
        (range_sum(1, HIGH, 0, 1), values(1, np.nan), "NaN or infinity"),
    ],
)
def test_what_breaks_the_protocol_costs_its_sender_the_connection(
    message: RangeSum, payload: Values | None, problem: str
) -> None:
    (effect,) = worker(checks=True).handle(Received(OTHER, message, payload), 0.0)
    assert isinstance(effect, Reject)
    assert problem in effect.reason


def test_only_expected_payloads_are_received() -> None:
    node = worker()
    assert node.place_of(OTHER, range_sum(1, HIGH, 0, 1), 8) is None
    for message, size in ((range_sum(1, HIGH, 0, 1), 12), (Farewell(0, 0), 4)):
        with pytest.raises(PeerError):
            node.place_of(OTHER, message, size)


def test_in_rounds_an_update_of_the_next_round_waits() -> None:
    node = worker(parts=1, workers=3)
    step(node, 0, 0, 0, 0)
    node.handle(Received(OTHER, range_sum(0, WHOLE, 1, 1), values(1, 1, 1, 1)), 0.0)
    assert node.handle(Received(OTHER, range_sum(0, WHOLE, 2, 2), values(5, 5, 5, 5)), 0.0) == []
    slow = Received(worker_id(2), range_sum(0, WHOLE, 1, 1), values(1, 1, 1, 1))
    assert node.handle(slow, 0.0) == [Deliver(WHOLE, None, None, How.ADD), Deliver(WHOLE, None, 1)]
    assert step(node, 0, 0, 0, 0)[1].payload.tolist() == [5, 5, 5, 5]  # type: ignore[union-attr]


def test_nobody_waits_for_a_dead_peer_and_what_it_left_is_known() -> None:
    node = worker(workers=3)
    arrives(node, 1, HIGH, 0, 1, 7, 7)
    step(node, 0, 0, 0, 0)
    for each in (1, 2):
        node.handle(
            Received(worker_id(2), range_sum(each % 2, (LOW, HIGH)[each % 2], each - 1, each), values(1, 1)), 0.0
        )
    step(node, 0, 0, 0, 0)
    step(node, 0, 0, 0, 0)
    assert Deliver(WHOLE, None, 3) in node.handle(Received(COORDINATOR, view(1, 0, 2)), 0.0)
    assert node.losses == [PeerLoss(1, 0, (0, 1))]
    assert str(node.losses[0]) == (
        "worker 1 is gone; this worker has all of its updates up to update 0, and parts of those up to update 1"
    )


def test_after_the_last_step_everything_is_sent_before_the_farewell() -> None:
    node = worker()
    step(node, 2, 2, 2, 2)
    assert node.handle(Finish(), 0.0) == []
    assert node.handle(Depart(), 0.0) == []  # the link is busy
    assert node.handle(Idle(OTHER), 0.0) == [Send(OTHER, range_sum(1, HIGH, 1, 1))]
    assert node.handle(Idle(OTHER), 0.0) == [Send(OTHER, Farewell(0, 0))]
    assert node.handle(Idle(OTHER), 0.0) == []
    assert node.phase is Phase.LEAVING
    answer = Farewell(0, 0, heard=True)
    assert node.handle(Received(OTHER, Farewell(0, 0)), 0.0) == [Send(OTHER, answer)]
    assert node.handle(Received(OTHER, answer), 0.0) == [Send(COORDINATOR, LeaveNotice(0, 0))]


def test_a_worker_that_leaves_early_is_sent_nothing_more() -> None:
    node = worker(tau=5)
    assert node.handle(Received(OTHER, Farewell(0, 0, leaving=True)), 0.0) == [Send(OTHER, Farewell(0, 0, heard=True))]
    assert not [each for each in step(node, 1, 1, 1, 1) if isinstance(each, Send)]


def test_a_report_about_a_dead_worker_names_what_reached_whom() -> None:
    (row,) = loss_figures({0: [PeerLoss(2, 0, (4, 3))], 1: [PeerLoss(2, 0, (5, 5))]})
    assert row == {
        "worker": 2,
        "incarnation": 0,
        "complete": 3,
        "newest": 5,
        "reached": {"0": [3, 4], "1": [5, 5]},
    }
    assert loss_line(row) == (
        "worker 2 died: its updates up to update 3 have reached all others; parts of those up to update 5 have reached "
        "some"
    )


@pytest.mark.parametrize(("parts", "most"), [(1, 2), (4, 5), (20, 41)])
def test_the_memory_of_a_peer_is_what_the_documentation_says(parts: int, most: int) -> None:
    world = World(Scenario(Cluster(8, Lognormal(0.1, 0.3)), ExchangeStrategy(parts), 100, 3), MadeUp(3000, Draw(3)))
    nodes = [each.node for each in world.workers.values()]
    held = []

    class Watch:
        def handled(self, *_: object) -> None:
            held.append(max(node.sender.window.arrays for node in nodes))  # type: ignore[attr-defined]

    for each in world.workers.values():
        each.driver._observers = (*each.driver._observers, Watch().handled)
    world.run()
    assert max(held) + 1 == most  # the next update has an array too
