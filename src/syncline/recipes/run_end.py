"""When the workers of a real run stop. They are on one host, and agree through files in the job's directory.

1. Workers that need not wait for each other stop before their next step, as soon as one of them has written that the
   end is reached. So at most one more step of each worker is done.
2. Under bsp all workers must do the same number of iterations. The worker that reaches the end after iteration i
   writes that all stop after iteration i + 1. It does so before it sends its update of i + 1, so every worker that has
   finished i + 1 can read it.
3. A worker that stops by rule 1 leaves before it waits for the others to stop: under ssp and similar models, one that
   is ahead can be waiting for an update that this worker does not send any more.
4. Under bsp a number of updates is a number of rounds, which all workers know from the start.
"""

from __future__ import annotations

import os
from contextlib import suppress
from math import ceil, inf
from pathlib import Path
from time import monotonic

import msgspec

from syncline.recipes.job import RecipeJob
from syncline.sim.pace import ITERATIONS
from syncline.sim.problem import Quality
from syncline.sim.stop import StopAt


class SharedSteps:
    """Counts the steps of all workers on this host: each step is a byte in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, count: int) -> int:
        """Add this worker's steps, and return the number of all workers together."""
        with self._path.open("ab") as file:
            file.write(b"." * count)
        return self._path.stat().st_size


class EndMark(msgspec.Struct, frozen=True):
    """Written once, by the first worker that reaches the end."""

    last: int
    """Under bsp, workers stop before this iteration."""
    reason: str


class RunEnd:
    """Tells one worker whether to do another step."""

    def __init__(self, job: RecipeJob, worker: int, synchronous: bool) -> None:
        directory = Path(job.directory)
        self._stop = job.stop
        self._synchronous = synchronous
        self._file = directory / "end"
        self._part = directory / f"end of {worker}"
        self._steps = SharedSteps(directory / "steps")
        self._last: float = job.iterations or inf
        if synchronous and job.stop.updates is not None:
            self._last = min(self._last, ceil(job.stop.updates / job.workers))
        self._began = monotonic()

    @property
    def leaves_first(self) -> bool:
        """Whether a worker that stops leaves at once (rule 3)."""
        return self._stop != StopAt() and not self._synchronous

    def is_over(self, iteration: int) -> bool:
        """Whether this worker stops before this iteration."""
        if iteration >= self._last:
            return True
        mark = self._mark()
        return mark is not None and (not self._synchronous or iteration >= mark.last)

    def stepped(self, iteration: int, quality: Quality | None = None) -> None:
        """This worker has done a step, and goes on with this iteration; `quality`: if it has measured the model."""
        stop, reason = self._stop, ""
        if stop.updates is not None and not self._synchronous and self._steps.add(1) >= stop.updates:
            reason = "updates"
        elif stop.seconds is not None and monotonic() - self._began >= stop.seconds:
            reason = "seconds"
        elif quality is not None:
            reason = stop.reached(quality)
        if reason:
            self._write(EndMark(iteration + 1, reason))

    @property
    def reason(self) -> str:
        """What ended the run: "iterations", or a key of the job's stop."""
        mark = self._mark()
        if mark is not None:
            return mark.reason
        return "updates" if self._stop.updates is not None else ITERATIONS

    def _mark(self) -> EndMark | None:
        if self._stop == StopAt():
            return None
        with suppress(FileNotFoundError):
            return msgspec.json.decode(self._file.read_bytes(), type=EndMark)
        return None

    def _write(self, mark: EndMark) -> None:
        """Write the whole mark at once, unless there is one: what workers have read must not change."""
        self._part.write_bytes(msgspec.json.encode(mark))
        with suppress(FileExistsError):
            os.link(self._part, self._file)
        self._part.unlink()
