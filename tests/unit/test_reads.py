"""What a worker sends to servers or requests from them outside of iterations, and what is still missing."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from syncline.engines.net.control import Read, Seed
from syncline.engines.net.frames import Frame
from syncline.engines.net.shared_memory import LaneMemory
from syncline.engines.worker.reads import PendingReads
from syncline.errors import PeerError
from syncline.layout import Bucket, Payload
from syncline.messages import Holders, Moved, NodeId, server_id

FIRST, SECOND, THIRD = Bucket(0, 4), Bucket(4, 6), Bucket(6, 8)
S0, S1, S2 = (server_id(number) for number in range(3))


def placed(view: int, holder: Mapping[Bucket, NodeId]) -> tuple[int, Holders]:
    """The number and the placement of a view in which these servers hold these buckets."""
    servers = range(1 + max(each.number for each in holder.values()))
    return view, tuple(tuple(b for b, each in holder.items() if each.number == n) for n in servers)


class Reader:
    """Pending reads, and what they send."""

    def __init__(self) -> None:
        self.sent: list[tuple[NodeId, Frame]] = []
        self.places: list[Payload | None] = []
        self.reads = PendingReads(*placed(3, {FIRST: S0, SECOND: S1, THIRD: S1}), self._send)

    def _send(self, to: NodeId, message: Frame, place: Payload | None = None) -> None:
        self.sent.append((to, message))
        self.places.append(place)


@pytest.fixture
def reader() -> Reader:
    return Reader()


def test_each_bucket_is_requested_from_its_holder(reader: Reader) -> None:
    reader.reads.read()
    assert reader.sent == [
        (S0, Read(FIRST, "", 3)),
        (S1, Read(SECOND, "", 3)),
        (S1, Read(THIRD, "", 3)),
    ]
    assert reader.places == [None] * 3
    assert reader.reads.asked(S0, FIRST)
    assert [reader.reads.asked(server, SECOND) for server in (S0, S1)] == [False, True]
    assert [reader.reads.waits_for(server) for server in (S0, S1, S2)] == [True, True, False]


def test_what_has_arrived_is_no_longer_waited_for(reader: Reader) -> None:
    reader.reads.read("velocity")
    assert reader.sent[0] == (S0, Read(FIRST, "velocity", 3))
    for server, bucket in ((S0, FIRST), (S1, SECOND)):
        reader.reads.arrived(server, bucket)
        reader.reads.arrived(server, bucket)
    assert not reader.reads.waits_for(S0)
    assert not reader.reads.asked(S1, SECOND)
    assert reader.reads
    reader.reads.arrived(S1, THIRD)
    assert not reader.reads


def test_first_parameters_are_given_without_an_answer(reader: Reader) -> None:
    memory = LaneMemory(8)
    memory.updates[:] = np.arange(8)
    reader.reads.seed((THIRD, FIRST), memory)
    assert reader.sent == [(S1, Seed(THIRD)), (S0, Seed(FIRST))]
    assert [place.tolist() for place in reader.places if place is not None] == [[6, 7], [0, 1, 2, 3]]
    assert not reader.reads


def test_what_a_rule_remembers_is_acknowledged(reader: Reader) -> None:
    reader.reads.seed((FIRST,), LaneMemory(8), "velocity")
    assert reader.sent == [(S0, Seed(FIRST, "velocity"))]
    assert reader.reads.asked(S0, FIRST)
    reader.reads.arrived(S0, FIRST)
    assert not reader.reads


def test_what_has_moved_is_asked_for_where_it_is_in_pieces(reader: Reader) -> None:
    reader.reads.read("velocity")
    reader.sent.clear()
    pieces = {Bucket(0, 1): S0, Bucket(1, 4): S2}
    reader.reads.adopt(*placed(5, {**pieces, SECOND: S1, THIRD: S1}))
    reader.reads.moved(S0, Moved(5, 0, -1, FIRST))
    assert reader.sent == [(server, Read(piece, "velocity", 5)) for piece, server in pieces.items()]
    assert not reader.reads.asked(S0, FIRST)
    assert reader.reads.waits_for(S2)


@pytest.mark.parametrize("view", [2, 3])
def test_a_server_that_disowns_what_is_its_own_breaks_the_protocol(reader: Reader, view: int) -> None:
    reader.reads.read()
    with pytest.raises(PeerError, match=f"which it holds in view {view}"):
        reader.reads.moved(S0, Moved(view, 0, -1, FIRST))


def test_first_values_do_not_move(reader: Reader) -> None:
    """Nothing moves before all hold them."""
    reader.reads.seed((FIRST,), LaneMemory(8), "velocity")
    with pytest.raises(PeerError, match="it sent Moved for"):
        reader.reads.moved(S0, Moved(9, 0, -1, FIRST))


def test_initial_values_also_go_to_a_server_that_holds_the_same_buckets(reader: Reader) -> None:
    memory = LaneMemory(8)
    reader.reads.seed_copies(S2, (FIRST, SECOND), memory)
    assert reader.sent == [(S2, Seed(FIRST)), (S2, Seed(SECOND)), (S2, Read(SECOND))]
    assert reader.reads.asked(S2, SECOND)
    assert not reader.reads.asked(S1, SECOND)
    reader.reads.arrived(S2, SECOND)
    assert not reader.reads
