"""What all processes of a run share: one line about an error of the operating system."""

from __future__ import annotations

from errno import ENOENT
from pathlib import Path

import pytest

from syncline.engines.process import os_problem


def test_a_folder_that_was_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lost = tmp_path / "lost"
    lost.mkdir()
    monkeypatch.chdir(lost)
    assert os_problem(FileNotFoundError(ENOENT, "No such file")) == "a file: No such file"
    lost.rmdir()
    with pytest.raises(FileNotFoundError) as raised:
        Path("train.py").resolve()
    assert os_problem(raised.value).startswith("the current folder was removed")
    assert os_problem(FileNotFoundError(ENOENT, "No such file", "/x")) == "/x: No such file"
