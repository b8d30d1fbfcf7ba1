"""When checkpoints are due: after so many iterations, or after some time."""

from __future__ import annotations

from dataclasses import dataclass

from syncline import units
from syncline.errors import UsageError

OPTION = "--checkpoint-every"
DEFAULT = "10min"


@dataclass(frozen=True)
class Schedule:
    """One of the two is set."""

    iterations: int | None = None
    seconds: float | None = None

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """The schedule that `500` or `10min` stands for."""
        if text.strip().isascii() and text.strip().isdigit():
            return cls(units.whole(int(text[:20]), OPTION, 1))
        try:
            seconds = units.seconds(text, OPTION)
        except UsageError:
            problem = f"{text!r} is neither a number of iterations nor a time; write for example 500 or {DEFAULT}"
            raise UsageError(OPTION, problem) from None
        if not seconds:
            raise UsageError(OPTION, "must be above 0; write for example 500 or 10min")
        return cls(seconds=seconds)

    def crossed(self, before: int, after: int) -> int | None:
        """The last multiple of the interval in (before, after]; None if there is none, or with a time."""
        if self.iterations is None:
            return None
        last = after // self.iterations * self.iterations
        return last if last > before else None
