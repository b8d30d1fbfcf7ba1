"""A server and its backup: the cases that matter, one readable test each, with exact lists of effects."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec.structs import replace

from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Change, Effect, Received, Reject, Send, ServerLost
from syncline.layout import Bucket, Values
from syncline.messages import (
    COORDINATOR,
    ActingServer,
    Backup,
    Handover,
    Member,
    Params,
    Push,
    Settled,
    View,
    server_id,
    worker_id,
)
from syncline.nodes.server.backed_shard import BackedShard
from syncline.nodes.server.log_messages import BackedUp, LogEntry, LogStart, LogTaken, LostLog, NoBackup
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.rules import Momentum
from syncline.sync import Asp, Bsp, SyncModel

A, B, C = (Bucket(start, start + 4) for start in (0, 4, 8))
MEMBERS = (Member(0, 0, 0), Member(1, 0, 0))
FIRST = View(0, MEMBERS, ((A,), (B,), (C,)))
S = [server_id(number) for number in range(3)]
W = [worker_id(number) for number in range(2)]


def terms(model: SyncModel) -> ShardTerms:
    return ShardTerms(model, Momentum(0.1), Dense(), Draw(0), backed=True)


def servers(count: int = 2, model: SyncModel | None = None) -> list[BackedShard]:
    """Servers that have begun their logs with a fresh state."""
    view = View(0, MEMBERS, FIRST.holders[:count])
    first = {held[0]: np.zeros(4, np.float32) for held in view.holders}
    chosen = model or Asp()
    shards = [Shard(n, {held[0]: first[held[0]].copy()}, terms(chosen), view) for n, held in enumerate(view.holders)]
    nodes = [BackedShard(each, view, lambda _: terms(chosen), first) for each in shards]
    exchange(nodes, [(S[n], effect) for n, node in enumerate(nodes) for effect in node.handle(tell(view), 0.0)])
    return nodes


def tell(view: View) -> Received:
    return Received(COORDINATOR, view)


def exchange(nodes: Sequence[BackedShard], sent: list[tuple[object, Effect]]) -> list[Send]:
    """Deliver what servers send each other, until nothing is under way; return what is for others."""
    others = []
    while sent:
        source, effect = sent.pop(0)
        assert isinstance(effect, Send), effect
        if effect.to.role != "server":
            others.append(effect)
            continue
        node = nodes[effect.to.number]
        sent += [(effect.to, each) for each in node.handle(Received(source, effect.message, effect.payload), 1.0)]
    return others


def push(worker: int, i: int, values: Values, bucket: Bucket = A, read: int = 0) -> Received:
    return Received(W[worker], Push(0, 0, i, bucket, read), values)


def ones() -> Values:
    return np.ones(4, np.float32)


def test_an_answer_leaves_when_the_backup_has_the_event() -> None:
    one, two = servers()
    (logged,) = one.handle(push(0, 0, ones()), 2.0)
    assert logged == Send(S[1], LogEntry(0, 0, 1, 2.0, Push(0, 0, 0, A, 0), W[0]))
    (taken,) = two.handle(Received(S[0], logged.message, logged.payload), 9.0)
    assert taken == Send(S[0], LogTaken(0, 0, 1))
    (answer,) = one.handle(Received(S[1], taken.message), 2.5)
    assert answer == Send(W[0], Params(0, 0, 0, A, 1, 0))
    copy = two.followed(0)
    assert copy is not None
    assert copy.buckets[A].params.tobytes() == one.shard.buckets[A].params.tobytes() == answer.payload.tobytes()


def test_a_held_answer_keeps_the_parameters_of_its_version() -> None:
    one, _ = servers()
    one.handle(push(0, 0, ones()), 2.0)
    one.handle(push(1, 0, ones()), 2.0)
    first, second = one.handle(Received(S[1], LogTaken(0, 0, 2)), 3.0)
    assert (first.message.version, second.message.version) == (1, 2)
    assert first.payload.tobytes() != second.payload.tobytes()


def test_the_backup_takes_over_with_what_the_rule_remembers() -> None:
    one, two = nodes = servers()
    for i in range(3):
        exchange(nodes, [(S[0], each) for each in one.handle(push(0, i, ones(), read=i), 2.0)])
    memory = one.shard.buckets[A].memory["m"].copy()
    view = View(1, MEMBERS, ((), (A, B)), (), (), (ActingServer(0, 1, 0, 1),), 1)
    assert two.handle(tell(view), 3.0) == [Send(COORDINATOR, Settled(1))]
    bucket = two.shard.buckets[A]
    assert (bucket.version, bucket.memory["m"].tobytes()) == (3, memory.tobytes())
    (again,) = two.handle(Received(W[0], Push(1, 0, 2, A, 2), ones()), 4.0)
    assert again == Send(W[0], Params(1, 0, 2, A, 3, 0))
    assert bucket.version == 3


def test_an_event_that_has_not_reached_the_backup_is_sent_again_by_its_worker() -> None:
    one, two = servers()
    one.handle(push(0, 0, ones()), 2.0)  # the log entry is lost with the server
    two.handle(tell(View(1, MEMBERS, ((), (A, B)), (), (), (ActingServer(0, 1, 0, 1),), 1)), 3.0)
    assert two.shard.buckets[A].version == 0
    (answer,) = two.handle(Received(W[0], Push(1, 0, 0, A, 0), ones()), 4.0)
    assert answer == Send(W[0], Params(1, 0, 0, A, 1, 0))


def test_a_stand_in_without_the_state_says_so() -> None:
    _, two = servers()
    view = View(1, MEMBERS, ((), (A, B)), (), (), (ActingServer(0, 1, 5, 1),), 1)
    assert two.handle(tell(view), 3.0) == [Send(COORDINATOR, NoBackup(1, 0))]


def test_a_new_backup_gets_the_whole_state_and_answers_wait_for_it() -> None:
    nodes = servers(3)
    exchange(nodes, [(S[0], each) for each in nodes[0].handle(push(0, 0, ones()), 2.0)])
    waiting = nodes[0].handle(push(1, 0, ones()), 2.0)
    assert [type(each.message) for each in waiting] == [LogEntry]
    view = View(1, MEMBERS, ((A,), (), (B, C)), (), (Backup(0, 2, 1), Backup(2, 0, 0)), (ActingServer(1, 2, 0, 1),), 1)
    effects = nodes[0].handle(tell(view), 3.0)
    assert [type(each.message) for each in effects] == [LogStart, LogEntry, LogEntry]
    assert type(effects[1].message.event) is Handover
    out = exchange(nodes, [(S[0], each) for each in effects])
    assert [type(each.message) for each in out] == [BackedUp, Params, Settled]
    copy = nodes[2].followed(0)
    assert copy is not None
    assert copy.buckets[A].memory["m"].tobytes() == nodes[0].shard.buckets[A].memory["m"].tobytes()


def test_while_there_are_two_backups_both_must_have_the_event() -> None:
    nodes = servers(3)
    two = (Backup(0, 1, 0), Backup(0, 2, 1), Backup(1, 2, 0), Backup(2, 0, 0))
    exchange(nodes, [(S[0], each) for each in nodes[0].handle(tell(View(1, MEMBERS, FIRST.holders, (), two)), 2.0)])
    entries = nodes[0].handle(push(0, 0, ones()), 3.0)
    assert [each.to for each in entries] == [S[1], S[2]]
    number = entries[0].message.number
    assert nodes[0].handle(Received(S[1], LogTaken(0, 0, number)), 3.0) == []
    assert [type(each.message) for each in nodes[0].handle(Received(S[2], LogTaken(0, 1, number)), 3.0)] == [Params]


def test_the_only_server_left_answers_at_once() -> None:
    one, _ = servers()
    one.handle(push(0, 0, ones()), 2.0)
    effects = one.handle(tell(View(1, MEMBERS, ((A, B), ()), (), (), (ActingServer(1, 0, 0, 1),), 1)), 3.0)
    assert [type(each.message) for each in effects] == [Params, Settled]
    assert [type(each.message) for each in one.handle(push(1, 0, ones()), 3.0)] == [Params]


def test_a_log_with_a_gap_is_not_acknowledged_and_begins_anew() -> None:
    one, two = servers()
    one.handle(push(0, 0, ones()), 2.0)  # lost
    (second,) = one.handle(push(1, 0, ones()), 2.0)
    assert two.handle(Received(S[0], second.message, second.payload), 2.0) == []
    assert one.handle(ServerLost(1), 3.0) == [Send(COORDINATOR, LostLog(0, 0))]
    view = replace(View(1, MEMBERS, ((A,), (B,))), backups=(Backup(0, 1, 1), Backup(1, 0, 0)))
    out = exchange([one, two], [(S[0], each) for each in one.handle(tell(view), 4.0)])
    assert [type(each.message) for each in out] == [BackedUp, Params, Params]


def test_a_push_that_breaks_the_protocol_does_the_same_at_the_backup() -> None:
    one, two = servers()
    logged, rejected = one.handle(push(0, 0, ones(), read=7), 2.0)
    assert isinstance(rejected, Reject)
    assert rejected.peer == W[0]
    assert [type(each.message) for each in two.handle(Received(S[0], logged.message, logged.payload), 2.0)] == [
        LogTaken
    ]


def test_a_change_of_model_is_in_the_log() -> None:
    one, two = nodes = servers()
    exchange(nodes, [(S[0], each) for each in one.handle(Change(Bsp()), 2.0)])
    copy = two.followed(0)
    assert copy is not None
    assert copy.terms.model == Bsp()
