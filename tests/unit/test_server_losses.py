"""The coordinator's part when a server dies: what is lost, and who restores it."""

from __future__ import annotations

import pytest

from syncline.effects import Admit, Dismiss, Received, Restarted, Send, ServerLost
from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.messages import Holders, Loss, Member, Settled, View, server_id
from syncline.nodes.server.coordinator import Coordinator
from syncline.placement import Elastic, replaced

A, B, C, D = (Bucket(start, start + 10) for start in range(0, 40, 10))
LAYOUT = Layout.of([("w", (40,))])
MEMBERS = (Member(0, 0, 0), Member(1, 0, 0))


def coordinator(holders: Holders) -> Coordinator:
    return Coordinator(View(1, MEMBERS, holders), lambda held, servers: replaced(Elastic(), LAYOUT, held, servers))


def test_each_lost_bucket_goes_to_the_server_that_holds_least() -> None:
    node = coordinator(((A,), (B, C), (D,)))
    effects = node.handle(ServerLost(1), 0.0)
    assert node.view == View(2, MEMBERS, ((A, B), (), (C, D)), (Loss(B, 2, 0), Loss(C, 2, 2)))
    assert [each.message for each in effects if isinstance(each, Send)] == [node.view] * 5
    assert node.servers == node.movers == {0, 2}


def test_the_view_names_losses_until_all_servers_have_settled() -> None:
    node = coordinator(((A, B), (C, D)))
    node.handle(ServerLost(1), 0.0)
    assert node.moving
    node.handle(Received(server_id(0), Settled(2)), 0.0)
    assert not node.moving
    assert node.view == View(2, MEMBERS, ((A, B, C, D), ()))


def test_a_server_that_starts_again_restores_its_own_part() -> None:
    node = coordinator(((A, B), (C, D)))
    node.handle(Restarted(1, 1), 0.0)
    assert node.view == View(2, MEMBERS, ((A, B), (C, D)), (Loss(C, 2, 1), Loss(D, 2, 1)))


def test_what_was_on_its_way_from_the_dead_server_is_lost_too() -> None:
    node = coordinator(((A, B), (C, D)))
    node.handle(Dismiss(1), 0.0)
    node.handle(Received(server_id(1), Settled(2)), 0.0)  # it has sent everything, which may not have arrived
    node.handle(ServerLost(1), 0.0)
    assert node.view.lost == (Loss(C, 3, 0), Loss(D, 3, 0))


def test_what_has_arrived_is_not_lost() -> None:
    node = coordinator(((A, B), (C, D)))
    node.handle(Dismiss(1), 0.0)
    for server in (0, 1):
        node.handle(Received(server_id(server), Settled(2)), 0.0)
    assert node.handle(ServerLost(1), 0.0) == []


def test_the_second_death_during_a_recovery() -> None:
    node = coordinator(((A,), (B,), (C, D)))
    node.handle(ServerLost(0), 0.0)
    assert node.view.lost == (Loss(A, 2, 1),)
    node.handle(ServerLost(1), 0.0)
    assert node.view.lost == (Loss(A, 3, 2), Loss(B, 3, 2))
    assert node.view.holders == ((), (), (A, B, C, D))


def test_a_planned_move_waits_for_the_recovery() -> None:
    node = coordinator(((A, B), (C, D)))
    node.handle(ServerLost(1), 0.0)
    assert node.handle(Admit(2), 0.0) == []
    node.handle(Received(server_id(0), Settled(2)), 0.0)
    assert node.view.view == 3
    assert node.view.holders == ((A, B), (), (C, D))


def test_the_only_server_cannot_be_lost() -> None:
    with pytest.raises(UsageError, match="0 was the only server"):
        coordinator(((A, B),)).handle(ServerLost(0), 0.0)
