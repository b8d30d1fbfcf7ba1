"""Which handovers a server accepts, and how it keeps those for others until they ask."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from math import inf, nan

import numpy as np
import pytest
from msgspec.structs import replace

from syncline.codecs import Dense
from syncline.draw import Draw
from syncline.effects import Received, Send
from syncline.engines.net.connection import Connection
from syncline.engines.net.frames import PREFIX, pack, unpack
from syncline.engines.server.handovers import HandoverInbox, HandoverOutbox
from syncline.errors import PeerError
from syncline.layout import Bucket
from syncline.messages import (
    COORDINATOR,
    ActingServer,
    Handover,
    Holders,
    LastUpdate,
    Member,
    Pull,
    Push,
    ReadVersion,
    View,
    worker_id,
)
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.rules import Momentum
from syncline.sync import Bsp

WHOLE, KEPT, MOVED = Bucket(0, 10), Bucket(0, 6), Bucket(6, 10)
BEFORE = ((WHOLE,), ())
AFTER = ((KEPT,), (MOVED,))
MEMBERS = (Member(0, 0, 0), Member(1, 0, 0))
RULE = Momentum(0.1)
MEMORY = {name: array.dtype.str for name, array in RULE.start(np.zeros(0, np.float32)).items()}


@pytest.fixture
def handover() -> tuple[Handover, int]:
    """A real one, with a kept update, a parked push and a rule's memory; and the size of its payload."""
    terms = ShardTerms(Bsp(), RULE, Dense(), Draw(0))
    shard = Shard(0, {WHOLE: np.arange(10, dtype=np.float32)}, terms, View(0, MEMBERS, BEFORE))
    shard.handle(Received(worker_id(0), Push(0, 0, 0, WHOLE, 0, lr=0.5), np.ones(10, np.float32)), 0.0)
    (send,) = (
        each for each in shard.handle(Received(COORDINATOR, View(3, MEMBERS, AFTER)), 0.0)
        if isinstance(each, Send) and isinstance(each.message, Handover)
    )  # fmt: skip
    assert isinstance(send.message, Handover)
    assert send.payload is not None
    assert all((send.message.kept, send.message.parked, send.message.memory))
    return send.message, send.payload.nbytes


@pytest.fixture
def inbox() -> HandoverInbox:
    found = HandoverInbox(1, BEFORE, MEMORY)
    assert found.adopt(View(3, MEMBERS, AFTER)) == {0}
    return found


def test_what_is_awaited_is_taken_once(inbox: HandoverInbox, handover: tuple[Handover, int]) -> None:
    message, size = handover
    assert MOVED in inbox
    inbox.check(0, message, size)
    inbox.arrived(message.bucket)
    assert not inbox.awaits(0)
    with pytest.raises(PeerError, match="not expected"):
        inbox.check(0, message, size)


def test_only_the_old_holder_can_hand_over(inbox: HandoverInbox, handover: tuple[Handover, int]) -> None:
    with pytest.raises(PeerError, match="not expected from it"):
        inbox.check(2, *handover)


def kept(message: Handover, **fields: object) -> Handover:
    return replace(message, kept=(replace(message.kept[0], **fields),))


def parked(message: Handover, **fields: object) -> Handover:
    return replace(message, parked=(replace(message.parked[0], **fields),))


