"""A hint is given once per user."""

from __future__ import annotations

from pathlib import Path

from syncline.cli.run import run
from syncline.engines.launch.told import first_time


def test_each_hint_is_given_once(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path / "new")}
    assert [first_time(hint, environment) for hint in ("a", "a", "b", "a")] == [True, False, True, False]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not first_time("a", {"XDG_CACHE_HOME": str(tmp_path / "file")})


def test_the_help_says_how_the_cores_are_shared() -> None:
    option = run.__annotations__["workers"]
    assert "OMP_NUM_THREADS" in str(option)
