"""The line that says which workers the run waits for: when it is printed, and its text; time is an argument."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from peers import Peer
from syncline.engines.coordinator.waiting import FIRST_PAUSE, WaitingWorkers, listed


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["each other"], "each other"),
        (["worker 1", "worker 2"], "worker 1 and worker 2"),
        (["worker 1", "worker 2", "worker 3"], "worker 1, worker 2 and worker 3"),
        ([str(n) for n in range(10)], "0, 1, 2, 3, 4, 5, 6, 7 and 2 more"),
    ],
)
def test_names_are_listed(names: list[str], text: str) -> None:
    assert listed(names) == text


def test_the_line_comes_at_once_and_then_rarely(peer: Callable[[], Peer]) -> None:
    waiting, wire, names = WaitingWorkers(), peer().wire, ["worker 1"]
    assert waiting.line(names, 100.0) is None, "nobody waits"
    waiting.heard(wire, 10, 100.0)
    assert waiting.line(names, 100.0) == "waiting for worker 1 for 10 s"
    said = [now for now in range(101, 1000) if waiting.line(names, float(now))]
    assert said == [100 + FIRST_PAUSE, 100 + 3 * FIRST_PAUSE, 100 + 7 * FIRST_PAUSE]


def test_a_worker_that_is_slow_in_every_step_is_not_named_in_every_step(peer: Callable[[], Peer]) -> None:
    waiting, wire, names = WaitingWorkers(), peer().wire, ["worker 1"]
    said = 0
    for step in range(10):
        waiting.heard(wire, 10, step * 15.0)
        said += waiting.line(names, step * 15.0) is not None
        waiting.heard(wire, 0, step * 15.0 + 2)
        assert not waiting
    assert said == 2, "at 0 s, and a minute later"


def test_another_worker_is_named_at_once(peer: Callable[[], Peer]) -> None:
    waiting, wire = WaitingWorkers(), peer().wire
    waiting.heard(wire, 10, 0.0)
    assert waiting.line(["worker 1"], 0.0)
    assert waiting.line(["worker 2"], 1.0) == "waiting for worker 2 for 11 s"


def test_a_connection_that_has_ended_waits_no_more(peer: Callable[[], Peer]) -> None:
    waiting, wire = WaitingWorkers(), peer().wire
    waiting.heard(wire, 10, 0.0)
    assert waiting
    waiting.forget(wire)
    assert waiting.line(["worker 1"], 1.0) is None
