"""The coordinator dies at any message: every peer hears the same as if it had not died."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from mortal_office import Death, Step, play
from random_scripts import runs
from syncline.engines.coordinator import launchers
from syncline.engines.coordinator.journal import Entry, Journal, Sent
from syncline.engines.net import tokens
from syncline.engines.net.connection import Connection
from syncline.engines.net.lasting import LastingConnection

STEPS = ("answer", "answer", "answer", "share", "epoch", "change", "leave", "kill")

steps = st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.sampled_from(Death))
beginning: list[Step] = [("answer", 0, Death.NEVER)] * 8
"""Both workers declare, and everybody has what it needs to begin."""

scripts = st.lists(steps, max_size=25).map(lambda more: [*beginning, *more])


@pytest.fixture(autouse=True, scope="module")
def _without_chance() -> object:
    patch = pytest.MonkeyPatch()
    patch.setattr(launchers, "outlive_parent", lambda: None)
    patch.setattr(tokens, "new_token", lambda: "a secret")  # else no two runs are the same
    yield
    patch.undo()


def check(script: list[Step]) -> None:
    with TemporaryDirectory() as folder:
        calm = play(Path(folder) / "calm", [(what, k, Death.NEVER) for what, k, _ in script])
        mortal = play(Path(folder) / "mortal", script)
    assert mortal == calm


@runs(30)
@given(scripts)
def test_all_hear_the_same(script: list[Step]) -> None:
    check(script)


@pytest.mark.slow
@runs(1500)
@given(scripts)
def test_all_hear_the_same_for_long(script: list[Step]) -> None:
    check(script)


# Each of these mistakes must be found.


def _forgetful(journal: Journal, entry: Entry) -> None:
    """Skips the frames of peers."""
    if not isinstance(entry, Sent):
        _add(journal, entry)


def _resume_without_the_rest(line: LastingConnection, other: Connection, heard: int) -> None:
    line.acknowledged(heard)
    line.adopt(other)
    line.away = False


_add = Journal.add

MISTAKES = {
    "the journal is skipped": (Journal, "add", _forgetful),
    "the rest is not sent again": (LastingConnection, "resume", _resume_without_the_rest),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_found(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*MISTAKES[mistake])

    @settings(
        max_examples=200,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=True,
    )
    @given(scripts)
    def found(script: list[Step]) -> None:
        check(script)

    with pytest.raises(Exception):  # noqa: B017, PT011 - whatever goes wrong then
        found()
