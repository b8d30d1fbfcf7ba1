"""What a worker prints before it fails: held back for a while, and read as the reason of the failure."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

import pytest

from syncline.engines.launch.held_output import MOST, SECONDS, HeldOutput, printed_failure

HEAD = "Traceback (most recent call last):"
ERROR = [HEAD, '  File "/home/me/train.py", line 3, in <module>', "    1 / 0", "ZeroDivisionError: division by zero"]


def test_only_what_follows_a_traceback_is_held_back() -> None:
    held = HeldOutput()
    assert held.feed("epoch 1", 0.0) == ["epoch 1"]
    assert held.feed("  indented", 0.0) == ["  indented"]
    assert held.feed(HEAD, 1.0) == []
    assert held.feed("epoch 2", 2.0) == []
    assert not held.is_overdue(1.0 + SECONDS), "the time counts from the first line"
    assert held.is_overdue(1.1 + SECONDS)
    assert held.take() == [HEAD, "epoch 2"]
    assert not held.is_overdue(100.0)
    assert held.feed("epoch 3", 4.0) == ["epoch 3"]


def test_a_traceback_after_a_progress_bar_is_held_back_with_its_line() -> None:
    held = HeldOutput()
    assert held.feed(f" 50%|####    | 5/10 {HEAD}", 0.0) == []
    assert held.take() == [f" 50%|####    | 5/10 {HEAD}"]


def test_no_more_than_a_bound_is_held_back() -> None:
    held, fed = HeldOutput(), 0
    shown = held.feed(HEAD, 0.0)
    while not shown:
        fed += 1
        shown = held.feed("x" * 1000, 0.0)
    assert len(shown) == fed + 1
    assert MOST < sum(map(len, shown)) < MOST + 2000
    assert held.feed("next", 0.0) == ["next"]


def printed(code: str) -> list[str]:
    """What Python prints for this code, as a file of the user."""
    try:
        exec(compile(code, str(Path.cwd() / "train.py"), "exec"), {})
    except BaseException as error:
        return "".join(traceback.format_exception(error)).splitlines()
    raise AssertionError("it raises nothing")


CASES = {
    "an error": ("\n1 / 0", "train.py:2: ZeroDivisionError: division by zero", 0),
    "in a library": ("import json\njson.loads('{')", "train.py:2: json.decoder.JSONDecodeError: Expecting", 0),
    "without a text": ("\n\nassert False", "train.py:3: AssertionError", 0),
    "a message of two lines": ("raise ValueError('one\\ntwo')", "train.py:1: ValueError: one", 1),
    "a note": ("e = ValueError('x')\ne.add_note('try y')\nraise e", "train.py:3: ValueError: x", 1),
    "a cause": ("try:\n  1 / 0\nexcept Exception as e:\n  raise OSError('no') from e", "train.py:4: OSError: no", 0),
    "a group": ("\nraise ExceptionGroup('all', [ValueError('a')])", "train.py:2: ExceptionGroup: all", 3),
    "code that is no Python": ("compile('(', 'other.py', 'exec')", "other.py:1: SyntaxError", 0),
}


@pytest.mark.parametrize("name", CASES)
def test_the_place_and_the_error_are_read_from_a_traceback(name: str) -> None:
    code, line, after = CASES[name]
    lines = printed(code)
    report = printed_failure(["a bar" + lines[0] if name == "an error" else lines[0], *lines[1:]])
    assert report is not None
    assert report.line.startswith(line), report
    assert len(report.after.splitlines()) == after, report
    assert [*report.whole.splitlines(), *report.after.splitlines()][1:] == lines[1:], "nothing is lost"
    assert (report.brief, report.usage, report.own) == (False, False, True)


def test_an_error_of_syncline_is_brief() -> None:
    report = printed_failure(printed("from syncline.spec import parse\nparse('sync', 'spp:3')"))
    assert report is not None
    assert report.line.startswith("train.py:2: UsageError: sync: ")
    assert report.brief


def test_colours_do_not_matter_and_stay() -> None:
    red = [HEAD, '  File \x1b[35m"/home/me/train.py"\x1b[0m, line \x1b[35m3\x1b[0m', "\x1b[1;31mValueError\x1b[0m: no"]
    report = printed_failure(red)
    assert report is not None
    assert report.line == "/home/me/train.py:3: ValueError: no"
    assert report.whole.splitlines() == red


@pytest.mark.parametrize(
    ("lines", "line"),
    [
        (["usage: train.py [-h] data", "train.py: error: too few"], "train.py: error: too few"),
        (["Usage: train.py [OPTIONS]", "Try 'train.py --help'.", "", "Error: No such option"], "Error: No such option"),
    ],
)
def test_a_program_that_refuses_its_arguments(lines: list[str], line: str) -> None:
    report = printed_failure(lines)
    assert report is not None
    assert (report.line, report.whole, report.brief) == (line, "\n".join(lines), False)


@pytest.mark.parametrize("lines", [[HEAD], ERROR[:-1], ["usage: train.py [-h]", "more"], ["Usage: 3 GB", "Loss: 2"]])
def test_other_lines_are_no_report(lines: list[str]) -> None:
    assert printed_failure(lines) is None


def test_the_last_traceback_counts() -> None:
    report = printed_failure([*ERROR, "trying again", HEAD, f'  File "{sys.prefix}/x.py", line 9', "OSError: no"])
    assert report is not None
    assert report.line.endswith("x.py:9: OSError: no")
