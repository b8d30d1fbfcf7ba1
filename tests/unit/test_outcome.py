"""How a run ends: what is fatal to it, and the error that is reported."""

from __future__ import annotations

from io import BytesIO

import pytest

from syncline.engines.launch.child import Child
from syncline.engines.launch.outcome import RunOutcome
from syncline.engines.net.control import Seen
from syncline.errors import RunError, SynclineError, UsageError


def child(name: str, code: int | None, *, frozen: bool = False) -> Child:
    """One that has ended with this code; None: that has not."""
    return Child(name, None, BytesIO(), code=code, frozen=frozen)  # type: ignore[arg-type]


def said(error: SynclineError | None) -> tuple[type, str] | None:
    return None if error is None else (type(error), str(error))


GOOD, BAD, KILLED = child("w0", 0), child("w1", 1), child("w2", -9)


# What is fatal.


@pytest.mark.parametrize(("code", "frozen", "fatal"), [(1, False, True), (1, True, False), (-9, False, False)])
def test_an_exception_in_a_worker_ends_the_run_and_a_signal_does_not(code: int, frozen: bool, fatal: bool) -> None:
    assert RunOutcome(alone=False).is_fatal(child("w0", code, frozen=frozen), worker=True) == fatal


@pytest.mark.parametrize("code", [1, -9])
def test_a_server_is_needed_until_nobody_trains_any_more(code: int) -> None:
    outcome = RunOutcome(alone=False)
    assert outcome.is_fatal(child("server0", code), worker=False)
    outcome.done = True
    assert not outcome.is_fatal(child("server0", code), worker=False)


def test_without_its_coordinator_a_run_goes_on() -> None:
    assert not RunOutcome(alone=False).is_fatal(child("coordinator", -9), worker=False)


# Why it is over.


def test_the_first_reason_that_was_heard_counts_unless_the_cause_is_found() -> None:
    outcome = RunOutcome(alone=False)
    outcome.heard("server0 is gone")
    outcome.heard("everyone is gone")
    assert (outcome.over, outcome.known) == ("server0 is gone", False)
    outcome.found("server0 ended by signal 9")
    outcome.heard("server0 is gone")
    assert (outcome.over, outcome.known) == ("server0 ended by signal 9", True)


@pytest.mark.parametrize(
    ("workers", "servers", "heard", "found", "nobody"),
    [
        ([GOOD], [child("server0", 0)], "every worker is gone", "", True),
        ([GOOD], [child("server0", None)], "every worker is gone", "", True),
        ([GOOD], [child("server0", -9)], "server0 is gone", "", False),
        ([GOOD, BAD], [], "every worker is gone", "", False),
        ([GOOD, child("w1", None)], [], "every worker is gone", "", False),
        ([GOOD], [], "", "", False),
        ([GOOD], [], "every worker is gone", "interrupted", False),
        ([], [], "it is over", "", False),
    ],
)
def test_when_no_worker_has_connected(
    workers: list[Child], servers: list[Child], heard: str, found: str, nobody: bool
) -> None:
    outcome = RunOutcome(alone=False)
    if heard:
        outcome.heard(heard)
    if found:
        outcome.found(found)
    assert outcome.no_worker_connected(workers, servers) == nobody


# What is said of it.


def test_a_run_succeeds_if_a_worker_succeeds() -> None:
    assert RunOutcome(alone=False).judge([GOOD, KILLED], None) is None
    assert RunOutcome(alone=True).judge([], None) is None


def test_a_run_fails_if_no_worker_succeeds() -> None:
    assert isinstance(RunOutcome(alone=False).judge([KILLED], None), RunError)


def test_the_death_of_the_coordinator_explains_it() -> None:
    outcome = RunOutcome(alone=False)
    assert str(outcome.judge([BAD], child("coordinator", -9))).startswith("the coordinator ended by signal 9 (SIGKILL)")
    for alive in (None, child("coordinator", None), child("coordinator", 0)):
        assert "coordinator" not in str(outcome.judge([BAD], alive))


def test_the_reason_why_it_is_over_is_the_error() -> None:
    outcome = RunOutcome(alone=False)
    outcome.found("w1 ended with exit code 1 after 3.0 s")
    assert said(outcome.judge([GOOD, BAD], None)) == (RunError, "w1 ended with exit code 1 after 3.0 s")


def test_a_request_that_makes_no_sense_is_the_users_mistake() -> None:
    outcome = RunOutcome(alone=False)
    outcome.refused = Seen("worker", 1, 0, "refused: sync: no such model", usage=True)
    outcome.found("worker 1 was refused")
    assert said(outcome.judge([BAD], None)) == (UsageError, "worker 1: refused: sync: no such model")


def test_those_who_have_joined_fail_alone() -> None:
    """That another worker of the run was refused is no failure of theirs; that one of theirs failed is."""
    outcome = RunOutcome(alone=True)
    outcome.refused = Seen("worker", 5, 0, "refused: sync: no such model", usage=True)
    assert outcome.judge([GOOD], None) is None
    outcome.failed = "w5 ended with exit code 1"
    assert said(outcome.judge([GOOD, BAD], None)) == (UsageError, "worker 5: refused: sync: no such model")
    outcome.refused = None
    assert said(outcome.judge([GOOD, BAD], None)) == (RunError, "w5 ended with exit code 1")


@pytest.mark.parametrize(
    ("code", "end"),
    [
        (0, "w0 ended with exit code 0"),
        (3, "w0 ended with exit code 3"),
        (-15, "w0 ended by signal 15 (SIGTERM)"),
        (-63, "w0 ended by signal 63"),
    ],
)
def test_an_end_in_words(code: int, end: str) -> None:
    assert child("w0", code).end == end
