"""Which processes are stopped for too long, by this host's kernel or by another host's report; time is an argument."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

import pytest

from peers import Peer
from syncline.engines import process_state
from syncline.engines.coordinator.liveness import Liveness
from syncline.engines.coordinator.roster import RosterEntry
from syncline.engines.net.control import Frozen, Hello
from syncline.engines.process_state import host

PATIENCE = 10.0
ELSEWHERE = "another host"


def entries(*pids: int, on: str | None = None) -> dict[int, RosterEntry]:
    """Workers 0, 1, ... with these processes, of this host unless another is named."""
    return {n: RosterEntry(Hello("run", "worker", n, pid=pid, host=on or host())) for n, pid in enumerate(pids)}


@pytest.fixture
def states(monkeypatch: pytest.MonkeyPatch) -> dict[int, str]:
    """The kernel's letters for processes."""
    letters: dict[int, str] = {}
    monkeypatch.setattr(process_state, "state_of", letters.get)
    return letters


def numbers(found: object) -> list[int]:
    return [number for number, _ in found]  # type: ignore[attr-defined]


def test_a_process_may_be_stopped_for_as_long_as_the_patience(states: dict[int, str]) -> None:
    watch, workers = Liveness(PATIENCE), entries(7, 8, 9)
    states.update({7: "S", 8: "T", 9: "t"})
    assert numbers(watch.stopped(workers, 100.0)) == []
    assert numbers(watch.stopped(workers, 100.0 + PATIENCE)) == []
    assert numbers(watch.stopped(workers, 100.5 + PATIENCE)) == [1, 2]


def test_a_process_that_goes_on_for_a_moment_has_all_the_time_again(states: dict[int, str]) -> None:
    watch, workers = Liveness(PATIENCE), entries(7)
    for letter, now in (("T", 0.0), ("R", 9.0), ("T", 10.0), ("T", 20.0)):
        states[7] = letter
        assert numbers(watch.stopped(workers, now)) == []
    assert numbers(watch.stopped(workers, 20.5)) == [0]


def test_a_process_that_computes_or_is_gone_is_not_stopped(states: dict[int, str]) -> None:
    watch, workers = Liveness(PATIENCE), entries(7, 8, 9)
    states.update({7: "R", 8: "D"})
    for now in (0.0, 1000.0):
        assert numbers(watch.stopped(workers, now)) == []


def test_processes_of_other_hosts_are_not_looked_at(states: dict[int, str]) -> None:
    """Here the kernel would report about another process with the same number."""
    watch, workers = Liveness(PATIENCE), entries(7, on=ELSEWHERE)
    states[7] = "T"
    for now in (0.0, 1000.0):
        assert numbers(watch.stopped(workers, now)) == []


def test_with_infinite_patience_nobody_counts_as_dead(states: dict[int, str]) -> None:
    watch, workers = Liveness(inf), entries(7)
    states[7] = "T"
    for now in (0.0, 1e9):
        assert numbers(watch.stopped(workers, now)) == []


@pytest.mark.parametrize(
    ("frozen", "found"),
    [
        (Frozen(ELSEWHERE, 8, PATIENCE + 1), [1]),
        (Frozen(ELSEWHERE, 8, PATIENCE), []),
        (Frozen(ELSEWHERE, 80, PATIENCE + 1), []),
        (Frozen("a third host", 8, PATIENCE + 1), []),
        (Frozen(ELSEWHERE, 8, float("nan")), []),
    ],
)
def test_the_word_of_another_host_counts_for_its_own_processes(frozen: Frozen, found: list[int]) -> None:
    assert numbers(Liveness(PATIENCE).reported(entries(7, 8, on=ELSEWHERE), frozen)) == found


def test_reports_of_other_hosts_about_this_host_do_not_count() -> None:
    assert numbers(Liveness(PATIENCE).reported(entries(7), Frozen(host(), 7, 1e9))) == []


def test_it_is_here_only_by_host_and_process() -> None:
    watch = Liveness(PATIENCE)
    assert watch.is_here(entries(7)[0], 7)
    assert not watch.is_here(entries(7)[0], 8)
    assert not watch.is_here(entries(7, on=ELSEWHERE)[0], 7)


def test_a_connection_on_this_host_is_never_silent(peer: Callable[[], Peer]) -> None:
    watch, wires = Liveness(PATIENCE), [peer().wire, peer().wire]
    for now in (0.0, 1e9):
        assert list(watch.silent(wires, now)) == []
