"""A run that goes on from a checkpoint begins with a later iteration than 0, and with what gates and replies kept."""

from __future__ import annotations

import numpy as np
import pytest

from syncline.draw import Draw
from syncline.effects import Deliver, Fetch, Ready, Received, Send
from syncline.layout import Bucket, Layout
from syncline.messages import COORDINATOR, Member, NodeId, Pull, Push, View, server_id, worker_id
from syncline.nodes.protocol import Keeper, Trainer
from syncline.strategies.protocol import Job
from syncline.strategies.server import ServerStrategy

LAYOUT = Layout.of([("w", (4,))])
SERVER = server_id(0)


class Pair:
    """A server and two workers under bsp, whose messages are delivered at once."""

    def __init__(self, first: int, start: float = 0.0, **settings: str) -> None:
        strategy = ServerStrategy.of({"sync": "bsp", "mode": "changes", "bucket": "16B", **settings})
        job = Job(LAYOUT, Draw(0))
        members = tuple(Member(each, 0, first) for each in (0, 1))
        view = View(0, members, strategy.topology(job, [0]))
        self.bucket = Bucket(0, 4)
        self.server: Keeper = strategy.keeper(0, job, view, {self.bucket: np.full(4, start, np.float32)})
        self.workers: list[Trainer] = [strategy.trainer(each, 0, job, view) for each in (0, 1)]
        self.values = [np.zeros(4, np.float32), np.zeros(4, np.float32)]
        self.sent: list[Push | Pull] = []

    def fetch(self) -> None:
        for worker in self.workers:
            self.tell(worker_id(worker.number), Fetch(worker.progress - 1))

    def step(self, *changes: float) -> None:
        for worker, change in zip(self.workers, changes, strict=True):
            update = np.full(4, change, np.float32)
            self.tell(worker_id(worker.number), Ready(self.bucket, update, None, self.values[worker.number]))

    def tell(self, to: NodeId, event: object) -> None:
        node = self.server if to == SERVER else self.workers[to.number]
        for effect in node.handle(event, 0.0):  # type: ignore[arg-type]
            if isinstance(effect, Deliver) and effect.payload is not None:
                self.values[to.number] = np.array(effect.payload)
            elif isinstance(effect, Send) and effect.to != COORDINATOR:
                if isinstance(effect.message, Push | Pull):
                    self.sent.append(effect.message)
                payload = None if effect.payload is None else effect.payload.copy()
                self.tell(effect.to, Received(to, effect.message, payload))


def test_the_first_pull_is_answered_and_the_first_round_is_the_next_one() -> None:
    pair = Pair(7, 3.0)
    pair.fetch()
    assert [each.message if isinstance(each, Received) else each.progress for each in pair.sent] == [6, 6]
    assert pair.values[0].tolist() == [3.0] * 4
    pair.step(1.0, 3.0)
    assert pair.values[1].tolist() == [5.0] * 4
    assert [worker.progress for worker in pair.workers] == [8, 8]
    assert pair.server.counts().progress == 8
    assert dict(pair.server.counts().staleness) == {0: 2}


@pytest.mark.parametrize("first", [0, 9])
def test_in_mode_gradients_all_begin_with_the_leaders_parameters(first: int) -> None:
    pair = Pair(first, 3.0, mode="gradients")
    pair.fetch()
    assert pair.values[1].tolist() == [3.0] * 4


def test_what_a_gate_holds_back_comes_with_the_next_update() -> None:
    whole, before = (Pair(0, gate="every:push=2,fetch=1") for _ in range(2))
    for pair in (whole, before):
        pair.fetch()
        pair.step(1.0, 3.0)
    after = Pair(1, float(before.values[0][0]), gate="every:push=2,fetch=1")
    after.fetch()
    for old, new in zip(before.workers, after.workers, strict=True):
        state = old.gate_state()
        assert old.holds_back
        new.restore_gate(state)
        assert new.holds_back
    for pair in (whole, after):
        pair.step(10.0, 20.0)
        pair.step(0.0, 0.0)
    assert after.values[0].tolist() == whole.values[0].tolist()
    assert whole.values[0].tolist() == [17.0] * 4


def test_replies_go_on_from_what_the_workers_have() -> None:
    settings = {"reply_codec": "topk:0.25"}
    whole, before = Pair(0, **settings), Pair(0, **settings)
    for pair in (whole, before):
        pair.fetch()
        pair.server.param(pair.bucket)[:] = [1.0, 2.0, 3.0, 4.0]  # type: ignore[index]
        pair.step(1.0, 1.0)
    held = before.server.remembered(before.bucket)["reply"]
    assert held.tolist() == before.values[0].tolist() == [0.0, 0.0, 0.0, 5.0]
    after = Pair(1, 0.0, **settings)
    after.server.param(after.bucket)[:] = before.server.param(before.bucket)  # type: ignore[index]
    after.server.remember(after.bucket, "reply", held)
    after.fetch()
    assert after.values[0].tolist() == held.tolist()
    for pair in (whole, after):
        pair.step(1.0, 1.0)
    assert after.values[1].tolist() == whole.values[1].tolist()
