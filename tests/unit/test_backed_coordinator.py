"""The coordinator's part if servers have backups: who is the backup of whom, and what happens if a server dies."""

from __future__ import annotations

import pytest

from syncline.effects import Admit, Dismiss, Effect, Received, Restarted, ServerLost
from syncline.errors import UsageError
from syncline.layout import Bucket, Layout
from syncline.messages import ActingServer, Backup, Holders, Loss, Member, Settled, View, server_id
from syncline.nodes.server.backed_coordinator import BackedCoordinator
from syncline.nodes.server.backups import assigned, first_backups
from syncline.nodes.server.log_messages import BackedUp, LostLog, NoBackup
from syncline.placement import Elastic, replaced

A, B, C = (Bucket(start, start + 10) for start in range(0, 30, 10))
LAYOUT = Layout.of([("w", (30,))])
MEMBERS = (Member(0, 0, 0),)


def coordinator(holders: Holders) -> BackedCoordinator:
    view = View(1, MEMBERS, holders)
    return BackedCoordinator(view, lambda held, servers: replaced(Elastic(), LAYOUT, held, servers))


def settle(node: BackedCoordinator, *servers: int) -> list[Effect]:
    return [e for n in servers for e in node.handle(Received(server_id(n), Settled(node.view.view)), 0.0)]


def test_the_first_backups_form_a_ring() -> None:
    assert first_backups(((A,), (B,), (C,)), 1) == (Backup(0, 1, 1), Backup(1, 2, 1), Backup(2, 0, 1))
    assert first_backups(((A, B, C),), 1) == ()


def test_a_backup_stays_as_long_as_it_holds_something() -> None:
    ring = first_backups(((A,), (B,)), 1)
    assert assigned(ring, {0, 1, 2}, 4) == (*ring, Backup(2, 0, 4))


def test_the_backup_stands_in_for_a_dead_server() -> None:
    node = coordinator(((A,), (B,), (C,)))
    node.handle(ServerLost(1), 0.0)
    backups = (Backup(2, 0, 1), Backup(0, 2, 2))
    assert node.view == View(2, MEMBERS, ((A,), (), (B, C)), (), backups, (ActingServer(1, 2, 1, 2),), 2)
    settle(node, 0, 2)
    assert node.view == View(3, MEMBERS, ((A,), (), (B, C)), (), backups)


def test_what_a_stand_in_does_not_have_is_restored_from_copies() -> None:
    node = coordinator(((A,), (B,)))
    node.handle(ServerLost(0), 0.0)
    node.handle(Received(server_id(1), NoBackup(2, 0)), 0.0)
    assert node.view == View(3, MEMBERS, ((), (A, B)), (Loss(A, 3, 1),), (), (), 2)
    assert node.handle(Received(server_id(1), NoBackup(2, 0)), 0.0) == []


def test_if_the_stand_in_dies_too_only_what_it_held_itself_has_a_backup() -> None:
    node = coordinator(((A,), (B,), (C,)))
    node.handle(ServerLost(0), 0.0)  # server 1 stands in, and has not settled
    node.handle(ServerLost(1), 0.0)
    assert node.view.holders == ((), (), (A, B, C))
    assert node.view.lost == (Loss(A, 3, 2),)
    assert node.view.stand_ins == (ActingServer(1, 2, 1, 3),)


def test_a_server_that_leaves_is_a_backup_until_another_one_is_complete() -> None:
    node = coordinator(((A,), (B,), (C,)))
    node.handle(Dismiss(1), 0.0)
    mine = [each for each in node.view.backups if each.server == 0]
    assert mine == [Backup(0, 1, 1), Backup(0, 2, 2)]
    settle(node, 0, 1, 2)
    assert 1 in node.movers
    node.handle(Received(server_id(0), BackedUp(2, 2)), 0.0)
    assert [each for each in node.view.backups if each.server == 0] == [Backup(0, 2, 2)]
    assert 1 not in node.movers


def test_what_was_on_its_way_to_a_dead_server_is_not_lost() -> None:
    node = coordinator(((A,), (B,), (C,)))
    node.handle(Dismiss(1), 0.0)
    assert node.view.holders[0][-1].start >= B.start  # a piece of what server 1 held is on its way to server 0
    node.handle(ServerLost(0), 0.0)
    assert node.view.lost == ()
    assert [(each.server, each.backup) for each in node.view.stand_ins] == [(0, 1)]
    assert node.view.holders[0] == ()


def test_a_log_with_a_gap_is_replaced() -> None:
    node = coordinator(((A,), (B,)))
    node.handle(Received(server_id(0), LostLog(1, 1)), 0.0)
    assert node.view.backups == (Backup(1, 0, 1), Backup(0, 1, 2))
    assert node.handle(Received(server_id(0), LostLog(1, 1)), 0.0) == []


def test_a_server_that_starts_again_gets_a_part() -> None:
    node = coordinator(((A,), (B, C)))
    node.handle(ServerLost(0), 0.0)
    assert node.handle(Restarted(0, 1), 0.0) == []
    assert node.servers == {0, 1}
    assert node.handle(ServerLost(0), 0.0)  # it dies again; its first state is still on its way from server 1
    assert not node.view.lost
    node.handle(Restarted(0, 2), 0.0)
    settle(node, 1)
    assert node.view.holders[0]
    assert not node.view.lost


def test_a_server_that_starts_again_before_its_death_was_noticed_gets_a_part_too() -> None:
    node = coordinator(((A,), (B, C)))
    node.handle(Restarted(0, 1), 0.0)
    assert node.view.stand_ins == (ActingServer(0, 1, 1, 2),)
    settle(node, 1)
    assert node.view.holders[0]


def test_a_server_that_was_to_leave_takes_over_if_no_other_is_left() -> None:
    node = coordinator(((A,), (B, C)))
    node.handle(Dismiss(1), 0.0)
    settle(node, 1)
    node.handle(ServerLost(0), 0.0)
    assert node.view.holders == ((), (A, B, C))
    assert not node.view.lost


def test_the_only_server_has_no_backup() -> None:
    node = coordinator(((A,), (B, C)))
    node.handle(Dismiss(1), 0.0)
    settle(node, 0, 1)
    assert node.view.backups == ()
    with pytest.raises(UsageError, match="0 was the only server"):
        node.handle(ServerLost(0), 0.0)


def test_a_server_that_joins_gets_a_backup() -> None:
    node = coordinator(((A,), (B, C)))
    node.handle(Admit(2), 0.0)
    assert [each.server for each in node.view.backups] == [0, 1, 2]
