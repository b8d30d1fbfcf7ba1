"""Membership, when messages about a worker arrive in another order."""

from __future__ import annotations

from syncline.effects import Lost, Received, Send
from syncline.layout import Bucket
from syncline.messages import Gone, JoinRequest, LeaveNotice, Member, View, worker_id
from syncline.nodes.server.coordinator import Coordinator

HELD = ((Bucket(0, 1),),)


def coordinator() -> Coordinator:
    return Coordinator(View(0, (Member(0, 0, 0), Member(1, 0, 0)), HELD))


def members(node: Coordinator) -> list[tuple[int, int]]:
    return [(member.worker, member.incarnation) for member in node.view.members]


def test_the_death_of_an_incarnation_that_has_not_joined_yet_removes_the_one_before_it() -> None:
    node = coordinator()
    node.handle(Lost(0, 1), 0.0)
    assert members(node) == [(1, 0)]
    assert node.handle(Received(worker_id(0), JoinRequest(0, 1)), 0.0) == [Send(worker_id(0), Gone(1, 1))]
    assert members(node) == [(1, 0)]


def test_the_death_of_an_earlier_incarnation_does_not_hurt_the_present_one() -> None:
    node = coordinator()
    node.handle(Received(worker_id(0), JoinRequest(0, 1)), 0.0)
    node.handle(Lost(0, 0), 0.0)
    assert members(node) == [(0, 1), (1, 0)]


def test_a_join_that_is_repeated_changes_nothing() -> None:
    node = coordinator()
    assert node.handle(Received(worker_id(1), JoinRequest(0, 0)), 0.0) == []
    node.handle(Received(worker_id(2), JoinRequest(0, 0)), 0.0)
    assert node.handle(Received(worker_id(2), JoinRequest(0, 0)), 0.0) == []
    assert members(node) == [(0, 0), (1, 0), (2, 0)]


def test_a_worker_that_has_left_cannot_rejoin_in_the_same_incarnation() -> None:
    node = coordinator()
    node.handle(Received(worker_id(0), LeaveNotice(0, 0)), 0.0)
    assert node.handle(Received(worker_id(0), JoinRequest(0, 0)), 0.0) == [Send(worker_id(0), Gone(1, 0))]
    node.handle(Received(worker_id(0), JoinRequest(0, 1)), 0.0)
    assert members(node) == [(0, 1), (1, 0)]
