"""The servers of one model that join and leave: which messages are sent, and when each is admitted or dismissed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from peers import NotedRun, Peer, participant
from syncline.draw import Draw
from syncline.effects import Admit, Dismiss, Event
from syncline.engines.coordinator.participant import Participant
from syncline.engines.coordinator.server_changes import ServerChanges
from syncline.engines.net.control import Begin, Declared, NodeAddress, Reach, Reached, layout_of
from syncline.errors import PeerError, UsageError
from syncline.layout import Bucket
from syncline.messages import Member, View, server_id, worker_id
from syncline.nodes.tree.coordinator import first_tree
from syncline.strategies.protocol import Job
from syncline.strategies.settings import defaults, strategy_in
from syncline.strategies.tree.strategy import TreeStrategy

VALUES = 1024
SETTINGS = {**defaults(), "mode": "changes", "rule": "add", "bucket": "1KiB"}
BUCKETS = tuple(Bucket(start, start + 256) for start in range(0, VALUES, 256))
VIEW = View(0, (Member(0, 0, 0), Member(1, 0, 0)), (BUCKETS,))


class Departures:
    """Notes what becomes of servers."""

    def __init__(self) -> None:
        self.noted: list[str] = []

    def joined(self, number: int, *, hands_over: bool) -> None:
        self.noted.append(f"{number} has joined" + ", and gets its part" * hands_over)

    def refuse(self, number: int, reason: str) -> None:
        self.noted.append(f"{number} is refused: {reason}")

    def keep(self, number: int, reason: str) -> None:
        self.noted.append(f"{number} stays: {reason}")


class Training:
    """Two workers and server 0, which holds everything; servers 1 and 2 have come later."""

    def __init__(self, peer: Callable[[], Peer], view: View = VIEW, **settings: str) -> None:
        self.departures = Departures()
        self.run = NotedRun(departures=self.departures)
        ids = [server_id(0), server_id(1), server_id(2), worker_id(0), worker_id(1)]
        self.peers = {str(id): peer() for id in ids}
        known = {id: participant(self.peers[str(id)], id, unix=f"@{id}") for id in ids}
        self.servers = {id.number: each for id, each in known.items() if id.role == "server"}
        self.workers = {id.number: each for id, each in known.items() if id.role == "worker"}
        self.changes = ServerChanges(self.run, self.servers, self.workers)
        self.may_move = True
        self.arranged = 0
        self.events: list[Event] = []
        tables = (Declared("w", (view.holders[-1][-1].stop,)),)
        self.begun = Begin(tables, {**SETTINGS, **settings}, view, (self.place(0),), 0, word="secret")

    def begin(self) -> Training:
        job = Job(layout_of(self.begun.tables), Draw(0))
        self.node = strategy_in(self.begun.settings).coordinator(job, self.begun.view)
        self.changes.begin(self.begun, self.node, self._handle, lambda: self.may_move, self._arranged)
        return self

    def _arranged(self) -> None:
        self.arranged += 1

    def _handle(self, event: Event) -> None:
        self.events.append(event)
        self.node.handle(event, 0.0)

    def place(self, number: int) -> NodeAddress:
        return self.servers[number].place

    def heard(self) -> dict[str, list[Any]]:
        """What each of them was told since the last time, if something."""
        found = {name: list(each.heard()) for name, each in self.peers.items()}
        return {name: frames for name, frames in found.items() if frames}

    def introduce(self, number: int) -> None:
        """Have a server come that knows what is trained, and forget what was said for it."""
        self.changes.introduce(self.servers[number])
        self.heard()

    def reach(self, number: int, *who: str) -> None:
        """These say that they have a connection to a server."""
        for each in (*self.servers.values(), *self.workers.values()):
            if str(each.id) in who:
                self.changes.reached(each, Reached(number, "", self.changes.arrivals.get(number, 0)))


@pytest.fixture
def training(peer: Callable[[], Peer]) -> Training:
    return Training(peer).begin()


# Who comes.


def test_a_server_that_has_come_is_told_what_is_trained(training: Training) -> None:
    training.changes.invite(1)
    expected = replace(training.begun, view=training.node.view, servers=(training.place(0),), leader=-1)
    assert training.heard() == {"server1": [expected]}
    training.changes.invite(0)
    assert training.heard() == {}


def test_before_something_is_trained_nobody_is_told(peer: Callable[[], Peer]) -> None:
    training = Training(peer)
    training.changes.invite(1)
    training.changes.arrange()
    assert training.heard() == {}
    assert training.changes.is_free(0)
    assert not training.changes.holds(0)
    with pytest.raises(PeerError, match="Seated"):
        training.changes.introduce(training.servers[1])


def test_everyone_else_is_told_where_a_server_is_that_knows(training: Training) -> None:
    training.changes.introduce(training.servers[1])
    reach = Reach(1, training.place(1), 1)
    assert training.heard() == {name: [reach] for name in ("server0", "server2", "worker0", "worker1")}
    with pytest.raises(PeerError, match="a second time"):
        training.changes.introduce(training.servers[1])
    with pytest.raises(PeerError, match="a second time"):
        training.changes.introduce(training.servers[0])


def test_a_server_is_admitted_when_all_have_reached_it(training: Training) -> None:
    training.introduce(1)
    before = training.node.view
    training.reach(1, "server0", "server2", "worker0")
    assert training.events == []
    training.reach(1, "worker1")
    assert training.events == [Admit(1)]
    assert training.departures.noted == ["1 has joined, and gets its part"]
    assert training.heard() == {"server1": [before]}, "it is told of the present view before the one that admits it"
    assert training.changes.holds(1)


def test_processes_that_join_meanwhile_must_reach_it_too(training: Training) -> None:
    """A worker and a server that come later are told of all servers that hold nothing yet."""
    training.introduce(1)
    training.changes.mention(training.servers[2])
    training.changes.mention(training.workers[1])
    reach = Reach(1, training.place(1), 1)
    assert training.heard() == {"server2": [reach], "worker1": [reach]}
    training.reach(1, "server0", "server2", "worker0")
    assert training.events == []


def test_a_server_that_somebody_cannot_reach_is_refused(training: Training) -> None:
    training.introduce(1)
    training.changes.reached(training.workers[1], Reached(1, "no route", 1))
    training.reach(1, "server0", "server2", "worker0")
    assert training.events == []
    assert training.departures.noted == ["1 is refused: worker1 cannot reach it: no route"]


def test_an_answer_about_a_process_that_has_died_meanwhile_means_nothing(
    training: Training, peer: Callable[[], Peer]
) -> None:
    """A worker could not reach the server, which dies; the answer comes when the server has started again."""
    training.introduce(1)
    training.changes.closed(1)
    training.servers[1] = participant(peer(), server_id(1))
    training.introduce(1)
    training.changes.reached(training.workers[1], Reached(1, "no route", 1))
    training.changes.reached(training.workers[0], Reached(1, "", 1))
    assert training.departures.noted == []
    training.reach(1, "server0", "server2", "worker1")
    assert training.events == [], "worker0 has not answered about this process"
    training.reach(1, "worker0")
    assert training.events == [Admit(1)]


def test_nobody_waits_for_those_who_are_gone(training: Training) -> None:
    training.introduce(1)
    training.reach(1, "server0", "worker0", "worker1")
    training.changes.closed(2)
    assert training.events == [Admit(1)]
    assert 2 not in training.servers


def test_who_is_gone_before_it_was_reached_is_forgotten(training: Training) -> None:
    training.introduce(1)
    training.changes.closed(1)
    training.reach(1, "server0", "server2", "worker0", "worker1")
    assert training.events == []


def test_nobody_is_admitted_before_all_have_started(training: Training) -> None:
    training.may_move = False
    training.introduce(1)
    training.reach(1, "server0", "server2", "worker0", "worker1")
    assert training.events == []
    training.may_move = True
    training.changes.arrange()
    assert training.events == [Admit(1)]


def test_a_server_gets_no_part_between_different_sync_models(peer: Callable[[], Peer]) -> None:
    view = View(0, VIEW.members, (BUCKETS[:2], BUCKETS[2:]))
    training = Training(peer, view, sync="asp bsp").begin()
    training.changes.invite(2)
    assert training.heard() == {}
    (said,) = training.departures.noted
    assert said.startswith("2 is refused: the servers that would give it a part have different sync models")


def test_a_bucket_that_is_too_large_to_move_keeps_servers_where_they_are(peer: Callable[[], Peer]) -> None:
    """With the updates of two workers it is three arrays of 400 MB each, and a message carries one GiB."""
    view = View(0, VIEW.members, ((Bucket(0, 100_000_000),),))
    training = Training(peer, view, bucket="1GiB").begin()
    training.changes.invite(1)
    (said,) = training.departures.noted
    assert said.startswith("1 is refused: a bucket of 1GiB is too large to move with the updates of 2 workers")
    with pytest.raises(UsageError, match="too large to move"):
        training.changes.check_leaving(0)


# Who goes.


def two(peer: Callable[[], Peer]) -> Training:
    """Servers 0 and 1 hold half each."""
    return Training(peer, View(0, VIEW.members, (BUCKETS[:2], BUCKETS[2:]))).begin()


def test_a_server_is_dismissed_when_it_is_to_leave(peer: Callable[[], Peer]) -> None:
    training = two(peer)
    training.changes.check_leaving(1)
    training.changes.leave(1)
    assert training.events == [Dismiss(1)]
    assert training.node.view.holders == (BUCKETS, ())
    assert not training.changes.is_free(1), "what it held is on its way"
    assert training.changes.is_free(2)
    assert not training.changes.stay(1)


def test_the_only_server_leaves_when_another_is_admitted(training: Training) -> None:
    training.changes.check_leaving(0)
    training.changes.leave(0)
    assert training.events == []
    training.introduce(1)
    training.reach(1, "server0", "server2", "worker0", "worker1")
    assert training.events == [Admit(1), Dismiss(0)]


def test_a_server_that_waits_to_leave_can_be_kept(training: Training) -> None:
    training.changes.leave(0)
    assert training.changes.stay(0)
    training.introduce(1)
    training.reach(1, "server0", "server2", "worker0", "worker1")
    assert training.events == [Admit(1)]


def test_a_server_that_holds_nothing_just_goes(training: Training) -> None:
    training.introduce(1)
    training.changes.check_leaving(1)
    training.changes.leave(1)
    training.reach(1, "server0", "server2", "worker0", "worker1")
    assert training.events == []
    assert training.changes.is_free(1)


def test_a_server_that_leaves_before_the_start_holds_no_part(peer: Callable[[], Peer]) -> None:
    training = Training(peer)
    training.changes.check_leaving(0)
    training.changes.leave(0)
    assert list(training.servers) == [1, 2]
    assert training.changes.places(View(0, (), ((), ()))) == (NodeAddress("", "", ""), training.place(1))


# A strategy whose servers hold the whole model: those that join get the initial parameters first.

TREE = TreeStrategy().with_servers(1).fitted(2)
TREE_VIEW = View(0, VIEW.members, first_tree((), 1, (0, 1)))


@pytest.fixture
def tree(peer: Callable[[], Peer]) -> Training:
    training = Training(peer, strategy="tree", **TREE.words())
    training.begun = replace(training.begun, view=TREE_VIEW, tables=(Declared("w", (VALUES,)),))
    training.begin()
    for number in (1, 2):
        training.servers[number].own = False
        training.servers[number].hello = replace(training.servers[number].hello, token=f"host {number}")
    return training


def joining(training: Training, peer: Callable[[], Peer], number: int) -> Participant:
    """A worker that the launcher of server `number` has started."""
    return participant(peer(), worker_id(5), own=False, token=f"host {number}")


def test_a_server_that_holds_everything_is_admitted_by_the_view_that_names_it(tree: Training) -> None:
    tree.changes.invite(1)
    (begin,) = tree.heard()["server1"]
    assert (begin.leader, begin.view) == (-1, TREE_VIEW)
    tree.introduce(1)
    tree.reach(1, "server0", "server2", "worker0", "worker1")
    assert tree.events == [Admit(1)]
    assert tree.departures.noted == ["1 has joined"]
    assert "server1" not in tree.heard(), "no view without it"
    assert tree.node.servers == {0, 1}


def test_a_worker_waits_for_the_server_of_its_launcher(tree: Training, peer: Callable[[], Peer]) -> None:
    worker, other = joining(tree, peer, 1), joining(tree, peer, 7)
    assert not tree.changes.brings_server(worker), "its server was told of no model"
    tree.changes.invite(1)
    assert tree.changes.brings_server(worker)
    assert not tree.changes.brings_server(other)
    assert not tree.changes.brings_server(tree.workers[0])
    before = tree.arranged
    tree.introduce(1)
    assert tree.changes.brings_server(worker)
    tree.reach(1, "server0", "server2", "worker0", "worker1")
    assert not tree.changes.brings_server(worker)
    assert tree.arranged > before


def test_a_worker_does_not_wait_for_a_server_that_is_refused_or_gone(tree: Training, peer: Callable[[], Peer]) -> None:
    tree.changes.invite(1)
    tree.changes.invite(2)
    tree.introduce(1)
    tree.changes.reached(tree.workers[0], Reached(1, "no way", 1))
    assert tree.departures.noted == ["1 is refused: worker0 cannot reach it: no way"]
    assert not tree.changes.brings_server(joining(tree, peer, 1))
    assert tree.changes.brings_server(joining(tree, peer, 2))
    before = tree.arranged
    tree.changes.closed(2)
    assert not tree.changes.brings_server(joining(tree, peer, 2))
    assert tree.arranged > before


def test_a_worker_that_the_run_starts_later_waits_for_a_node_that_it_starts_later(
    tree: Training, peer: Callable[[], Peer]
) -> None:
    tree.servers[1].own = True
    tree.changes.invite(1)
    assert tree.changes.brings_server(participant(peer(), worker_id(2)))
    assert not tree.changes.brings_server(participant(peer(), worker_id(1))), "it was there from the start"
    assert not tree.changes.brings_server(joining(tree, peer, 1))


def test_a_server_that_is_away_is_not_merged(tree: Training) -> None:
    tree.changes.check_merge([0])
    tree.changes.away.add(0)
    with pytest.raises(UsageError, match="node 0 has died and is not back yet"):
        tree.changes.check_merge([1, 0])
