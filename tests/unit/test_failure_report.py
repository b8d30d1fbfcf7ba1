"""Why a worker's program failed: one line with the place in the user's file, through a pipe to the launcher."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from syncline.engines import failure_report
from syncline.engines.failure_report import FailureReport, read_report, report_of, send_report
from syncline.engines.launch.child import Child
from syncline.engines.launch.children import Children
from syncline.engines.launch.outcome import RunOutcome
from syncline.errors import RunError, UsageError
from syncline.spec import parse


def mistake(code: str) -> FailureReport:
    """The report of what this code, as a file of the user, raises."""
    try:
        exec(compile(code, str(Path.cwd() / "train.py"), "exec"), {"parse": parse})
    except Exception as error:
        return report_of(error, error.__traceback__)
    raise AssertionError("it raises nothing")


def test_the_place_is_in_the_users_file_and_not_in_ours() -> None:
    report = mistake("\n\ndef go():\n    parse('sync', 'spp:3')\n\ngo()\n")
    assert report.line.startswith("train.py:4: UsageError: sync: ")
    assert "Traceback" in report.whole
    assert (report.brief, report.usage, report.own) == (True, True, True)


def test_the_place_is_not_in_a_package_wherever_it_is_installed() -> None:
    """Packages can be in folders that this Python does not list as its own."""
    known: dict[str, Any] = {"wrong": partial(parse, "sync", "spp:3")}
    exec(compile("def call(it):\n    it()\n", "/elsewhere/site-packages/torchlike/graph.py", "exec"), known)
    with pytest.raises(UsageError) as raised:
        exec(compile("\ncall(wrong)\n", str(Path.cwd() / "train.py"), "exec"), known)
    assert report_of(raised.value, raised.tb).line.startswith("train.py:2: UsageError: sync: ")


def test_an_error_of_the_program_has_its_type() -> None:
    report = mistake("import json\njson.loads('{')\n")
    assert report.line.startswith("train.py:2: json.decoder.JSONDecodeError: ")
    assert (report.brief, report.usage) == (False, False)


def test_a_failure_in_another_process_names_no_place_in_the_program() -> None:
    assert report_of(RunError("server 0 is gone"), None, own=False).line == "RunError: server 0 is gone"


def test_a_traceback_without_end_fits_into_the_pipe() -> None:
    report = mistake("raise ValueError('\"' * 1_000_000)")
    source, sink = os.pipe()
    assert send_report(report, {failure_report.VARIABLE: str(sink)})
    assert read_report(os.read(source, 1 << 16)) == report
    os.close(source)
    os.close(sink)


def test_without_a_launcher_nothing_is_sent() -> None:
    report = mistake("1 / 0")
    assert not send_report(report, {})
    source, sink = os.pipe()
    os.close(source)
    assert not send_report(report, {failure_report.VARIABLE: str(sink)}), "the launcher is gone"
    os.close(sink)


PROGRAM = """
import sys
from syncline.engines.failure_report import report_of, send_report
print("before", flush=True)
try:
    raise ValueError("a mistake")
except ValueError as error:
    send_report(report_of(error, error.__traceback__))
"""


def test_a_child_reports_after_its_output(tmp_path: Path) -> None:
    said: list[str] = []
    children = Children(
        lambda _, line: said.append(line), str(tmp_path), failed=lambda child: said.append(f"failed: {child.reason}")
    )
    child = children.start("w0", [sys.executable, "-c", PROGRAM], dict(os.environ), reports=True)
    while not list(children.ended()):
        children.turn(1.0)
    children.stop()
    assert said == ["before", "failed: ValueError: a mistake"]
    assert child.code == 0
    assert "Traceback" in (tmp_path / "w0.log").read_text(), "the log has all of it"


def failed(name: str, report: FailureReport | None) -> Child:
    return Child(name, None, None, code=1, failure=report)  # type: ignore[arg-type]


def test_workers_that_failed_for_the_same_reason_are_named_once() -> None:
    reason, other = mistake("1 / 0"), mistake("\n2 / 0")
    told = report_of(RunError(f"w0 ended: {reason.line}"), None, own=False)
    workers = [failed("w0", reason), failed("w1", reason), failed("w2", other), failed("w3", told), failed("w4", None)]
    outcome = RunOutcome(alone=False)
    outcome.found(f"w0 ended with exit code 1: {reason.line}")
    error = outcome.judge(workers, None)
    assert str(error) == f"w0 ended with exit code 1: {reason.line} (w1: the same)"
    assert isinstance(error, RunError)


def test_a_wrong_setting_in_the_program_is_a_usage_error() -> None:
    reason = mistake("parse('sync', 'spp:3')")
    outcome = RunOutcome(alone=False)
    outcome.found(f"w0 ended with exit code 1: {reason.line}")
    error = outcome.judge([failed("w0", reason)], None)
    assert isinstance(error, UsageError)
    assert str(error) == f"w0 ended with exit code 1: {reason.line}"


def test_a_worker_that_was_ended_after_its_report_explains_the_end_of_the_run() -> None:
    """It has reported its failure and closed its connection, and takes too long to end: the launcher ends it."""
    reason = mistake("parse('sync', 'spp:3')")
    outcome = RunOutcome(alone=False)
    outcome.heard("every worker is gone before the run began")
    worker = failed("w0", reason)
    worker.code = -15
    error = outcome.judge([worker], None)
    assert isinstance(error, UsageError)
    assert str(error) == f"every worker is gone before the run began: w0 ended: {reason.line}"


@pytest.mark.parametrize("data", [b"", b"{", b'{"line": 3}'])
def test_an_invalid_report_is_ignored(data: bytes) -> None:
    assert read_report(data) is None
