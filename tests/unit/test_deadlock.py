"""Workers that wait for each other for ever: when the run ends for it, and when not; time is an argument."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import Peer
from syncline.engines.coordinator.deadlock import DeadlockWatch
from syncline.engines.coordinator.roster import Roster, RosterEntry
from syncline.engines.coordinator.waiting import WaitingWorkers
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello
from syncline.engines.net.wiring import Wiring

LIMIT = 120.0
CALLS = {0: "barrier"}


class Wire:
    """What the roster knows of a connection of a worker."""

    def __init__(self, wire: Connection) -> None:
        self.wire = wire


class Crew:
    """Three workers."""

    def __init__(self, peer: Callable[[], Peer]) -> None:
        self.waiting = WaitingWorkers()
        self.watch = DeadlockWatch(self.waiting, LIMIT)
        self.wires = [peer().wire for _ in range(3)]
        self.roster = Roster(3, 1, Wiring())
        for number, wire in enumerate(self.wires):
            self.roster.workers[number] = RosterEntry(Hello("", "worker", number), peers=[Wire(wire)])  # type: ignore[list-item]

    def say(self, number: int, seconds: int, still: bool, now: float = 0.0) -> None:
        self.waiting.heard(self.wires[number], seconds, now, still)

    def look(self, now: float, calls: dict[int, str] = CALLS, needed: tuple[int, ...] = (0, 1, 2)) -> str | None:
        return self.watch.look(needed, self.roster, calls, now)

    def locked(self) -> Crew:
        """Worker 0 waits in a call, the others elsewhere."""
        for number in range(3):
            self.say(number, 30, still=True)
        assert self.look(0.0) is None
        return self


@pytest.fixture
def crew(peer: Callable[[], Peer]) -> Crew:
    return Crew(peer)


def test_a_deadlock_is_reported_after_the_limit(crew: Crew) -> None:
    crew.locked()
    assert crew.look(LIMIT - 1) is None
    assert crew.look(LIMIT) == (
        "deadlock for 120 s: worker 0 waits in barrier for all workers, and worker 1 and worker 2 wait in another call"
        "; make the same calls on every worker, in the same order"
    )
    assert crew.look(LIMIT + 1) is None, "once"


@pytest.mark.parametrize(("seconds", "still"), [(0, False), (500, False)], ids=["computes", "receives"])
def test_it_is_no_deadlock_while_a_worker_goes_on(crew: Crew, seconds: int, still: bool) -> None:
    """It computes, or waits and receives; then the time counts from the beginning."""
    crew.locked().say(2, seconds, still)
    assert crew.look(LIMIT) is None
    crew.say(2, 30, still=True)
    assert crew.look(LIMIT + 1) is None
    assert crew.look(2 * LIMIT) is None
    assert crew.look(2 * LIMIT + 1) is not None


def test_it_is_no_deadlock_if_all_make_the_call_or_none(crew: Crew) -> None:
    crew.locked()
    assert crew.look(LIMIT, {}) is None
    assert crew.look(LIMIT, dict.fromkeys(range(3), "barrier")) is None
    assert crew.look(2 * LIMIT - 1) is None


def test_it_is_no_deadlock_while_the_servers_change_or_a_worker_is_missing(crew: Crew) -> None:
    crew.locked()
    assert crew.look(LIMIT, needed=()) is None
    assert crew.look(LIMIT + 1, needed=(0, 1, 2, 3)) is None, "worker 3 is not connected"
    assert crew.look(3 * LIMIT, needed=(0, 1, 2)) is None
