"""Heartbeats: what the silence of a peer means, by whether its host acknowledges data; time comes in as an argument."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import Peer
from syncline.engines.coordinator import agent_watch as module
from syncline.engines.coordinator.agent_watch import AgentWatch
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Heartbeat, Hello
from syncline.engines.net.heartbeats import BEAT_SECONDS, CUT_SECONDS, LATE_SECONDS, Heartbeats, Silence

PATIENCE = 10.0
STOPPED_SECONDS = PATIENCE + 2 * BEAT_SECONDS


def test_a_beat_is_due_at_intervals() -> None:
    beats = Heartbeats(PATIENCE, lambda _: False)
    assert [now for now in range(10) if beats.due(float(now))] == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    ("in_flight", "silence", "verdict"),
    [
        (False, STOPPED_SECONDS, Silence.WELL),
        (False, STOPPED_SECONDS + 1, Silence.STOPPED),
        (True, STOPPED_SECONDS + 1, Silence.WELL),
        (True, CUT_SECONDS, Silence.WELL),
        (True, CUT_SECONDS + 1, Silence.GONE),
    ],
)
def test_what_silence_means(in_flight: bool, silence: float, verdict: Silence, peer: Callable[[], Peer]) -> None:
    """A host that acknowledges data is reachable; one that does not may be reachable again soon."""
    beats, wire = Heartbeats(PATIENCE, lambda _: in_flight), peer().wire
    beats.heard(wire, 100.0)
    assert beats.verdict(wire, 100.0 + silence) is verdict
    beats.heard(wire, 100.0 + silence)
    assert beats.verdict(wire, 100.0 + silence) is Silence.WELL


def test_with_a_short_patience_a_late_heartbeat_is_still_no_death(peer: Callable[[], Peer]) -> None:
    beats, wire = Heartbeats(0.1, lambda _: False), peer().wire
    beats.heard(wire, 0.0)
    assert beats.verdict(wire, LATE_SECONDS) is Silence.WELL


class Watch:
    """Two launchers on host `far`, one on this host."""

    def __init__(self, peer: Callable[[], Peer], monkeypatch: pytest.MonkeyPatch) -> None:
        self.peers = [peer() for _ in range(4)]
        hosts = [("launcher", "here"), ("agent", "far"), ("agent", "far"), ("agent", "here")]
        agents = {
            each.wire: Hello("run", role, host=host) for each, (role, host) in zip(self.peers, hosts, strict=True)
        }
        self.lines: list[str] = []
        monkeypatch.setattr(Connection, "peer", "192.0.2.7")
        monkeypatch.setattr(module, "unacknowledged", lambda _: False)
        self.watch = AgentWatch("here", agents, PATIENCE, lambda wire, message: wire.send(message), self.lines.append)


@pytest.fixture
def two(peer: Callable[[], Peer], monkeypatch: pytest.MonkeyPatch) -> Watch:
    return Watch(peer, monkeypatch)


def test_launchers_that_joined_get_beats(two: Watch) -> None:
    two.watch.look(0.0)
    assert [each.heard() for each in two.peers] == [[], [Heartbeat()], [Heartbeat()], [Heartbeat()]]


def test_a_host_is_stopped_when_all_its_launchers_are(two: Watch) -> None:
    two.watch.look(0.0)
    two.watch.heard(two.peers[1].wire, Heartbeat(), 10.0)
    assert two.watch.look(STOPPED_SECONDS + 1) == (set(), [])
    assert two.watch.look(10.0 + STOPPED_SECONDS + 1) == ({"far"}, [])


def test_the_user_is_told_once_that_a_launcher_is_silent_and_that_it_is_back(two: Watch) -> None:
    for now in range(13):
        two.watch.heard(two.peers[2].wire, Heartbeat(), float(now))
        two.watch.look(float(now))
    assert two.lines == ["the launcher that joined from 192.0.2.7 has sent nothing for 10 s"]
    two.watch.heard(two.peers[1].wire, Heartbeat(), 13.0)
    two.watch.heard(two.peers[1].wire, Heartbeat(), 14.0)
    assert two.lines[1:] == [
        "the launcher that joined from 192.0.2.7 continues after 13 s of silence, on the same connection"
    ]


def test_a_launcher_that_the_user_stopped_does_not_count_as_stopped(two: Watch) -> None:
    for wire in (two.peers[1].wire, two.peers[2].wire):
        two.watch.heard(wire, Heartbeat(pausing=True), 0.0)
    assert two.watch.look(1e6) == (set(), [])
    two.watch.heard(two.peers[1].wire, Heartbeat(), 1e6)
    two.watch.heard(two.peers[2].wire, Heartbeat(), 1e6)
    assert two.watch.look(1e6 + 100)[1] == [two.peers[1].wire, two.peers[2].wire]
    assert len(two.lines) == 2, "late only after they had continued"
