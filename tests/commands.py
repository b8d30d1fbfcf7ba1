"""The command `syncline` in the process of the test, for requests that are refused before anything starts."""

from __future__ import annotations

import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from engine import QUIET
from programs import Done
from syncline.cli.main import main


def in_this_process(folder: Path, *words: object, **environment: str) -> Done:
    """Run the command in this folder, and return its exit code and output."""
    out, err = StringIO(), StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["syncline", *map(str, words)])
        for name, word in {**QUIET, **environment}.items():
            patch.setenv(name, word)
        with pytest.raises(SystemExit) as ended:
            main()
    assert ended.value.code is None or isinstance(ended.value.code, int)
    return Done(ended.value.code or 0, out.getvalue(), err.getvalue())


def refused(folder: Path, *words: object, **environment: str) -> str:
    """A request that makes no sense: exit code 2, and one line, which is returned without the command's name."""
    done = in_this_process(folder, *words, **environment)
    assert done.code == 2, done.story
    assert done.errors.count("\n") == 1, done.story
    assert done.errors.startswith("syncline: "), done.story
    assert done.output == "", done.story
    return done.errors.removeprefix("syncline: ")
