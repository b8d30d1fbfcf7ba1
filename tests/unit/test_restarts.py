"""Which workers may be restarted, how often, and in which runs none can."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from syncline.engines.coordinator.joining import check_joiner, check_restarts
from syncline.engines.coordinator.returning_workers import WORD_SECONDS, ReturningWorkers
from syncline.engines.launch.child import Child
from syncline.engines.launch.children import Children
from syncline.engines.launch.outcome import RunOutcome
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.launch.restarts import Restarts
from syncline.errors import UsageError
from syncline.strategies.settings import strategy_in


@pytest.fixture
def children() -> Iterator[Children]:
    made = Children(lambda *_: None)
    yield made
    made.stop()


def dead(children: Children, code: int) -> Child:
    """A process that has ended with this code."""
    child = children.start("w1", [sys.executable, "-S", "-c", f"import os; os._exit({code})"], {})
    child.code = child.process.wait()
    return child


def test_a_lost_worker_is_waited_for_until_the_launcher_speaks() -> None:
    returning = ReturningWorkers(True, 3)
    returning.lost(1, 0.0)
    assert returning
    assert 1 in returning
    assert returning.overdue(WORD_SECONDS) == []
    returning.word(1, again=False)
    assert not returning


def test_the_launcher_that_says_nothing_is_not_waited_for() -> None:
    returning = ReturningWorkers(True, 3)
    returning.lost(1, 0.0)
    assert returning.overdue(WORD_SECONDS + 0.1) == [1]
    assert not returning


def test_a_worker_that_is_started_again_is_waited_for_however_long_it_takes() -> None:
    returning = ReturningWorkers(True, 3)
    returning.lost(1, 0.0)
    returning.word(1, again=True)
    returning.lost(1, 5.0)  # another of its connections
    assert returning.overdue(1e9) == []
    returning.back(1)
    assert not returning


@pytest.mark.parametrize(("allowed", "number"), [(False, 1), (True, 3)], ids=["no restarts", "of another launcher"])
def test_workers_that_are_not_restarted(allowed: bool, number: int) -> None:
    returning = ReturningWorkers(allowed, 3)
    returning.lost(number, 0.0)
    assert not returning


def test_restarts_are_counted(children: Children) -> None:
    restarts, first = Restarts(2), dead(children, 3)
    assert restarts.left == 2
    assert restarts.note(first) == "w1 ended with exit code 3; it is restarted (restart 1 of 2)"
    second = dead(children, 4)
    restarts.started(second, first)
    assert (restarts.left, second.restarts) == (1, 1)
    assert restarts.was_replaced(first.pid)
    assert not restarts.was_replaced(second.pid)


def test_a_worker_that_comes_back_when_all_is_done_has_not_failed(children: Children) -> None:
    outcome, late = RunOutcome(alone=False), dead(children, 1)
    outcome.done = True
    assert outcome.is_fatal(late, worker=True)
    late.restarts = 1
    assert not outcome.is_fatal(late, worker=True)
    outcome.done = False
    assert outcome.is_fatal(late, worker=True)


@pytest.mark.parametrize("settings", [{"mode": "gradients"}, {"rule": "mean"}])
def test_restarts_are_refused_where_nobody_can_join(settings: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="--restarts: in mode 'gradients'"):
        checked(Plan([], settings=settings, restarts=1))
    assert checked(Plan([], settings=settings)).restarts == 0


@pytest.mark.parametrize("settings", [{}, {"sync": "bsp"}, {"sync": "ssp:3"}, {"mode": "changes"}, {"rule": "sgd:0.1"}])
def test_restarts_may_work_where_the_program_chooses_the_mode(settings: dict[str, str]) -> None:
    assert checked(Plan([], settings=settings, restarts=1)).restarts == 1


def test_a_joiner_is_told_what_to_do() -> None:
    with pytest.raises(UsageError) as caught:
        check_joiner(2, strategy_in({"mode": "gradients"}))
    for words in ('mode="changes"', 'rule="sgd:0.1"', "--mode changes", "session.distribute(", "session.tables("):
        assert words in caught.value.problem
    check_joiner(2, strategy_in({"mode": "changes"}))
    check_restarts(strategy_in({"rule": "sgd:0.1"}))
