"""When a run ends, other than after a number of iterations of each worker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from math import isfinite
from typing import TYPE_CHECKING

from syncline.errors import UsageError
from syncline.units import MOST_SECONDS

if TYPE_CHECKING:
    from syncline.sim.problem import Quality

MOST_UPDATES = 1_000_000_000


@dataclass(frozen=True)
class StopAt:
    """The run ends as soon as one of these is reached. What workers are computing then is not waited for.

    `updates` or `seconds` replace the iterations of each worker: every worker trains until the end, so the last updates
    are as stale as all others. A run with only `loss` or `accuracy` ends after its iterations at the latest.
    """

    updates: int | None = None
    """Iterations of all workers together; with a dispatch, turns."""
    seconds: float | None = None
    """Virtual seconds, or real ones in a real run; with a dispatch, turns."""
    loss: float | None = None
    """The model's loss on the test data is this or less."""
    accuracy: float | None = None
    """The model's accuracy on the test data, from 0 to 1, is this or more."""

    @property
    def replaces_iterations(self) -> bool:
        return self.updates is not None or self.seconds is not None

    @property
    def has_target(self) -> bool:
        return self.loss is not None or self.accuracy is not None

    def check(self) -> None:
        """Raise `UsageError` for a value that cannot be reached or makes no sense."""
        updates, seconds, loss, accuracy = self.updates, self.seconds, self.loss, self.accuracy
        if updates is not None and not (type(updates) is int and 1 <= updates <= MOST_UPDATES):
            raise UsageError("stop.updates", f"must be a whole number from 1 to {MOST_UPDATES:,}, not {updates!r}")
        if seconds is not None and not 0 < seconds <= MOST_SECONDS:
            raise UsageError("stop.seconds", f"must be above 0 and at most {MOST_SECONDS:,.0f}, not {seconds!r}")
        if loss is not None and not isfinite(loss):
            raise UsageError("stop.loss", f"must be finite, not {loss!r}")
        if accuracy is not None and not 0 < accuracy <= 1:
            raise UsageError("stop.accuracy", f"must be above 0 and at most 1, not {accuracy!r}")

    def reached(self, quality: Quality) -> str:
        """Which target a model of this quality reaches: "loss", "accuracy" or "" for none."""
        if self.loss is not None and quality.loss <= self.loss:
            return "loss"
        return "accuracy" if self.accuracy is not None and quality.accuracy >= self.accuracy else ""

    def __str__(self) -> str:
        """The text that `read_stop` reads: `updates=4000,loss=0.1`."""
        said = ((field.name, getattr(self, field.name)) for field in fields(self))
        return ",".join(f"{key}={value}" for key, value in said if value is not None)


def read_stop(texts: Iterable[str], option: str = "--stop") -> dict[str, float]:
    """The values of texts such as `updates=4000` or `seconds=10,loss=0.1`, by key."""
    found: dict[str, float] = {}
    known = [field.name for field in fields(StopAt)]
    for word in (word.strip() for text in texts for word in text.split(",")):
        key, equals, value = (each.strip() for each in word.partition("="))
        if not equals or key not in known:
            raise UsageError(option, f"cannot read {word!r:.60}; write it like updates=4000; keys: {', '.join(known)}")
        if key in found:
            raise UsageError(option, f"{key} is given twice; give it once")
        found[key] = _number(key, value, option)
    return found


def _number(key: str, value: str, option: str) -> float:
    try:
        return int(value) if key == "updates" else float(value)
    except ValueError:
        wanted = "a whole number" if key == "updates" else "a number"
        raise UsageError(option, f"{key} must be {wanted}, not {value!r:.60}") from None
