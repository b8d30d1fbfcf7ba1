"""What launchers are told of workers and servers: the launcher of the run, and those of hosts that have joined."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from peers import Peer, participant
from syncline.engines.coordinator import launchers as module
from syncline.engines.coordinator.first_hosts import FirstHosts
from syncline.engines.coordinator.launchers import Launchers
from syncline.engines.net.control import Ended, Hello, Seen
from syncline.messages import NodeId, server_id, worker_id


class Three:
    """The launcher, and two agents on one host, with the tokens `a` and `b`."""

    def __init__(self, peer: Callable[[], Peer]) -> None:
        self.peers = [peer() for _ in range(3)]
        self.launchers = Launchers(lambda wire, message: wire.send(message), FirstHosts(None))
        hellos = [Hello("run", "launcher", host="a"), *(Hello("", "agent", host="a", token=each) for each in "ab")]
        for each, hello in zip(self.peers, hellos, strict=True):
            self.launchers.enter(each.wire, hello)

    def heard(self) -> list[list[object]]:
        return [list(each.heard()) for each in self.peers]


@pytest.fixture
def outlives(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Notes that this process is to outlive its parent, which it is not."""
    noted: list[str] = []
    monkeypatch.setattr(module, "outlive_parent", lambda: noted.append("outlives"))
    return noted


@pytest.fixture
def three(peer: Callable[[], Peer], outlives: list[str]) -> Three:
    return Three(peer)


def test_the_coordinator_outlives_its_launcher_once_it_knows_it(three: Three, outlives: list[str]) -> None:
    assert outlives == ["outlives"]
    assert three.launchers.launcher is three.peers[0].wire
    assert [hello.role for hello in three.launchers.all.values()] == ["launcher", "agent", "agent"]


def test_some_things_are_for_the_launcher_alone(three: Three) -> None:
    three.launchers.tell_launcher(Ended())
    assert three.heard() == [[Ended()], [], []]


def test_before_there_is_a_launcher_nobody_is_told(peer: Callable[[], Peer]) -> None:
    Launchers(lambda wire, message: wire.send(message), FirstHosts(None)).tell_launcher(Ended())
    assert peer().heard() == []


def test_all_are_told_what_has_become_of_a_worker(three: Three, peer: Callable[[], Peer]) -> None:
    lost = participant(peer(), worker_id(1))
    lost.incarnation = 3
    three.launchers.tell(lost, "is gone")
    assert three.heard() == [[Seen("worker", 1, 3, "is gone", of=101)]] * 3


def test_a_usage_error_is_reported_as_such_only_to_the_launcher_of_the_worker(
    three: Three, peer: Callable[[], Peer]
) -> None:
    """A worker that joined belongs to the launcher that started it, whatever host it claims to be on."""
    three.launchers.tell(participant(peer(), worker_id(1)), "refused", usage=True)
    own, told = Seen("worker", 1, 0, "refused", usage=True, of=101), Seen("worker", 1, 0, "refused", of=101)
    assert three.heard() == [[own], [told], [told]]
    three.launchers.tell(participant(peer(), worker_id(2), own=False, token="a", host="b"), "refused", usage=True)
    own, told = Seen("worker", 2, 0, "refused", usage=True, of=102), Seen("worker", 2, 0, "refused", of=102)
    assert three.heard() == [[told], [own], [told]]


@pytest.mark.parametrize("id", [worker_id(7), server_id(3)], ids=str)
def test_a_number_is_told_to_the_agent_that_brought_the_process(
    three: Three, peer: Callable[[], Peer], id: NodeId
) -> None:
    joined = participant(peer(), id, own=False, token="a", pid=77)
    three.launchers.tell_name(joined)
    assert three.heard() == [[], [Seen(joined.id.role, joined.id.number, 0, "joined", pid=77)], []]


def test_a_launcher_that_stays_stopped_is_killed_unless_the_user_has_stopped_it(
    three: Three, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: killed.append(pid))
    three.launchers.all[three.peers[0].wire] = Hello("run", "launcher", host="a", pid=77)
    three.launchers.end_stopped(lambda _: 15.0, 10.0)
    assert killed == [], "its guard has some seconds"
    three.launchers.paused = True
    three.launchers.end_stopped(lambda _: 16.0, 10.0)
    assert killed == []
    three.launchers.paused = False
    three.launchers.end_stopped(lambda _: 16.0, 10.0)
    assert killed == [77]


def test_the_sessions_of_a_launcher_that_is_gone_are_killed(three: Three, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[int] = []
    monkeypatch.setattr(module, "kill_session", killed.append)
    three.launchers.sessions |= {11, 12, os.getpid()}
    three.launchers.kill_sessions()
    assert sorted(killed) == [11, 12], "not the one in which this process is"
