"""The report of a worker whose program ended with an exception, which the worker writes to a pipe of its launcher.

The launcher shows the report, so that it can show the same one of several workers once. SYNCLINE_FAILURES in the
environment of a worker is the number of the pipe's file descriptor. The program has a `FailureHook` from its start
(program_start); while its session is open, the session's own hook is before it.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from syncline.errors import SynclineError, UsageError

VARIABLE = "SYNCLINE_FAILURES"

_START = Path(__file__).parent / "program_start"

END = b"\n"
"""The end of a report; JSON has no such byte."""

MOST_LINE, MOST_WHOLE = 1 << 11, 1 << 14
"""The longest line and the longest traceback in characters. A pipe holds more, so that writing never waits."""

_LIBRARIES = [str(Path(__file__).parents[1]), *site.getsitepackages(), sysconfig.get_path("stdlib")]
"""The folders of files that are not the user's."""

_PACKAGES = {"site-packages", "dist-packages"}
"""Names of folders of installed packages. Some are in none of the places above, such as those of the user's own."""


class FailureReport(msgspec.Struct, frozen=True):
    """Why the program of a worker ended."""

    line: str
    """One line: the place in the user's file, and the error."""
    whole: str
    """The traceback; "" if the program has shown the error itself."""
    brief: bool
    """Whether the line says everything that a user needs: Syncline raised the error."""
    usage: bool = False
    """Whether it is a `UsageError`."""
    own: bool = True
    """Whether the program itself failed; False: it was told that the run is over."""


def report_of(
    error: BaseException, trace: TracebackType | None, *, shown: bool = False, own: bool = True
) -> FailureReport:
    """The report of this exception; `shown`: the program prints it itself. `own`: see `FailureReport`."""
    brief = isinstance(error, SynclineError)
    text = f"{type(error).__name__}: {error}" if brief else "".join(traceback.format_exception_only(error)).strip()
    whole = "" if shown else "".join(traceback.format_exception(type(error), error, trace))
    return FailureReport(
        (_place(trace) + text)[:MOST_LINE], whole[-MOST_WHOLE:], brief, isinstance(error, UsageError), own
    )


def send_report(report: FailureReport, environment: Mapping[str, str] = os.environ) -> bool:
    """Send a report to the launcher; return False if there is no launcher, or it is gone."""
    if VARIABLE not in environment:
        return False
    try:
        os.write(int(environment[VARIABLE]), msgspec.json.encode(report) + END)
    except OSError:
        return False
    return True


class FailureHook:
    """A `sys.excepthook` that sends the report of an exception to the launcher instead of showing it."""

    def __init__(self) -> None:
        self._pid = os.getpid()

    def __call__(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        ours = os.getpid() == self._pid  # not a forked copy of the program
        if not ours or not send_report(report_of(error, trace)):
            sys.__excepthook__(kind, error, trace)


def environment_with_hook(environment: Mapping[str, str], pipe: int) -> dict[str, str]:
    """The environment of a worker that reports its failure to this pipe."""
    path = os.pathsep.join(filter(None, (str(_START), environment.get("PYTHONPATH"))))
    return {**environment, VARIABLE: str(pipe), "PYTHONPATH": path}


def read_report(data: bytes) -> FailureReport | None:
    """The report in what a worker has written; None if it is not one."""
    try:
        return msgspec.json.decode(data, type=FailureReport)
    except msgspec.DecodeError:
        return None


def _place(trace: TracebackType | None) -> str:
    """FILE:LINE of the innermost call in a file of the user, with a colon; "" if there is none."""
    own = [each for each in _frames(trace) if not _is_installed(each[0])]
    if not own:
        return ""
    file, line = own[-1]
    return f"{os.path.relpath(file) if file.startswith(os.getcwd() + os.sep) else file}:{line}: "


def _is_installed(file: str) -> bool:
    return file.startswith(tuple(_LIBRARIES)) or not _PACKAGES.isdisjoint(Path(file).parts)


def _frames(trace: TracebackType | None) -> Iterator[tuple[str, int]]:
    """The files and lines of the calls; code that is not from a file is left out."""
    for frame, line in traceback.walk_tb(trace):
        if not frame.f_code.co_filename.startswith("<"):
            yield os.path.abspath(frame.f_code.co_filename), line
