"""The cases that a parameter server gets wrong, one readable test each, with exact lists of effects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from scheduler import (
    Arrive,
    Count,
    Declare,
    Enlist,
    Freeze,
    Quit,
    Restart,
    Rush,
    Schedule,
    Setup,
    Wake,
    Work,
)
from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Change, Deliver, Depart, Effect, Enter, Event, Fail, Lost, Ready, Received, Send, Timer
from syncline.errors import GoneError
from syncline.gates import Every, Gate
from syncline.layout import Bucket, Layout
from syncline.messages import (
    COORDINATOR,
    Gone,
    JoinRequest,
    LeaveNotice,
    Member,
    Params,
    Pull,
    Push,
    Report,
    Skipped,
    Taken,
    View,
    Wants,
    server_id,
    worker_id,
)
from syncline.nodes.server.coordinator import Coordinator
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Phase, Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.sync import Asp, Bsp, Drop, Dsps, Release, Ssp, SyncModel

SIZE = 40
B = Bucket(0, SIZE)
C = Bucket(SIZE, 2 * SIZE)


def members(*numbers: int) -> tuple[Member, ...]:
    return tuple(Member(number, 0, 0) for number in numbers)


class Server:
    """One shard with one bucket, and short words for what happens to it."""

    def __init__(self, model: SyncModel, workers: int | Sequence[Member], release: Release = Release.LAZY) -> None:
        at_first = members(*range(workers)) if isinstance(workers, int) else tuple(workers)
        self.view = View(1, at_first, ((B,),))
        params = np.zeros(SIZE, np.float32)
        self.node = Shard(0, {B: params}, ShardTerms(model, Count(), Dense(), Draw(0), release), self.view)
        self.bucket = self.node.buckets[B]

    def push(
        self, worker: int, i: int, at: int, incarnation: int = 0, view: int | None = None, wants: Wants = Wants.PARAMS
    ) -> list[Effect]:
        """A push whose update is 1 at coordinate `at`."""
        update = np.zeros(SIZE, np.float32)
        update[at] = 1
        push = Push(self.view.view if view is None else view, incarnation, i, B, 0, wants)
        return self.node.handle(Received(worker_id(worker), push, update), 0.0)

    def pull(self, worker: int, i: int, incarnation: int = 0) -> list[Effect]:
        return self.node.handle(Received(worker_id(worker), Pull(self.view.view, incarnation, i, B)), 0.0)

    def see(self, *left: Member) -> list[Effect]:
        """The next view arrives."""
        self.view = View(self.view.view + 1, left, self.view.holders)
        return self.node.handle(Received(COORDINATOR, self.view), 0.0)

    def change(self, model: SyncModel, release: Release | None = None) -> list[Effect]:
        return self.node.handle(Change(model, release), 0.0)

    def answer(self, worker: int, i: int, version: int, v: int, incarnation: int = 0, late: bool = False) -> Send:
        return Send(worker_id(worker), Params(self.view.view, incarnation, i, B, version, v, late))

    def taken(self, worker: int, i: int, version: int, v: int) -> Send:
        return Send(worker_id(worker), Taken(self.view.view, 0, i, B, version, v))

    def gone(self, worker: int, i: int, incarnation: int = 0) -> Send:
        return Send(worker_id(worker), Gone(self.view.view, incarnation, i, B))

    @property
    def applied(self) -> list[int]:
        """The coordinates that were updated; each once."""
        assert set(np.unique(self.bucket.params)) <= {0, 1}
        return [int(at) for at in np.flatnonzero(self.bucket.params)]


# Deaths.


def test_one_of_three_that_pushed_dies_and_the_round_waits_for_the_fourth() -> None:
    server = Server(Bsp(), 4)
    for worker in (0, 1, 2):
        assert server.push(worker, 0, at=worker) == []

    assert server.see(*members(0, 2, 3)) == [server.gone(1, 0)]
    assert (server.bucket.v, server.applied) == (0, [])

    answers = [server.answer(worker, 0, version=1, v=1) for worker in (0, 2, 3)]
    assert server.push(3, 0, at=3) == answers
    assert server.applied == [0, 1, 2, 3]


def test_two_die_at_once() -> None:
    server = Server(Bsp(), 4)
    assert server.push(0, 0, at=0) == []
    assert server.push(1, 0, at=1) == []

    assert server.see(*members(0, 1)) == [server.answer(0, 0, version=1, v=1), server.answer(1, 0, version=1, v=1)]
    assert server.applied == [0, 1]


def test_two_that_pushed_die_at_once_and_their_updates_count() -> None:
    server = Server(Bsp(), 4)
    for worker in (0, 1, 2):
        server.push(worker, 0, at=worker)

    assert server.see(*members(2, 3)) == [server.gone(0, 0), server.gone(1, 0)]
    assert server.push(3, 0, at=3) == [server.answer(2, 0, version=1, v=1), server.answer(3, 0, version=1, v=1)]
    assert server.applied == [0, 1, 2, 3]


def test_no_round_closes_while_no_member_is_alive() -> None:
    server = Server(Bsp(), 2)
    server.push(0, 0, at=0)

    assert server.see() == [server.gone(0, 0)]
    assert (server.bucket.v, server.applied) == (0, [])


def test_drop_with_fewer_than_k_alive() -> None:
    server = Server(Drop(3), 4)
    server.push(0, 0, at=0)

    assert server.see(*members(0, 1)) == []
    assert server.push(1, 0, at=1) == [server.answer(0, 0, version=1, v=1), server.answer(1, 0, version=1, v=1)]
    assert server.applied == [0, 1]


def test_drop_closes_at_once_when_a_death_leaves_fewer_than_k() -> None:
    server = Server(Drop(3), 3)
    server.push(0, 0, at=0)
    server.push(1, 0, at=1)

    assert server.see(*members(0, 1)) == [server.answer(0, 0, version=1, v=1), server.answer(1, 0, version=1, v=1)]


def test_two_shards_learn_of_a_death_at_different_times() -> None:
    first, second = Server(Bsp(), 2), Server(Bsp(), 2)
    first.push(0, 0, at=0)
    second.push(0, 0, at=0)

    assert first.see(*members(0)) == [first.answer(0, 0, version=1, v=1)]
    # The second has not heard of it: it still waits, and still takes what the dead one had sent.
    assert second.push(1, 0, at=1) == [second.answer(0, 0, version=1, v=1), second.answer(1, 0, version=1, v=1)]
    assert first.push(1, 0, at=1, view=1) == [first.gone(1, 0)]
    # The survivor goes on in the view that it knows; the second then adopts it.
    assert first.push(0, 1, at=2) == [first.answer(0, 1, version=2, v=2)]
    assert second.push(0, 1, at=2, view=2) == []
    assert second.see(*members(0)) == [second.answer(0, 1, version=2, v=2)]
    assert (first.applied, second.applied) == ([0, 2], [0, 1, 2])


def test_a_frozen_worker_that_pushes_after_being_declared_dead() -> None:
    server = Server(Asp(), 2)
    server.see(*members(0))
    update = np.full(SIZE, np.nan, np.float32)  # the test fails if a shard reads or writes this
    update.flags.writeable = False
    push = Push(1, 0, 0, B, 0)

    assert server.node.handle(Received(worker_id(1), push, update), 0.0) == [server.gone(1, 0)]
    assert server.applied == []
    assert server.bucket.version == 0


def test_the_frozen_worker_fails_and_sends_nothing_further() -> None:
    worker = Worker(1, 0, parts(), View(1, members(0, 1), ((B,),)))
    worker.handle(Ready(B, ones()), 0.0)

    (fail,) = worker.handle(Received(server_id(0), Gone(2, 0, 0, B)), 0.0)

    assert isinstance(fail, Fail)
    assert isinstance(fail.error, GoneError)
    assert worker.handle(Timer(("resend", 0)), 0.0) == []
    assert worker.handle(Ready(B, ones()), 0.0) == []


# Restarts and joins.


def test_a_worker_restarted_at_an_earlier_iteration() -> None:
    server = Server(Asp(), 2)
    for i in range(3):
        server.push(1, i, at=i)
    assert server.bucket.v == 0

    joining = server.see(Member(0, 0, 0), Member(1, 1, None))
    assert joining == [Send(COORDINATOR, Report(2, 0))]
    server.see(Member(0, 0, 0), Member(1, 1, 1))
    # Its new iteration 1 is not a repeat of its old one; a message of the old incarnation is.
    assert server.push(1, 1, at=11, incarnation=1) == [server.answer(1, 1, version=4, v=0, incarnation=1)]
    assert server.push(1, 2, at=2, view=1) == [server.gone(1, 2)]
    assert server.applied == [0, 1, 2, 11]
    # Round 0 waits for worker 0 alone, round 1 for both, round 2 for both although the old incarnation pushed it.
    server.push(0, 0, at=20)
    server.push(0, 1, at=21)
    server.push(0, 2, at=22)
    assert server.bucket.v == 2
    server.push(1, 2, at=12, incarnation=1)
    assert server.bucket.v == 3
    assert server.applied == [0, 1, 2, 11, 12, 20, 21, 22]


def test_a_worker_far_ahead_under_ssp_dies_and_comes_back() -> None:
    server = Server(Ssp(20), 2)
    for i in range(15):
        assert server.push(1, i, at=i) == [server.answer(1, i, version=i + 1, v=0)]

    assert server.see(Member(0, 0, 0), Member(1, 1, None)) == [Send(COORDINATOR, Report(2, 0))]
    server.push(0, 0, at=20)
    assert server.push(0, 1, at=21) == [server.answer(0, 1, version=17, v=1)]  # no round past 0 until f is named
    assert server.see(Member(0, 0, 0), Member(1, 1, 1)) == []
    assert server.pull(1, 0, incarnation=1) == [server.answer(1, 0, version=17, v=1, incarnation=1)]
    # It starts over at 1, and what its former life had pushed neither counts for it nor is undone.
    assert server.push(1, 1, at=30, incarnation=1) == [server.answer(1, 1, version=18, v=2, incarnation=1)]
    assert server.applied == [*range(15), 20, 21, 30]


def test_a_joiner_is_admitted_while_one_shard_closes_a_round_that_the_other_has_not() -> None:
    behind, ahead = Server(Asp(), 1), Server(Asp(), 1)
    coordinator = Coordinator(View(1, members(0), ((B,), (C,))))
    for i in range(2):
        behind.push(0, i, at=i)
    for i in range(3):
        ahead.push(0, i, at=i)

    joining = Member(1, 0, None)
    everyone = (server_id(0), server_id(1), worker_id(0), worker_id(1))
    view = View(2, (*members(0), joining), ((B,), (C,)))
    assert coordinator.handle(Received(worker_id(1), JoinRequest(1, 0)), 0.0) == [Send(to, view) for to in everyone]
    assert behind.see(*members(0), joining) == [Send(COORDINATOR, Report(2, 2))]
    ahead.push(0, 3, at=3)  # the other shard closes round 3 before it hears of the joiner
    assert ahead.see(*members(0), joining) == [Send(COORDINATOR, Report(2, 4))]
    # Nobody closes past its own report.
    for i in range(2, 6):
        behind.push(0, i, at=i)
        ahead.push(0, i + 2, at=i + 2)
    assert (behind.bucket.v, ahead.bucket.v) == (3, 5)

    assert coordinator.handle(Received(server_id(0), Report(2, 2)), 0.0) == []
    named = View(3, (*members(0), Member(1, 0, 5)), ((B,), (C,)))
    assert coordinator.handle(Received(server_id(1), Report(2, 4)), 0.0) == [Send(to, named) for to in everyone]
    behind.see(*named.members)
    ahead.see(*named.members)
    assert (behind.bucket.v, ahead.bucket.v) == (5, 5)  # round 5 waits for the joiner in both


def test_a_joiner_asks_waits_and_starts_by_pulling_the_iteration_before_its_first() -> None:
    worker = Worker(1, 0, parts(), View(1, members(0), ((B,),)))
    assert worker.handle(Enter(), 0.0) == [Send(COORDINATOR, JoinRequest(1, 0))]
    assert worker.handle(Received(COORDINATOR, View(2, (*members(0), Member(1, 0, None)), ((B,),))), 0.0) == []

    named = View(3, (*members(0), Member(1, 0, 5)), ((B,),))
    assert worker.handle(Received(COORDINATOR, named), 0.0) == [Send(server_id(0), Pull(3, 0, 4, B))]
    assert worker.handle(Received(server_id(0), Params(3, 0, 4, B, 9, 5)), 0.0) == [Deliver(B, next=5)]
    assert worker.handle(Ready(B, ones()), 0.0) == [Send(server_id(0), Push(3, 0, 5, B, 9))]


def test_everyone_dies_and_a_joiner_goes_on_alone() -> None:
    server = Server(Bsp(), 2)
    server.push(0, 0, at=0)
    server.see()
    assert server.see(Member(2, 0, None)) == [Send(COORDINATOR, Report(3, 0))]

    server.see(Member(2, 0, 1))
    assert (server.bucket.v, server.applied) == (1, [0])
    assert server.pull(2, 0) == [server.answer(2, 0, version=1, v=1)]


@pytest.mark.parametrize("last", [Lost(1, 1), Received(worker_id(1), LeaveNotice(1, 1))], ids=["lost", "left"])
def test_a_join_of_an_old_incarnation_that_comes_late_is_harmless(last: Event) -> None:
    coordinator = Coordinator(View(1, (*members(0), Member(1, 1, 0)), ((B,),)))
    coordinator.handle(last, 0.0)
    before = coordinator.view

    assert coordinator.handle(Received(worker_id(1), JoinRequest(1, 0)), 0.0) == [Send(worker_id(1), Gone(2, 0))]
    assert coordinator.view == before


def test_a_join_that_comes_after_the_news_of_its_senders_death_is_harmless() -> None:
    coordinator = Coordinator(View(1, members(0), ((B,),)))
    coordinator.handle(Lost(1, 0), 0.0)

    assert coordinator.handle(Received(worker_id(1), JoinRequest(1, 0)), 0.0) == [Send(worker_id(1), Gone(1, 0))]


# Repeats.


def test_a_push_sent_again_while_the_first_is_parked() -> None:
    server = Server(Bsp(), 2)
    assert server.push(0, 0, at=0) == []
    assert server.push(0, 0, at=0) == []

    assert server.push(1, 0, at=1) == [server.answer(0, 0, version=1, v=1), server.answer(1, 0, version=1, v=1)]
    assert server.applied == [0, 1]


def test_a_push_sent_again_after_it_was_answered() -> None:
    server = Server(Asp(), 2)
    answer = server.answer(0, 0, version=1, v=0)
    assert server.push(0, 0, at=0) == [answer]
    assert server.push(0, 0, at=1) == [answer]
    assert server.applied == [0]

    worker = Worker(0, 0, parts(), View(1, members(0, 1), ((B,),)))
    worker.handle(Ready(B, ones()), 0.0)
    assert worker.handle(Received(server_id(0), answer.message), 0.0) == [Deliver(B, next=1)]
    assert worker.handle(Received(server_id(0), answer.message), 0.0) == []


def test_a_late_push_sent_again_is_told_again_that_it_was_late() -> None:
    server = Server(Drop(1), 2)
    server.push(0, 0, at=0)
    late = [server.answer(1, 0, version=1, v=1, late=True)]

    assert server.push(1, 0, at=1) == late
    assert server.push(1, 0, at=1) == late
    assert (server.applied, server.node.tally.dropped) == ([0], 1)


def test_an_old_push_that_comes_again_leaves_the_parked_one_alone() -> None:
    server = Server(Ssp(1), 2)
    server.push(0, 0, at=0)
    assert server.push(0, 1, at=1) == []
    assert server.push(0, 0, at=0) == [server.answer(0, 0, version=2, v=0)]

    server.push(1, 0, at=2)
    assert server.push(1, 1, at=3) == [server.answer(0, 1, version=4, v=2), server.answer(1, 1, version=4, v=2)]


def test_an_answered_pull_that_comes_again_leaves_the_parked_push_alone() -> None:
    server = Server(Asp(), (Member(0, 0, 0), Member(1, 0, 3)))
    assert server.pull(1, 2) == [server.answer(1, 2, version=0, v=0)]
    server.change(Bsp())
    assert server.push(1, 3, at=3) == []

    server.pull(1, 2)  # whatever the worker is told, it awaits another iteration

    for i in range(3):
        server.push(0, i, at=i + 10)
    assert server.answer(1, 3, version=4, v=4) in server.push(0, 3, at=13)


def test_a_parked_pull_that_comes_again_stays_parked() -> None:
    server = Server(Bsp(), (Member(0, 0, 0), Member(1, 0, 1)))
    assert server.pull(1, 0) == []
    assert server.pull(1, 0) == []

    assert server.push(0, 0, at=0) == [server.answer(1, 0, version=1, v=1), server.answer(0, 0, version=1, v=1)]


# Views.


def test_a_message_with_a_newer_view_waits_for_that_view() -> None:
    server = Server(Asp(), 1)

    assert server.push(1, 4, at=1, view=3) == []
    assert server.see(*members(0), Member(1, 0, None)) == [Send(COORDINATOR, Report(2, 0))]
    assert server.applied == []
    assert server.see(*members(0), Member(1, 0, 4)) == [server.answer(1, 4, version=1, v=0)]
    assert server.applied == [1]


def test_an_answer_with_a_newer_view_waits_for_that_view() -> None:
    worker = Worker(0, 0, parts(), View(1, members(0, 1), ((B,),)))
    worker.handle(Ready(B, ones()), 0.0)

    assert worker.handle(Received(server_id(0), Params(2, 0, 0, B, 1, 1)), 0.0) == []
    assert worker.handle(Received(COORDINATOR, View(2, members(0), ((B,),))), 0.0) == [Deliver(B, next=1)]


def test_an_older_view_is_ignored() -> None:
    server = Server(Bsp(), 2)
    server.see(*members(0))
    older = View(1, members(0, 1), ((B,),))

    assert server.node.handle(Received(COORDINATOR, older), 0.0) == []
    assert server.push(0, 0, at=0) == [server.answer(0, 0, version=1, v=1)]


def test_two_pushes_that_waited_for_one_view_are_answered_with_the_versions_they_carry() -> None:
    server = Server(Asp(), 3)
    server.push(0, 0, at=0, view=2)
    server.push(1, 0, at=1, view=2)

    sends = server.see(*members(0, 1))

    assert sends == [server.answer(0, 0, version=1, v=0), server.answer(1, 0, version=2, v=1)]
    for send in sends:
        assert isinstance(send, Send)
        assert int(send.payload.sum()) == send.message.version


def test_two_rounds_that_close_at_once_are_answered_with_the_versions_they_carry() -> None:
    server = Server(Asp(), 2, Release.SOFT)
    server.push(0, 0, at=0)
    server.change(Bsp())
    assert server.push(0, 1, at=1) == []  # kept for round 1, and released when V advances

    for send in server.see(*members(0)):  # rounds 0 and 1 close
        assert isinstance(send, Send)
        assert int(send.payload.sum()) == send.message.version
    assert server.applied == [0, 1]


# Changes of model.


def test_bsp_changed_to_drop_with_three_of_four_kept() -> None:
    server = Server(Bsp(), 4)
    for worker in (0, 1, 2):
        server.push(worker, 0, at=worker)

    assert server.change(Drop(3)) == [server.answer(worker, 0, version=1, v=1) for worker in (0, 1, 2)]
    assert server.applied == [0, 1, 2]
    assert server.push(3, 0, at=3) == [server.answer(3, 0, version=1, v=1, late=True)]
    assert server.applied == [0, 1, 2]
    assert server.node.tally.dropped == 1


def test_a_late_worker_goes_on_with_the_least_v_that_its_buckets_reported() -> None:
    worker = Worker(0, 0, parts(), View(1, members(0), ((B,), (C,))))
    worker.handle(Ready(B, ones()), 0.0)
    worker.handle(Ready(C, ones()), 0.0)

    assert worker.handle(Received(server_id(0), Params(1, 0, 0, B, 9, 9, True)), 0.0) == [Deliver(B)]
    assert worker.handle(Received(server_id(1), Params(1, 0, 0, C, 7, 7, True)), 0.0) == [Deliver(C, next=7)]


def test_bsp_changed_to_asp_applies_what_is_kept_as_one_round_and_answers() -> None:
    server = Server(Bsp(), 3)
    server.push(0, 0, at=0)
    server.push(1, 0, at=1)

    assert server.change(Asp()) == [server.answer(0, 0, version=1, v=0), server.answer(1, 0, version=1, v=0)]
    assert server.applied == [0, 1]
    assert server.push(2, 0, at=2) == [server.answer(2, 0, version=2, v=1)]


def test_soft_release_after_a_change_of_model() -> None:
    server = Server(Ssp(3), 2, Release.SOFT)
    for i in range(4):
        server.push(0, i, at=i)
    # Parked under V = 0; under ssp:1 it may be answered once V is 3, so it now waits for the close of 2.
    assert server.change(Ssp(1)) == []
    assert server.push(1, 0, at=10) == [server.answer(1, 0, version=5, v=1)]
    assert server.push(1, 1, at=11) == [server.answer(1, 1, version=6, v=2)]
    assert server.push(1, 2, at=12) == [server.answer(0, 3, version=7, v=3), server.answer(1, 2, version=7, v=3)]


def test_lazy_release_after_a_change_of_model() -> None:
    server = Server(Ssp(3), 2, Release.SOFT)
    for i in range(4):
        server.push(0, i, at=i)
    assert server.change(Ssp(1), Release.LAZY) == []
    for i in range(3):
        assert server.push(1, i, at=10 + i) == [server.answer(1, i, version=5 + i, v=i + 1)]

    assert server.push(1, 3, at=13) == [server.answer(0, 3, version=8, v=4), server.answer(1, 3, version=8, v=4)]


def test_soft_release_answers_when_v_next_advances() -> None:
    server = Server(Ssp(3), 2, Release.SOFT)
    for i in range(4):
        server.push(0, i, at=i)

    assert server.push(1, 0, at=10) == [server.answer(0, 3, version=5, v=1), server.answer(1, 0, version=5, v=1)]


# Gates.


@pytest.mark.parametrize("release", Release)
def test_a_push_that_asks_for_taken_is_parked_and_released_like_params(release: Release) -> None:
    server = Server(Bsp(), 2, release)
    assert server.push(0, 0, at=0, wants=Wants.TAKEN) == []

    assert server.push(1, 0, at=1) == [server.taken(0, 0, version=1, v=1), server.answer(1, 0, version=1, v=1)]
    assert server.push(0, 0, at=0, wants=Wants.TAKEN) == [server.taken(0, 0, version=1, v=1)]
    assert server.applied == [0, 1]


def test_a_skipped_push_goes_empty_and_is_added_to_the_next() -> None:
    worker = Worker(0, 0, parts(Every(push=2, fetch=2)), View(1, members(0), ((B,),)))

    first = worker.handle(Ready(B, ones()), 0.0)
    assert first == [Send(server_id(0), Push(1, 0, 0, B, 0, Wants.TAKEN, None, True, skipped=Skipped.HELD))]
    assert worker.handle(Received(server_id(0), Taken(1, 0, 0, B, 5, 1)), 0.0) == [Deliver(B, next=1)]
    (second,) = worker.handle(Ready(B, ones()), 0.0)
    assert second == Send(server_id(0), Push(1, 0, 1, B, 0))
    assert isinstance(second, Send)
    assert np.array_equal(second.payload, 2 * ones())


def test_an_empty_push_counts_for_its_round() -> None:
    server = Server(Bsp(), 2)
    empty = Push(1, 0, 0, B, 0, Wants.TAKEN, None, True)
    server.push(0, 0, at=0)

    closing = server.node.handle(Received(worker_id(1), empty), 0.0)

    assert closing == [server.answer(0, 0, version=1, v=1), server.taken(1, 0, version=1, v=1)]


def test_if_all_pushes_of_a_round_were_empty_nothing_is_applied() -> None:
    server = Server(Bsp(), 1)

    answer = server.node.handle(Received(worker_id(0), Push(1, 0, 0, B, 0, empty=True)), 0.0)

    assert answer == [server.answer(0, 0, version=0, v=1)]


# Leaving.


def test_a_worker_leaves_only_after_all_its_pushes_are_answered() -> None:
    worker = Worker(0, 0, parts(), View(1, members(0), ((B, C),)))
    worker.handle(Ready(B, ones()), 0.0)
    worker.handle(Ready(C, ones()), 0.0)

    assert worker.handle(Depart(), 0.0) == []
    assert worker.handle(Received(server_id(0), Taken(1, 0, 0, B, 1, 1)), 0.0) == [Deliver(B)]
    leaving = worker.handle(Received(server_id(0), Taken(1, 0, 0, C, 1, 1)), 0.0)
    assert leaving == [Deliver(C, next=1), Send(COORDINATOR, LeaveNotice(1, 0))]
    assert worker.phase is Phase.GONE


def test_a_worker_that_leaves_in_the_middle_of_an_update_waits_for_what_it_has_sent() -> None:
    worker = Worker(0, 0, parts(), View(1, members(0), ((B, C),)))
    worker.handle(Ready(B, ones()), 0.0)

    rest = Push(1, 0, 0, C, 0, Wants.NOTHING, empty=True)
    assert worker.handle(Depart(), 0.0) == [Send(server_id(0), rest)]
    assert worker.handle(Received(server_id(0), Taken(1, 0, 0, B, 1, 1)), 0.0) == [Deliver(B)]
    leaving = worker.handle(Received(server_id(0), Taken(1, 0, 0, C, 1, 1)), 0.0)
    assert leaving == [Deliver(C, next=1), Send(COORDINATOR, LeaveNotice(1, 0))]


# Whole runs, by script.


def test_a_frozen_worker_wakes_next_to_its_own_next_incarnation() -> None:
    script = [Work(1, 0), Freeze(1), Declare(1), Restart(1), Rush(0, 4), Arrive(0), Wake(1), Rush(1, 8)]
    run = Schedule(Setup((Bsp(), Drop(2)), workers=2))
    run.play(script)
    assert run.processes[1, 0].failed
    assert run.processes[1, 1].finished


def test_join_and_leave_in_one_run() -> None:
    run = Schedule(Setup((Bsp(), Dsps(1, 4)), workers=2))
    run.play([Rush(0, 4), Enlist(), Rush(1, 6), Rush(2, 3), Quit(0), Rush(2, 9)])
    assert run.processes[2, 0].finished


# Words for the tests above.


def parts(gate: Gate | None = None) -> WorkerParts:
    layout = Layout.of([("b", (SIZE,)), ("c", (SIZE,))])
    return WorkerParts(layout, Draw(0)) if gate is None else WorkerParts(layout, Draw(0), gate=gate)


def ones() -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    return np.ones(SIZE, np.float32)
