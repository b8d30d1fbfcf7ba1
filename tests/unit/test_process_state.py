"""What names a host, and how long a process may be stopped."""

from __future__ import annotations

import os

import pytest

from syncline.engines.process_state import PATIENCE, host, patience
from syncline.errors import UsageError


def test_a_host_is_where_a_pid_means_the_same() -> None:
    assert [os.readlink(f"/proc/self/ns/{space}") for space in ("net", "pid")] == host().split("/")[1:]


@pytest.mark.parametrize(("word", "seconds"), [("", PATIENCE), ("2", 2.0), ("0.5", 0.5), ("inf", float("inf"))])
def test_patience(word: str, seconds: float) -> None:
    assert patience({"SYNCLINE_PATIENCE": word}) == seconds
    assert patience({}) == PATIENCE


@pytest.mark.parametrize("word", ["abc", "0", "-1", "nan"])
def test_an_invalid_patience_is_refused(word: str) -> None:
    with pytest.raises(UsageError, match=f"SYNCLINE_PATIENCE: '{word}' is not a number of seconds"):
        patience({"SYNCLINE_PATIENCE": word})
