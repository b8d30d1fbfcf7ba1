"""A bucket moves to another server: the cases that go wrong, one readable test each, with exact lists of effects."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from scheduler import Count
from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Admit, Change, Deliver, Dismiss, Effect, Ready, Received, Send
from syncline.errors import PeerError, UsageError
from syncline.layout import Bucket, Layout, Values
from syncline.messages import (
    COORDINATOR,
    Gone,
    Handover,
    JoinRequest,
    Member,
    Moved,
    Params,
    Pull,
    Push,
    Report,
    Settled,
    Taken,
    View,
    Wants,
    server_id,
    worker_id,
)
from syncline.nodes.server.bucket import HeldBucket
from syncline.nodes.server.coordinator import Coordinator
from syncline.nodes.server.handover import pack, unpack
from syncline.nodes.server.meter import PullMeter
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.server.worker import Worker
from syncline.nodes.server.worker_parts import WorkerParts
from syncline.placement import Elastic, replaced
from syncline.rules import Adam, Fasgd, Mean, Momentum, Rule
from syncline.spec import parse
from syncline.sync import Asp, Bsp, Dsps, Ssp, SyncModel

SIZE = 40
B = Bucket(0, SIZE)
LEFT, RIGHT = Bucket(0, 10), Bucket(10, SIZE)
LAYOUT = Layout.of([("w", (SIZE,))])
TWO = (Member(0, 0, 0), Member(1, 0, 0))
OLD, NEW = View(1, TWO, ((B,),)), View(2, TWO, ((LEFT,), (RIGHT,)))
S, T = server_id(0), server_id(1)


def shard(number: int = 0, model: SyncModel | None = None, view: View = OLD, rule: Rule | Count | None = None) -> Shard:
    pieces = {B: np.zeros(SIZE, np.float32)} if number == 0 else {}
    return Shard(number, pieces, ShardTerms(model or Bsp(), rule or Count(), Dense(), Draw(0)), view)


def push(node: Shard, worker: int, i: int, bucket: Bucket = B, view: int = 1, fill: float = 1.0) -> list[Effect]:
    update = np.full(bucket.size, fill, np.float32)
    return node.handle(Received(worker_id(worker), Push(view, 0, i, bucket, 0), update), 0.0)


def handovers(effects: list[Effect]) -> list[Send]:
    return [each for each in effects if isinstance(each, Send) and isinstance(each.message, Handover)]


def give(effects: list[Effect], to: Shard) -> list[Effect]:
    """Let the other server have what was handed over."""
    found = []
    for each in handovers(effects):
        assert each.to == server_id(to.number)
        found += to.handle(Received(S, each.message, each.payload), 0.0)
    return found


# The shard that gives.


def test_a_bucket_is_cut_and_only_the_part_of_the_other_travels() -> None:
    node = shard()
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    assert [(each.to, each.message.bucket) for each in handovers(effects)] == [(T, RIGHT)]
    assert effects[-1] == Send(COORDINATOR, Settled(2))
    assert list(node.buckets) == [LEFT]


def test_the_old_holder_answers_moved() -> None:
    node = shard()
    node.handle(Received(COORDINATOR, NEW), 0.0)
    assert push(node, 0, 0) == [Send(worker_id(0), Moved(2, 0, 0, B))]
    pull = Pull(1, 0, 0, B)
    assert node.handle(Received(worker_id(0), pull), 0.0) == [Send(worker_id(0), Moved(2, 0, 0, B))]


def test_the_old_holder_still_tells_who_is_gone() -> None:
    node = shard()
    node.handle(Received(COORDINATOR, View(2, TWO[:1], ((), (B,)))), 0.0)
    assert push(node, 1, 0) == [Send(worker_id(1), Gone(2, 0))]  # but whether the push is answered, another knows


def test_what_moves_is_a_copy_so_the_worker_may_write_its_update() -> None:
    node, other = shard(), shard(1)
    update = np.ones(SIZE, np.float32)
    node.handle(Received(worker_id(0), Push(1, 0, 0, B, 0), update), 0.0)
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    update.fill(np.nan)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    give(effects, other)
    push(node, 1, 0, LEFT, 2)
    push(other, 1, 0, RIGHT, 2)
    for each in (node, other):
        assert all((bucket.params == 1).all() for bucket in each.buckets.values())


# The shard that takes.


def test_a_parked_pull_becomes_one_of_each_piece() -> None:
    node, other = shard(), shard(1)
    assert push(node, 0, 0) == []
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    assert give(effects, other) == [Send(COORDINATOR, Settled(2))]
    for each, piece in ((node, LEFT), (other, RIGHT)):
        assert push(each, 1, 0, piece, 2) == [
            Send(worker_id(0), Params(2, 0, 0, piece, 1, 1)),
            Send(worker_id(1), Params(2, 0, 0, piece, 1, 1)),
        ]


def test_what_comes_before_the_bucket_waits_for_it() -> None:
    other = shard(1, Asp())
    effects = shard(0, Asp()).handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    assert push(other, 0, 0, RIGHT, 2) == []
    assert give(effects, other) == [
        Send(worker_id(0), Params(2, 0, 0, RIGHT, 1, 0)),
        Send(COORDINATOR, Settled(2)),
    ]


def test_a_bucket_that_comes_before_its_view_waits_for_it() -> None:
    other = shard(1)
    effects = shard().handle(Received(COORDINATOR, NEW), 0.0)
    assert give(effects, other) == []
    assert other.handle(Received(COORDINATOR, NEW), 0.0) == [Send(COORDINATOR, Settled(2))]
    assert list(other.buckets) == [RIGHT]


def test_a_repeat_is_known_to_the_new_holder() -> None:
    node, other = shard(0, Asp()), shard(1, Asp())
    push(node, 0, 0)
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    give(effects, other)
    assert push(other, 0, 0, RIGHT, 2) == [Send(worker_id(0), Params(2, 0, 0, RIGHT, 1, 0))]
    assert (other.buckets[RIGHT].params == 1).all()


def test_a_worker_that_died_while_its_pull_moved_is_answered_gone() -> None:
    node, other = shard(), shard(1)
    push(node, 0, 0)
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Received(COORDINATOR, View(3, TWO[1:], NEW.holders)), 0.0)
    assert give(effects, other) == [
        Send(worker_id(0), Gone(3, 0, 0, RIGHT)),
        Send(COORDINATOR, Settled(3)),
    ]
    push(other, 1, 0, RIGHT, 3)
    assert other.buckets[RIGHT].v == 1


def test_another_model_at_the_new_holder_is_a_change_of_model() -> None:
    """The kept update of a bsp shard is applied at once by an asp shard, and its pull is answered."""
    node, other = shard(), shard(1, Asp())
    push(node, 0, 0)
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    assert give(effects, other) == [
        Send(worker_id(0), Params(2, 0, 0, RIGHT, 1, 0)),
        Send(COORDINATOR, Settled(2)),
    ]


def test_a_change_of_model_that_overtakes_a_bucket_counts() -> None:
    node, other = shard(), shard(1)
    push(node, 0, 0)
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Change(Ssp(2)), 0.0)
    assert give(effects, other)[0] == Send(worker_id(0), Params(2, 0, 0, RIGHT, 1, 0))


def test_a_server_does_not_report_before_it_holds_its_buckets() -> None:
    joiner = (*TWO, Member(2, 0, None))
    node, other = shard(0, Asp()), shard(1, Asp())
    push(node, 0, 0)
    push(node, 1, 0)
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    assert other.handle(Received(COORDINATOR, View(3, joiner, NEW.holders)), 0.0) == []
    assert give(effects, other) == [Send(COORDINATOR, Report(3, 1)), Send(COORDINATOR, Settled(3))]
    assert other.terms.limit == 1


@pytest.mark.parametrize("rule", [Momentum(0.5), Adam(0.1), Fasgd(0.1, 0.5, 0.5)], ids=str)
def test_version_v_and_the_memory_of_the_rule_go_along(rule: Rule) -> None:
    node, other = shard(0, rule=rule), shard(1, rule=rule)
    for i in range(3):
        push(node, 0, i)
        push(node, 1, i)
    whole = node.buckets[B]
    effects = node.handle(Received(COORDINATOR, NEW), 0.0)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    give(effects, other)
    piece = other.buckets[RIGHT]
    assert (piece.version, piece.v) == (whole.version, whole.v) == (3, 3)
    assert piece.params.tobytes() == whole.params[10:].tobytes()
    for name in rule.start(whole.params):
        assert piece.memory[name].tobytes() == whole.memory[name][10:].tobytes()
    for i in range(3, 5):
        for worker in (0, 1):
            push(node, worker, i, LEFT, 2)
            push(other, worker, i, RIGHT, 2)
    calm = shard(0, rule=rule)
    for i in range(5):
        push(calm, 0, i)
        push(calm, 1, i)
    together = np.concatenate([node.buckets[LEFT].params, piece.params])
    assert together.tobytes() == calm.buckets[B].params.tobytes()


@pytest.mark.parametrize("text", ["topk:0.1", "onebit"])
def test_what_a_reply_has_lost_of_a_mean_goes_along(text: str) -> None:
    """Two rounds of one mean each, and a move between them: what workers were told, and what is left, is all of it."""
    codec, rule = parse("codec", text), Mean()
    first, second = np.arange(SIZE, dtype=np.float32), np.cos(np.arange(SIZE, dtype=np.float32))
    giver, taker = (
        Shard(number, pieces, ShardTerms(Bsp(), rule, Dense(), Draw(0), layout=LAYOUT, reply=codec), OLD)
        for number, pieces in enumerate([{B: np.zeros(SIZE, np.float32)}, {}])
    )

    def told(effects: list[Effect]) -> Values:
        """What worker 0 hears of the whole model."""
        whole = np.zeros(SIZE, np.float32)
        for each in effects:
            if isinstance(each, Send) and each.to == worker_id(0) and isinstance(each.message, Params):
                bucket = each.message.bucket
                assert each.payload is not None
                assert each.payload.dtype == np.uint8
                codec.decode(each.payload, whole[bucket.start : bucket.stop])
        return whole

    def round_of(mean: Values, i: int, shards: dict[Bucket, Shard], view: int) -> Values:
        effects: list[Effect] = []
        for worker in (0, 1):
            for bucket, node in shards.items():
                update = mean[bucket.start : bucket.stop]
                effects += node.handle(Received(worker_id(worker), Push(view, 0, i, bucket, 0), update.copy()), 0.0)
        return told(effects)

    heard = round_of(first, 0, {B: giver}, 1)
    moved = giver.handle(Received(COORDINATOR, NEW), 0.0)
    taker.handle(Received(COORDINATOR, NEW), 0.0)
    give(moved, taker)
    heard += round_of(second, 1, {LEFT: giver, RIGHT: taker}, 2)
    left = np.concatenate([residual_of(giver, LEFT), residual_of(taker, RIGHT)])
    assert np.any(left)
    assert np.allclose(heard + left, first + second, atol=1e-4)


def residual_of(node: Shard, bucket: Bucket) -> Values:
    teller = node.buckets[bucket].teller
    assert teller is not None
    return teller.residual["residual"]


def test_what_an_adaptive_model_and_a_change_of_model_have_left_goes_along() -> None:
    terms = ShardTerms(Dsps(1, 4), Count(), Dense(), Draw(0))
    terms.adopt(View(1, TWO, ((B,),)))
    whole = HeldBucket(B, np.zeros(SIZE, np.float32), terms)
    out: list[Effect] = []
    for i in range(3):
        for worker, pace in ((0, 1.0), (1, 3.0)):
            request = Received(worker_id(worker), Push(1, 0, i, B, 0), np.ones(SIZE, np.float32))
            whole.push(request, request.message, i * pace, out)
    whole.pull(Received(worker_id(1), Pull(1, 0, 2, B)), Pull(1, 0, 2, B), 9.0, out)
    whole._unruly, whole._round_applied = 5, 2
    piece = unpack(*pack(whole, RIGHT, terms), terms)
    for name in ("bound", "missing", "version", "v", "_unruly", "_round_applied", "_pulled", "_pushed"):
        assert getattr(piece, name) == getattr(whole, name), name
    assert _known(piece) == _known(whole) == {0: (0, 2), 1: (0, 2)}
    assert piece.bound == 3
    assert piece.step_seconds() == whole.step_seconds() == [1.0, 3.0]


def _known(bucket: HeldBucket) -> dict[int, tuple[int, int]]:
    """The last push of each worker: its incarnation and iteration."""
    return {worker: (push.incarnation, push.progress) for worker, push in bucket._seen.items()}


def test_a_bucket_that_is_not_expected_is_refused() -> None:
    effects = shard().handle(Received(COORDINATOR, NEW), 0.0)
    other = shard(1)
    other.handle(Received(COORDINATOR, NEW), 0.0)
    give(effects, other)
    with pytest.raises(PeerError, match=r"handed over .* which server 1 does not expect"):
        give(effects, other)


# The worker.


def worker(view: View = OLD) -> Worker:
    return Worker(0, 0, WorkerParts(LAYOUT, Draw(0)), view)


def start(node: Worker) -> Send:
    (sent,) = node.handle(Ready(B, np.arange(SIZE, dtype=np.float32)), 0.0)
    assert isinstance(sent, Send)
    return sent


def test_what_has_moved_is_sent_on_piece_by_piece() -> None:
    node = worker()
    start(node)
    assert node.handle(Received(S, Moved(2, 0, 0, B)), 0.0) == []
    sent = node.handle(Received(COORDINATOR, NEW), 0.0)
    assert sent == [Send(S, Push(2, 0, 0, LEFT, 0)), Send(T, Push(2, 0, 0, RIGHT, 0))]
    assert [each.payload.tolist() for each in sent] == [list(range(10)), list(range(10, 40))]
    values = np.zeros(SIZE, np.float32)
    assert node.handle(Received(T, Params(2, 0, 0, RIGHT, 1, 1), values[10:]), 0.0) == [Deliver(RIGHT)]
    assert node.handle(Received(S, Params(2, 0, 0, LEFT, 1, 1), values[:10]), 0.0) == [Deliver(LEFT, None, 1)]


def test_a_repeated_moved_counts_once() -> None:
    node = worker()
    start(node)
    node.handle(Received(COORDINATOR, NEW), 0.0)
    assert len(node.handle(Received(S, Moved(2, 0, 0, B)), 0.0)) == 2
    assert node.handle(Received(S, Moved(2, 0, 0, B)), 0.0) == []


def test_an_answer_of_the_old_holder_counts_for_all_pieces() -> None:
    node = worker()
    start(node)
    node.handle(Received(COORDINATOR, NEW), 0.0)
    answer = Params(1, 0, 0, B, 7, 1)
    assert node.awaits(answer)
    delivered = node.handle(Received(S, answer, np.arange(SIZE, dtype=np.float32)), 0.0)
    assert delivered == [Deliver(LEFT), Deliver(RIGHT, None, 1)]
    assert [each.payload[0] for each in delivered] == [0, 10]
    again = node.handle(Ready(B, np.zeros(SIZE, np.float32)), 0.0)
    assert again == [Send(S, Push(2, 0, 1, LEFT, 7)), Send(T, Push(2, 0, 1, RIGHT, 7))]


def test_a_piece_that_is_answered_is_not_sent_on() -> None:
    """A parked pull travelled along and was answered by the new holder; then the repeat of the push is told `Moved`."""
    node = worker()
    start(node)
    node.handle(Received(COORDINATOR, NEW), 0.0)
    node.handle(Received(T, Taken(2, 0, 0, RIGHT, 1, 1)), 0.0)
    assert node.handle(Received(S, Moved(2, 0, 0, B)), 0.0) == [Send(S, Push(2, 0, 0, LEFT, 0))]


def test_an_answer_of_a_later_view_waits_for_it() -> None:
    node = worker()
    start(node)
    assert node.handle(Received(T, Taken(2, 0, 0, RIGHT, 1, 1)), 0.0) == []
    assert node.handle(Received(COORDINATOR, NEW), 0.0) == [Deliver(RIGHT)]


def test_a_server_that_disowns_what_its_view_gives_to_it_is_a_fault() -> None:
    node = worker()
    start(node)
    with pytest.raises(PeerError, match="does not accept"):
        node.handle(Received(S, Moved(1, 0, 0, B)), 0.0)


def test_a_pull_is_sent_on_like_a_push() -> None:
    node = Worker(2, 0, WorkerParts(LAYOUT, Draw(0)), OLD)
    joined = replace(OLD, view=3, members=(*TWO, Member(2, 0, 4)))
    assert node.handle(Received(COORDINATOR, joined), 0.0) == [Send(S, Pull(3, 0, 3, B))]
    moved = replace(joined, view=4, topology=((), (LEFT, RIGHT)))
    node.handle(Received(COORDINATOR, moved), 0.0)
    assert node.handle(Received(S, Moved(4, 0, 3, B)), 0.0) == [
        Send(T, Pull(4, 0, 3, LEFT)),
        Send(T, Pull(4, 0, 3, RIGHT)),
    ]


# The coordinator.


def coordinator(servers: int = 2) -> Coordinator:
    holders = Elastic().place(LAYOUT, servers)
    return Coordinator(View(1, TWO, holders), lambda held, those: replaced(Elastic(), LAYOUT, held, those))


def told(effects: list[Effect]) -> list[str]:
    return [str(each.to) for each in effects if isinstance(each, Send) and isinstance(each.message, View)]


def test_a_new_server_gets_its_share_in_a_view_of_its_own() -> None:
    node = coordinator()
    effects = node.handle(Admit(2), 0.0)
    assert told(effects) == ["server0", "server1", "server2", "worker0", "worker1"]
    assert [sum(bucket.size for bucket in held) for held in node.view.holders] == [14, 13, 13]
    assert node.moving


def test_a_dismissed_server_holds_nothing_and_is_told() -> None:
    node = coordinator(3)
    effects = node.handle(Dismiss(1), 0.0)
    assert told(effects)[:3] == ["server0", "server1", "server2"]
    assert node.view.holders[1] == ()
    assert node.servers == {0, 2}


def test_one_move_at_a_time_and_what_is_wanted_meanwhile_comes_next() -> None:
    node = coordinator()
    node.handle(Admit(2), 0.0)
    assert node.handle(Admit(3), 0.0) == []
    assert node.handle(Dismiss(0), 0.0) == []
    assert node.view.view == 2
    for server in (0, 1):
        assert node.handle(Received(server_id(server), Settled(2)), 0.0) == []
    assert told(node.handle(Received(server_id(2), Settled(2)), 0.0))
    assert node.view.view == 3
    assert {number for number, held in enumerate(node.view.holders) if held} == {1, 2, 3}


def test_a_settled_of_an_earlier_move_does_not_settle_the_present_one() -> None:
    node = coordinator(1)
    node.handle(Admit(1), 0.0)
    for server in (0, 1):
        node.handle(Received(server_id(server), Settled(2)), 0.0)
    node.handle(Admit(2), 0.0)
    for server in (0, 1, 2):
        node.handle(Received(server_id(server), Settled(2)), 0.0)
    assert node.moving


def test_members_come_and_go_during_a_move_and_all_servers_of_the_view_report() -> None:
    node = coordinator()
    node.handle(Admit(2), 0.0)
    node.handle(Received(worker_id(2), JoinRequest(0, 0)), 0.0)
    for server in (0, 1):
        assert node.handle(Received(server_id(server), Report(3, 5)), 0.0) == []
    assert told(node.handle(Received(server_id(2), Report(3, 7)), 0.0))
    assert node.view.members[2] == Member(2, 0, 8)


def test_nobody_waits_for_the_report_of_a_server_that_has_left() -> None:
    node = coordinator()
    node.handle(Dismiss(0), 0.0)
    node.handle(Received(worker_id(2), JoinRequest(0, 0)), 0.0)
    assert node.handle(Received(server_id(0), Report(3, 99)), 0.0) == []
    node.handle(Received(server_id(1), Report(3, 4)), 0.0)
    assert node.view.members[2] == Member(2, 0, 5)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([Dismiss(0), Dismiss(1)], "1 is the only server left"),
        ([Dismiss(7)], "there is no server 7 to remove; this run has 0, 1"),
        ([Dismiss(0), Dismiss(0)], "there is no server 0 to remove; this run has 1"),
        ([Admit(1)], "number 1 was used before; use 2 for the new server"),
        ([Admit(2), Dismiss(2), Admit(2)], "number 2 was used before; use 3 for the new server"),
        ([Admit(2 + n) for n in range(39)], "no values"),
    ],
)
def test_invalid_changes_of_servers_are_refused(events: list[Admit | Dismiss], words: str) -> None:
    node = coordinator()
    for event in events[:-1]:
        node.handle(event, 0.0)
    with pytest.raises(UsageError, match=words):
        node.handle(events[-1], 0.0)


def test_a_run_whose_servers_are_fixed_says_so() -> None:
    with pytest.raises(UsageError, match="servers cannot be added to this run"):
        Coordinator(OLD).handle(Admit(1), 0.0)


# The meter.


def test_a_pull_that_is_answered_piece_by_piece_has_waited_until_the_last() -> None:
    meter = PullMeter()
    request = Push(1, 0, 0, B, 0)
    meter.handled(server_id(0), Received(worker_id(0), request), [], 1.0)
    effects = shard().handle(Received(COORDINATOR, NEW), 0.0)
    meter.handled(server_id(0), Received(COORDINATOR, NEW), effects, 2.0)
    meter.handled(server_id(0), Received(worker_id(0), request), [Send(worker_id(0), Moved(2, 0, 0, B))], 3.0)
    meter.handled(server_id(1), Received(worker_id(0), replace(request, bucket=RIGHT)), [], 4.0)
    other = Received(worker_id(1), replace(request, bucket=RIGHT))
    meter.handled(server_id(1), other, [Send(worker_id(w), Taken(2, 0, 0, RIGHT, 1, 1)) for w in (0, 1)], 5.0)
    assert meter.waiting_seconds == 0
    last = [Send(worker_id(0), Taken(2, 0, 0, LEFT, 1, 1))]
    meter.handled(server_id(0), replace(other, source=worker_id(2)), last, 7.0)
    assert meter.waiting_seconds == 6
    assert meter.delayed_pulls == 2


def test_a_header_survives_the_wire() -> None:
    import msgspec

    node = shard()
    push(node, 0, 0)
    (sent,) = handovers(node.handle(Received(COORDINATOR, NEW), 0.0))
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(sent.message), type=Handover)
    assert again == sent.message
    assert again.parked[0].request == Push(1, 0, 0, RIGHT, 0, Wants.PARAMS)
