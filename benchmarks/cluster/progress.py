"""Progress of the benchmark: how many runs are done, and about how long the others take."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic

from benchmarks.cluster.experiment import Experiment, case
from benchmarks.cluster.window import LEAST

START_SECONDS, HOST_SECONDS = 2.0, 1.0
"""About how long it takes to start and end a run, and how much each host adds to that."""


def expected_seconds(name: str, base: Experiment, seconds: float) -> float:
    """About how long it takes to measure a case for this many seconds."""
    experiment = case(name, base)
    steps = experiment.warm + 1 + LEAST * experiment.period
    return START_SECONDS + HOST_SECONDS * experiment.hosts + max(seconds, steps * experiment.least_step)


def words(seconds: float) -> str:
    """A time span in a unit that suits it."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


class Progress:
    """Tells after each run how many are left; runs so far correct the estimate for the others."""

    def __init__(
        self, expected: Sequence[float], tell: Callable[[str], None], clock: Callable[[], float] = monotonic
    ) -> None:
        """`expected`: the estimate in seconds for each run, in order."""
        self._expected = expected
        self._tell = tell
        self._clock = clock
        self._done = 0

    def start(self) -> None:
        self._begun = self._clock()
        count = len(self._expected)
        self._tell(f"{count} {'run' if count == 1 else 'runs'}, about {words(sum(self._expected))}")

    def done(self, text: str) -> None:
        """One more run is done; `text` says with which result."""
        self._done += 1
        ratio = (self._clock() - self._begun) / sum(self._expected[: self._done])
        left = sum(self._expected[self._done :]) * ratio
        after = f", about {words(left)} left" if left else ""
        self._tell(f"[{self._done}/{len(self._expected)}{after}] {text}")
