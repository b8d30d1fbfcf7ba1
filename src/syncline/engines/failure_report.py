"""The report of a worker whose program ended with an exception, which the worker writes to a pipe of its launcher.

The launcher shows the report, so that it can show the same one of several workers once. SYNCLINE_FAILURES in the
environment of a worker is the number of the pipe's file descriptor. A worker without a session writes no report; what
it prints is read instead (launch/held_output.py).
"""

from __future__ import annotations

import os
import re
import site
import sysconfig
import traceback
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import TracebackType

import msgspec

from syncline.errors import SynclineError, UsageError

VARIABLE = "SYNCLINE_FAILURES"

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
    after: str = ""
    """What a program that has printed the error itself has printed after it: the rest of the message, or more."""

    @property
    def reason(self) -> str:
        """The line without the numbers of workers, so that it is equal if several workers fail alike."""
        return without_numbers(self.line)


def without_numbers(text: str) -> str:
    """The text without the numbers of workers."""
    return re.sub(r"\bworker \d+\b", "worker", text)


def report_of(
    error: BaseException, trace: TracebackType | None, *, shown: bool = False, own: bool = True
) -> FailureReport:
    """The report of this exception; `shown`: the program prints it itself. `own`: see `FailureReport`."""
    brief = isinstance(error, SynclineError)
    text = f"{type(error).__name__}: {error}" if brief else "".join(traceback.format_exception_only(error)).strip()
    whole = "" if shown else "".join(traceback.format_exception(type(error), error, trace))
    return FailureReport(
        (place_of(_frames(trace)) + text)[:MOST_LINE], whole[-MOST_WHOLE:], brief, isinstance(error, UsageError), own
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


def read_report(data: bytes) -> FailureReport | None:
    """The report in what a worker has written; None if it is not one."""
    try:
        return msgspec.json.decode(data, type=FailureReport)
    except msgspec.DecodeError:
        return None


def place_of(frames: Iterable[tuple[str, int]]) -> str:
    """FILE:LINE of the innermost call in a file of the user, with a colon; "" if there is none."""
    own = [each for each in frames if not _is_installed(each[0])]
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
