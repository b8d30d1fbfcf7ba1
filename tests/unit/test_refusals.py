"""Refused connections: the first are one line each, later ones are only counted."""

from __future__ import annotations

import pytest

from syncline.engines.net import refusals
from syncline.engines.net.refusals import ONE_BY_ONE, PAUSE, RefusalLog


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(refusals, "monotonic", made)
    return made


def test_the_first_are_named_one_by_one(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    log = RefusalLog("coordinator")
    for number in range(ONE_BY_ONE):
        log.sent_away(f"reason {number}")
    said = [(line.split(": ")[0], line.split(": ")[-1]) for line in capsys.readouterr().err.splitlines()]
    assert said == [("coordinator", f"reason {number}") for number in range(ONE_BY_ONE)]


def test_many_are_a_number_now_and_then(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    log = RefusalLog("server0")
    for _ in range(ONE_BY_ONE):
        log.sent_away("early")
    capsys.readouterr()
    clock.now += PAUSE - 1
    for _ in range(1000):
        log.sent_away("late")
    assert capsys.readouterr().err == ""
    clock.now += 1
    log.sent_away("last")
    assert capsys.readouterr().err.endswith(": last (and 1000 more)\n")
    log.sent_away("again")
    clock.now += PAUSE
    log.sent_away("later")
    assert capsys.readouterr().err.endswith(": later (and 1 more)\n")


def test_after_a_pause_a_single_refusal_is_reported_as_one(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    log = RefusalLog("coordinator")
    for _ in range(ONE_BY_ONE):
        log.sent_away("early")
    capsys.readouterr()
    clock.now += PAUSE
    log.sent_away("late")
    assert capsys.readouterr().err.endswith(": late\n")