WRONG: dict[str, Callable[[Handover], Handover]] = {
    "another bucket": lambda real: replace(real, bucket=KEPT),
    "no bucket": lambda real: replace(real, bucket=Bucket(-4, 2**62)),
    "an earlier view": lambda real: replace(real, view=2),
    "a later view": lambda real: replace(real, view=2**62),
    "version": lambda real: replace(real, version=-1),
    "V": lambda real: replace(real, v=2**64 - 1),
    "bound": lambda real: replace(real, bound=-1),
    "applied": lambda real: replace(real, applied=-2),
    "unruly": lambda real: replace(real, unruly=2**63),
    "a round": lambda real: replace(real, pushed=((-1, ((0, 0),)),)),
    "who pushed": lambda real: replace(real, pushed=((0, ((-1, 0),)),)),
    "seen": lambda real: replace(real, seen=((0, 0, -5, False),)),
    "seen by nobody": lambda real: replace(real, seen=((-2, 0, 0, False),)),
    "pulled": lambda real: replace(real, pulled=((0, -1, 0),)),
    "a time": lambda real: replace(real, steps=((0, (nan,)),)),
    "a negative time": lambda real: replace(real, steps=((0, (-1.0,)),)),
    "kept in no round": lambda real: kept(real, i=-1),
    "kept of nobody": lambda real: kept(real, worker=-1),
    "read": lambda real: kept(real, read=-1),
    "rate": lambda real: kept(real, lr=inf),
    "an update that is not there": lambda real: kept(real, empty=True),
    "another update": lambda real: replace(real, kept=real.kept * 2),
    "a last update that is not there": lambda real: replace(real, last=(LastUpdate(0, 0, 0),)),
    "the last of nobody": lambda real: replace(kept(real, empty=True), last=(LastUpdate(-1, 0, 0),)),
    "the last, read before": lambda real: replace(kept(real, empty=True), last=(LastUpdate(0, 0, -1),)),
    "a copy that is not there": lambda real: replace(real, reads=(ReadVersion(0, 0, 0, 0),)),
    "a copy of nobody": lambda real: replace(kept(real, empty=True), reads=(ReadVersion(-1, 0, 0, 0),)),
    "a copy of no version": lambda real: replace(kept(real, empty=True), reads=(ReadVersion(0, 0, -1, 0),)),
    "a copy in no array": lambda real: replace(kept(real, empty=True), reads=(ReadVersion(0, 0, 0, 5),)),
    "a copy in bytes": lambda real: replace(
        kept(real, empty=True), reads=(ReadVersion(0, 0, 0, 0),), arrays=(*real.arrays[:2], ("|u1", 16))
    ),
    "parked under": lambda real: parked(real, under=-1),
    "parked by nobody": lambda real: parked(real, worker=-1),
    "parked elsewhere": lambda real: parked(real, request=Pull(3, 0, 0, KEPT)),
    "parked too far": lambda real: parked(real, request=Pull(3, 0, 2**63, MOVED)),
    "no memory": lambda real: replace(real, memory=()),
    "other memory": lambda real: replace(real, memory=("speed",)),
    "no arrays": lambda real: replace(real, arrays=()),
    "objects": lambda real: replace(real, arrays=(("|O", 4), *real.arrays[1:])),
    "objects as an update": lambda real: replace(real, arrays=(*real.arrays[:2], ("|O", 4))),
    "no type": lambda real: replace(real, arrays=(*real.arrays[:2], ("nonsense", 4))),
    "a large update": lambda real: replace(real, arrays=(*real.arrays[:2], ("|u1", 1 << 30))),
    "a negative one": lambda real: replace(real, arrays=(*real.arrays[:2], ("|u1", -8))),
    "one too many": lambda real: replace(real, arrays=(*real.arrays, real.arrays[-1])),
    "long parameters": lambda real: replace(real, arrays=(("<f4", 5), *real.arrays[1:])),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_invalid_handover_is_refused(inbox: HandoverInbox, handover: tuple[Handover, int], what: str) -> None:
    message, size = handover
    with pytest.raises(PeerError):
        inbox.check(0, sent(WRONG[what](message)), size)


def sent(message: Handover) -> Handover:
    """The message as another process receives it."""
    found = unpack(pack(message)[PREFIX.size :])
    assert isinstance(found, Handover)
    return found


@pytest.mark.parametrize("more", [-4, 4, 1 << 20])
def test_a_payload_of_another_size_is_refused(inbox: HandoverInbox, handover: tuple[Handover, int], more: int) -> None:
    message, size = handover
    with pytest.raises(PeerError, match="bytes instead of"):
        inbox.check(0, message, size + more)


def test_a_view_that_joins_buckets_is_refused() -> None:
    with pytest.raises(PeerError, match="joins buckets that were separate"):
        HandoverInbox(1, AFTER, MEMORY).adopt(View(4, MEMBERS, ((), (WHOLE,))))


@pytest.fixture
def wires() -> Iterator[tuple[Connection, Connection]]:
    with ExitStack() as stack:
        pair = [stack.enter_context(each) for each in socket.socketpair()]
        yield Connection(pair[0]), Connection(pair[1])


def test_nothing_leaves_before_it_is_asked_for(
    wires: tuple[Connection, Connection], handover: tuple[Handover, int]
) -> None:
    first, second = wires
    box, payload = HandoverOutbox(), np.zeros(handover[1], np.uint8)
    box.put(1, handover[0], payload)
    assert not list(box.due())
    box.ask(1, first, 2)  # an earlier view
    assert not list(box.due())
    box.ask(2, second, 3)  # another server
    assert not list(box.due())
    box.ask(1, first, 3)
    assert list(box.due()) == [(first, handover[0], payload)]
    assert not list(box.due())
    box.put(1, handover[0], payload)
    box.forget(1, second)
    assert len(list(box.due())) == 1
    box.put(1, handover[0], payload)
    box.forget(1, first)
    assert not list(box.due())


# With backups a bucket can come from several servers.

THREE = ((WHOLE,), (), ())


def moving(holders: Holders, view: int, *acting: ActingServer) -> View:
    return View(view, MEMBERS, holders, (), (), acting, 3)


def test_a_bucket_can_come_from_the_server_that_acts_for_a_dead_one() -> None:
    inbox = HandoverInbox(1, THREE, MEMORY)
    assert inbox.adopt(moving(((), (WHOLE,), ()), 3)) == {0}
    assert inbox.adopt(moving(((), (WHOLE,), ()), 4, ActingServer(0, 2, 0, 4))) == {2}
    assert inbox.awaits(2)
    assert not inbox.awaits(0)


def test_the_heir_of_a_dead_receiver_asks_the_server_that_had_the_bucket() -> None:
    inbox = HandoverInbox(2, THREE, MEMORY)
    assert inbox.adopt(moving(((), (WHOLE,), ()), 3)) == set()
    assert inbox.adopt(moving(((), (), (WHOLE,)), 4, ActingServer(1, 2, 0, 4))) == {0}


def test_a_second_handover_of_the_same_move_is_no_mistake(handover: tuple[Handover, int]) -> None:
    message, size = handover
    inbox = HandoverInbox(1, BEFORE, MEMORY)
    inbox.adopt(View(3, MEMBERS, AFTER, (), (), (), 3))
    inbox.check(0, message, size)
    inbox.arrived(message.bucket)
    assert MOVED not in inbox
    inbox.check(0, message, size)
    inbox.adopt(View(5, MEMBERS, (AFTER[0], (), AFTER[1]), (), (), (), 5))
    with pytest.raises(PeerError, match="not expected"):
        inbox.check(0, message, size)
