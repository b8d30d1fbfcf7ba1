"""Who owns the memory of an update: the shard until it has answered the push, then the worker again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from scheduler import Count
from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Change, Deliver, Effect, Ready, Received, Send, Timer
from syncline.gates import Every
from syncline.layout import Bucket, Layout, Values
from syncline.messages import COORDINATOR, Gone, Member, Params, Push, View, server_id, worker_id
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.rules import Momentum, Rule
from syncline.sync import Asp, Bsp, Drop, Pssp, Release, Ssp, State, SyncModel

SIZE = 8
B = Bucket(0, SIZE)


@dataclass(frozen=True)
class Early:
    """Applies at the close, but answers at once."""

    at_close = True

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return True

    def may_close(self, state: State) -> bool:
        return state.missing == 0


@dataclass(frozen=True)
class Halfway:
    """Applies at the close, but answers every worker except the last in the list at once."""

    at_close = True

    def may_answer(self, state: State, worker: int, i: int, draw: Draw) -> bool:
        return worker != max(state.members) or i < state.v

    def may_close(self, state: State) -> bool:
        return state.missing == 0


class Memory:
    """A shard, and workers that write NaN over an update as soon as its push is answered."""

    def __init__(self, model: SyncModel, workers: int, rule: Rule | None = None) -> None:
        view = View(1, tuple(Member(number, 0, 0) for number in range(workers)), ((B,),))
        terms = ShardTerms(model, rule or Count(), Dense(), Draw(0), Release.LAZY)
        self.node = Shard(0, {B: np.zeros(SIZE, np.float32)}, terms, view)
        self.updates: dict[tuple[int, int, int], Values] = {}

    def push(self, worker: int, i: int, at: int, incarnation: int = 0, view: int = 1) -> list[int]:
        update = np.zeros(SIZE, np.float32)
        update[at] = 1
        self.updates[worker, incarnation, i] = update
        return self.again(worker, i, incarnation, view)

    def again(self, worker: int, i: int, incarnation: int = 0, view: int = 1) -> list[int]:
        """The same push, with the present content of its memory."""
        push = Push(view, incarnation, i, B, 0)
        return self.tell(Received(worker_id(worker), push, self.updates[worker, incarnation, i]))

    def tell(self, event: Received | Change) -> list[int]:
        """The workers that are answered."""
        return [self._give_back(effect) for effect in self.node.handle(event, 0.0)]

    def see(self, number: int, *workers: int) -> list[int]:
        members = tuple(Member(worker, 0, 0) for worker in workers)
        return self.tell(Received(COORDINATOR, View(number, members, ((B,),))))

    def _give_back(self, effect: Effect) -> int:
        assert isinstance(effect, Send)
        answer = effect.message
        self.updates[effect.to.number, answer.incarnation, answer.progress].fill(np.nan)
        return effect.to.number

    @property
    def params(self) -> list[float]:
        return self.node.buckets[B].params.tolist()


def at(*coordinates: int) -> list[float]:
    return [float(each in coordinates) for each in range(SIZE)]


@pytest.mark.parametrize("model", [Bsp(), Ssp(0), Drop(3)], ids=repr)
def test_an_update_kept_for_the_close_is_read_before_its_push_is_answered(model: SyncModel) -> None:
    memory = Memory(model, 3)
    assert [memory.push(worker, 0, at=worker) for worker in range(3)] == [[], [], [0, 1, 2]]
    assert memory.params == at(0, 1, 2)


@pytest.mark.parametrize("model", [Asp(), Ssp(2), Pssp(1, alpha="significance")], ids=repr)
def test_an_update_applied_on_arrival_is_not_read_again(model: SyncModel) -> None:
    memory = Memory(model, 2)
    for i in range(2):
        memory.push(0, i, at=i)
        memory.again(0, i)
    memory.push(1, 0, at=4)
    assert memory.params == at(0, 1, 4)


def test_a_model_that_answers_before_the_close_keeps_a_copy() -> None:
    memory = Memory(Early(), 3)
    assert memory.push(0, 0, at=0) == [0]
    assert memory.push(0, 1, at=3) == [0]
    assert memory.push(1, 0, at=1) == [1]
    assert memory.params == at()

    assert memory.push(2, 0, at=2) == [2]
    assert memory.params == at(0, 1, 2)
    memory.push(1, 1, at=4)
    memory.push(2, 1, at=5)
    assert memory.params == at(0, 1, 2, 3, 4, 5)


def test_some_answered_early_and_one_at_the_close() -> None:
    memory = Memory(Halfway(), 3)
    assert memory.push(2, 0, at=2) == []
    assert memory.push(0, 0, at=0) == [0]
    assert memory.push(1, 0, at=1) == [2, 1]
    assert memory.params == at(0, 1, 2)


def test_an_early_answered_push_that_comes_again_is_not_read() -> None:
    memory = Memory(Early(), 2)
    memory.push(0, 0, at=0)
    assert memory.again(0, 0) == [0]

    memory.push(1, 0, at=1)
    assert memory.params == at(0, 1)


def test_the_copy_survives_a_change_of_model() -> None:
    memory = Memory(Early(), 3)
    memory.push(0, 0, at=0)
    memory.push(1, 0, at=1)

    assert memory.tell(Change(Bsp())) == []
    assert memory.push(2, 0, at=2) == [2]
    assert memory.params == at(0, 1, 2)


def test_what_is_kept_is_applied_before_a_change_of_model_answers() -> None:
    memory = Memory(Bsp(), 3)
    memory.push(0, 0, at=0)
    memory.push(1, 0, at=1)

    assert memory.tell(Change(Asp())) == [0, 1]
    assert memory.params == at(0, 1)


@pytest.mark.parametrize("model", [Bsp(), Drop(3), Early()], ids=repr)
def test_the_update_of_a_member_that_dies_is_kept_and_its_memory_let_go(model: SyncModel) -> None:
    memory = Memory(model, 3)
    memory.push(0, 0, at=0)
    memory.push(1, 0, at=1)
    memory.see(2, 1, 2)
    memory.updates[0, 0, 0].fill(np.nan)

    memory.push(2, 0, at=2, view=2)
    assert memory.params == at(0, 1, 2)


def test_two_incarnations_of_one_worker_each_keep_their_update() -> None:
    memory = Memory(Bsp(), 2)
    memory.push(0, 0, at=0)
    members = (Member(0, 1, 0), Member(1, 0, 0))
    memory.tell(Received(COORDINATOR, View(2, members, ((B,),))))
    assert np.isnan(memory.updates[0, 0, 0]).all()

    assert memory.push(0, 0, at=3, incarnation=1, view=2) == []
    assert memory.push(1, 0, at=1, view=2) == [0, 1]
    assert memory.params == at(0, 1, 3)


def test_the_memory_of_a_non_member_is_neither_read_nor_written() -> None:
    memory = Memory(Asp(), 2)
    memory.see(2, 1)
    foreign = np.full(SIZE, np.nan, np.float32)
    foreign.flags.writeable = False

    effects = memory.node.handle(Received(worker_id(0), Push(1, 0, 0, B, 0), foreign), 0.0)

    assert effects == [Send(worker_id(0), Gone(2, 0, 0, B))]
    assert memory.params == at()


def test_a_push_that_waits_for_a_view_and_is_then_refused_is_not_read() -> None:
    memory = Memory(Asp(), 2)
    assert memory.push(0, 0, at=0, view=2) == []
    memory.updates[0, 0, 0].fill(np.nan)

    assert memory.see(3, 1) == [0]
    assert memory.params == at()


def test_a_dropped_update_is_not_read() -> None:
    memory = Memory(Drop(1), 2)
    memory.push(0, 0, at=0)
    memory.updates[1, 0, 0] = np.full(SIZE, np.nan, np.float32)

    assert memory.again(1, 0) == [1]
    assert memory.params == at(0)


@pytest.mark.parametrize("model", [Bsp(), Asp()], ids=repr)
def test_a_shard_never_writes_an_update(model: SyncModel) -> None:
    memory = Memory(model, 2, Momentum(0.1))
    updates = [np.full(SIZE, worker + 1, np.float32) for worker in range(2)]
    for worker, update in enumerate(updates):
        update.flags.writeable = False
        memory.node.handle(Received(worker_id(worker), Push(1, 0, 0, B, 0), update), 0.0)
    assert [update[0] for update in updates] == [1, 2]


def test_parameters_do_not_alias_an_update() -> None:
    memory = Memory(Bsp(), 1)
    memory.push(0, 0, at=0)
    assert memory.params == at(0)
    assert not np.shares_memory(memory.node.buckets[B].params, memory.updates[0, 0, 0])


# The worker's side.


def worker_with(**parts: object) -> Worker:
    layout = Layout.of([("b", (SIZE,))])
    view = View(1, (Member(0, 0, 0),), ((B,),))
    return Worker(0, 0, WorkerParts(layout, Draw(0), **parts), view)  # type: ignore[arg-type]


def test_an_update_that_was_held_back_is_a_copy() -> None:
    worker = worker_with(gate=Every(push=2))
    update = np.ones(SIZE, np.float32)
    worker.handle(Ready(B, update), 0.0)
    worker.handle(Received(server_id(0), Params(1, 0, 0, B, 0, 1), np.zeros(SIZE, np.float32)), 0.0)
    update.fill(np.nan)

    (send,) = worker.handle(Ready(B, np.full(SIZE, 2, np.float32)), 0.0)

    assert isinstance(send, Send)
    assert send.payload.tolist() == [3.0] * SIZE


def test_a_push_is_sent_again_from_the_same_memory() -> None:
    worker = worker_with(patience=1.0)
    update = np.ones(SIZE, np.float32)
    first = [effect for effect in worker.handle(Ready(B, update), 0.0) if isinstance(effect, Send)]
    again = [effect for effect in worker.handle(Timer(("resend", 0)), 1.0) if isinstance(effect, Send)]

    assert first == again
    assert again[0].payload is update


def test_an_answer_is_delivered_without_a_copy() -> None:
    worker = worker_with()
    worker.handle(Ready(B, np.ones(SIZE, np.float32)), 0.0)
    params = np.full(SIZE, 7, np.float32)

    (deliver,) = worker.handle(Received(server_id(0), Params(1, 0, 0, B, 1, 1), params), 0.0)

    assert deliver == Deliver(B, next=1)
    assert isinstance(deliver, Deliver)
    assert deliver.payload is params
