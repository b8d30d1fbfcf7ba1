"""Workers that connect to each other: each shows the pass that the coordinator gave to it for the other one."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from peers import Peer
from syncline.engines.net.control import Hello, NodeAddress, Peers
from syncline.engines.net.tokens import peer_pass, server_pass
from syncline.engines.net.wiring import Wiring
from syncline.engines.worker.link import WorkerLink
from syncline.engines.worker.peer_lanes import PeerLanes
from syncline.errors import PeerError
from syncline.messages import worker_id

SECRET = "what the coordinator knows"
OWN = server_pass(SECRET, 0, 0)
HELLO = Hello("run", "worker", 0, word=OWN)


@pytest.fixture
def lanes() -> Iterator[PeerLanes]:
    link = WorkerLink(Wiring())
    yield PeerLanes(HELLO, Wiring(), link._traffic, ())
    link.close()


@pytest.mark.parametrize(
    "word", ["", OWN, SECRET, peer_pass(OWN, 2), peer_pass(server_pass(SECRET, 1, 0), 0), server_pass(SECRET, 1, 0)]
)
def test_nobody_takes_the_number_of_another_worker(lanes: PeerLanes, peer: Callable[[], Peer], word: str) -> None:
    with pytest.raises(PeerError, match="worker 1 did not show its pass"):
        lanes.greet(peer().wire, Hello("run", "worker", 1, word=word))


def test_who_shows_its_pass_is_known(lanes: PeerLanes, peer: Callable[[], Peer]) -> None:
    """Also before this worker has been told who the others are."""
    made = peer()
    lanes._traffic.loop.add(made.wire, unauthenticated=True)
    assert lanes.greet(made.wire, Hello("run", "worker", 1, word=peer_pass(OWN, 1))) == worker_id(1)


def test_a_worker_that_has_ended_is_not_called_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that was made before it left may come after the end of its connection."""
    link = WorkerLink(Wiring())
    lanes = PeerLanes(Hello("run", "worker", 5, word=OWN), Wiring(), link._traffic, ())
    called: list[object] = []
    monkeypatch.setattr(lanes, "call", called.append)
    lanes.want(frozenset({worker_id(1), worker_id(2), worker_id(7)}))
    assert sorted(called) == [worker_id(1), worker_id(2)]  # type: ignore[type-var]
    called.clear()
    lanes._lost[worker_id(2)] = "its connection ended"
    lanes.want(frozenset({worker_id(1), worker_id(2)}))
    assert called == [worker_id(1)]
    link.close()


@pytest.mark.parametrize(
    ("told", "incarnation", "calls"),
    [({1: 0}, 0, True), ({}, 0, False), ({1: 0}, 1, False)],
    ids=["", "not", "earlier"],
)
def test_of_two_workers_that_join_the_one_that_was_told_of_the_other_connects(
    told: dict[int, int], incarnation: int, calls: bool, lanes: PeerLanes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one was not: it had listened before. And a worker that has started again connects to all."""
    called: list[object] = []
    monkeypatch.setattr(lanes, "call", called.append)
    lanes.learn(Peers({number: NodeAddress("", "", "") for number in told}, {}, told))
    lanes.want(frozenset({worker_id(1)}), {worker_id(1): incarnation})
    assert called == [worker_id(1)] * calls
