"""Output of a worker that may say why its program failed: it is held back until the program ends, or goes on.

A program that fails before `connect()` or after `session.close()` has no hook of Syncline. It prints the traceback
itself, and so does every worker. The launcher holds back the lines from "Traceback ..." (or the "usage: ..." of a
program that refuses its arguments) on. If the program then ends with an error, the launcher reads the lines as its
report, and shows the same one of several workers once. If not, it shows the lines, at most SECONDS late.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from syncline.engines.failure_report import MOST_LINE, FailureReport, place_of

SECONDS = 2.0
"""How long lines are held back while the program has not ended."""

MOST = 1 << 16
"""How many characters are held back; a longer text is shown at once."""

_HEAD = "Traceback (most recent call last):"
_USAGE = re.compile(r"[Uu]sage: ")
_REFUSED = re.compile(r".+: error: .+|Error: .+")
"""The line after the usage that says what is wrong with the arguments, as argparse and click write it."""

_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_GROUP = re.compile(r"^ +[|+] ")
"""What is before each line of an exception group."""

_FRAME = re.compile(r'\s+File "(.+)", line (\d+)')
_OURS = re.compile(r"syncline\.errors\.(?=\w+: )")


class HeldOutput:
    """The lines of one worker that are held back."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._size = 0
        self._until = 0.0

    def feed(self, line: str, now: float) -> list[str]:
        """The lines that are to be shown now that this one has come; `now` in seconds."""
        if not self._lines:
            if _HEAD not in line and not _USAGE.match(line):
                return [line]
            self._until = now + SECONDS
        self._lines.append(line)
        self._size += len(line)
        return self.take() if self._size > MOST else []

    def is_overdue(self, now: float) -> bool:
        return bool(self._lines) and now > self._until

    def take(self) -> list[str]:
        """All lines that are held back, which are then held back no more."""
        lines, self._lines, self._size = self._lines, [], 0
        return lines


def printed_failure(lines: Sequence[str]) -> FailureReport | None:
    """The report in these lines, which a program has printed before it ended; None if there is none."""
    plain = [_GROUP.sub("", _COLOUR.sub("", line)) for line in lines]
    heads = [number for number, line in enumerate(plain) if _HEAD in line]
    end = _end_of_traceback(plain, heads[-1]) if heads else _end_of_usage(plain)
    if end is None:
        return None
    place = place_of(_frames(plain[heads[-1] : end])) if heads else ""
    error = _OURS.sub("", plain[end])
    return FailureReport(
        (place + error)[:MOST_LINE],
        "\n".join(lines[: end + 1]),
        brief=bool(heads) and error != plain[end],
        after="\n".join(lines[end + 1 :]),
    )


def _end_of_traceback(lines: Sequence[str], head: int) -> int | None:
    """The line with the error: the first one that is not indented."""
    later = range(head + 1, len(lines))
    return next((number for number in later if lines[number] and not lines[number][0].isspace()), None)


def _end_of_usage(lines: Sequence[str]) -> int | None:
    return next((number for number, line in enumerate(lines) if _REFUSED.fullmatch(line)), None)


def _frames(lines: Sequence[str]) -> Iterator[tuple[str, int]]:
    for line in lines:
        found = _FRAME.match(line)
        if found and not found[1].startswith("<"):
            yield found[1], int(found[2])
