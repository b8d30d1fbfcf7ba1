"""The launcher's watch over its processes, without processes: who is stopped, for how long, and what follows."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from syncline.engines import process_state
from syncline.engines.launch import launcher as module
from syncline.engines.launch.child import Child
from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import Plan

PATIENCE = 10.0


class NotedChild(Child):
    """A process that only exists by its number; signals to it are noted."""

    def __init__(self, name: str, pid: int) -> None:
        super().__init__(name, None, None)  # type: ignore[arg-type]
        self.number = pid
        self.signals: list[int] = []

    @property
    def pid(self) -> int:
        return self.number

    def signal(self, number: int) -> None:
        self.signals.append(number)


class Watched:
    """A launcher with a coordinator (7), a server (8) and two workers (9, 10), at a time that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.states: dict[int, str] = {}
        self.lines: list[str] = []
        monkeypatch.setattr(module, "monotonic", lambda: self.now)
        monkeypatch.setattr(process_state, "state_of", lambda pid: self.states.get(pid, "S"))
        monkeypatch.delenv("SYNCLINE_PATIENCE", raising=False)
        self.launcher = Launcher(Plan(("program",), 2), lambda _, text: self.lines.append(text))
        children = [NotedChild(name, 7 + n) for n, name in enumerate(("coordinator", "server0", "w0", "w1"))]
        self.coordinator, self.server, *self.workers = children
        whole: Any = self.launcher
        whole.coordinator, whole.servers, whole.workers = self.coordinator, [self.server], self.workers
        whole._children._everyone.extend(children)

    def look(self, now: float) -> None:
        self.now = now
        self.launcher._watch()

    def runs(self) -> list[bool]:
        return [self.launcher._runs(worker) for worker in self.workers]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(monkeypatch)


def test_the_time_of_a_stopped_worker_counts_while_another_one_runs(watched: Watched) -> None:
    """It was counted only from the end of the other one, so that a stopped worker cost its patience twice."""
    watched.states[10] = "T"
    watched.look(0.0)
    assert watched.runs() == [True, True]
    watched.look(PATIENCE + 1)
    assert watched.runs() == [True, False]
    watched.workers[0].code = 0
    assert not any(watched.runs()), "the launcher waits no longer"


def test_a_coordinator_that_stays_stopped_is_killed(watched: Watched) -> None:
    watched.states[7] = "T"
    watched.look(0.0)
    watched.look(PATIENCE)
    assert watched.coordinator.signals == []
    watched.look(PATIENCE + 1)
    assert watched.coordinator.signals == [signal.SIGKILL]
    assert "the coordinator was stopped for more than 10 s; it counts as dead" in watched.lines[0]


@pytest.mark.parametrize(("pid", "name"), [(8, "server0"), (10, "w1")])
def test_without_a_coordinator_a_process_that_stays_stopped_ends_the_run(pid: int, name: str, watched: Watched) -> None:
    watched.states[pid] = "T"
    watched.look(0.0)
    watched.look(PATIENCE + 1)
    assert watched.launcher._outcome.over is None, "the coordinator decides"
    watched.coordinator.code = -9
    watched.look(PATIENCE + 2)
    expected = f"{name} has been stopped for more than 10 s, and the coordinator is dead"
    assert watched.launcher._outcome.over == expected


def test_a_worker_that_continues_is_waited_for(watched: Watched) -> None:
    watched.states[9] = "T"
    watched.look(0.0)
    watched.look(PATIENCE + 1)
    assert watched.runs() == [False, True]
    watched.states[9] = "R"
    watched.look(PATIENCE + 2)
    assert watched.runs() == [True, True]
