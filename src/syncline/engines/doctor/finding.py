"""What a check has found: all is well, something that is good to know, or something wrong and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec

from syncline.errors import printable

Line = Annotated[str, msgspec.Meta(max_length=2000)]

MOST_FIGURES = 64


class Status(StrEnum):
    OK = "ok"
    NOTE = "note"
    """Not wrong by itself, but it may explain what the user sees."""
    WRONG = "wrong"


class Finding(msgspec.Struct, frozen=True):
    """The result of one check."""

    check: Line
    """What was checked, in two or three words."""
    status: Status
    text: Line
    """What was found."""
    remedy: Line = ""
    """What to do about it."""
    figures: Annotated[dict[Line, float | Line], msgspec.Meta(max_length=MOST_FIGURES)] = {}
    """The numbers behind the text, for the report."""

    def line(self) -> str:
        """One line for a terminal. The texts may come from another host, so they are escaped."""
        remedy = f"; {self.remedy}" if self.remedy else ""
        return printable(f"{self.status:<5}  {self.check}: {self.text}{remedy}")


def ok(check: str, text: str, **figures: float | str) -> Finding:
    return Finding(check, Status.OK, text, figures=figures)


def note(check: str, text: str, remedy: str = "", **figures: float | str) -> Finding:
    return Finding(check, Status.NOTE, text, remedy, figures)


def wrong(check: str, text: str, remedy: str, **figures: float | str) -> Finding:
    return Finding(check, Status.WRONG, text, remedy, figures)


def all_well(findings: Iterable[Finding]) -> bool:
    return not any(each.status is Status.WRONG for each in findings)
