"""Shows the progress of a training run on stderr: as a live table, as plain lines, or not at all."""

from __future__ import annotations

import os
from time import monotonic
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from syncline.cli.comparison_progress import ComparisonProgress
from syncline.cli.progress_board import ProgressBoard, WorkerProgress
from syncline.cli.speaker import Speaker
from syncline.engines.net.control import Pulse
from syncline.recipes.job import RecipeJob

PLAIN_SECONDS = 3.0
"""The seconds between two plain lines."""


class TrainView:
    """Shows no progress; prints only the output of the run and its workers."""

    def __init__(self, job: RecipeJob) -> None:
        self.job = job
        self.standing = ProgressBoard()
        self.turns = ComparisonProgress(job) if job.compare else None
        self._speaker = Speaker()

    def line(self, name: str, text: str) -> None:
        """Print a line of a process, or of the run itself."""
        self._speaker.line(name, text)

    def beat(self, pulse: Pulse) -> None:
        """A worker reports its progress."""
        self.standing.heard(pulse, monotonic())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class PlainView(TrainView):
    """Prints a line every few seconds."""

    def __init__(self, job: RecipeJob) -> None:
        super().__init__(job)
        self._began = self._next = monotonic()

    def __enter__(self) -> Self:
        self.line("syncline", f"starting {self.job.workers} workers for {self.job.recipe}")
        self._began = monotonic()
        self._next = self._began + PLAIN_SECONDS
        return self

    def beat(self, pulse: Pulse) -> None:
        super().beat(pulse)
        all_are_known = self.turns is not None or len(self.standing.places) >= self.job.workers
        if monotonic() >= self._next and all_are_known:
            self._next = monotonic() + PLAIN_SECONDS
            seconds = monotonic() - self._began
            self.line("syncline", f"{seconds:.1f} s: {self._text() if self.turns is None else self._turn(seconds)}")

    def _text(self) -> str:
        standing = self.standing
        parts = [_words(worker, place, self.job) for worker, place in sorted(standing.places.items())]
        slowest = standing.slowest()
        if slowest is not None:
            parts.append(f"slowest: w{slowest[0]}, {slowest[1]}")
        if standing.quality is not None:
            parts.append(_quality(standing.quality))
        return "; ".join(parts)

    def _turn(self, seconds: float) -> str:
        """Of a comparison: which turn it is, and how many steps each worker has done in it."""
        assert self.turns is not None, "it is a comparison"
        steps = ", ".join(
            f"w{worker} {place.pulse.iteration}" for worker, place in sorted(self.standing.places.items())
        )
        return f"{self.turns.words(self.standing.model, seconds)}; steps: {steps}"


def _words(worker: int, place: WorkerProgress, job: RecipeJob) -> str:
    pulse = place.pulse
    how = f"{place.rate:.0f}/s, stale {pulse.staleness}, waited {pulse.waited:.1f} s"
    of = "" if job.expected is None else f"/{job.expected}"
    return f"w{worker} {pulse.iteration}{of} ({how})"


def _quality(quality: tuple[float, float]) -> str:
    return f"loss {quality[0]:.4f}, accuracy {quality[1]:.1%}"


class LiveView(TrainView):
    """Shows one row per worker, redrawn whenever a worker reports its progress."""

    def __init__(self, job: RecipeJob, console: Console) -> None:
        super().__init__(job)
        self._began = monotonic()
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)

    def __enter__(self) -> Self:
        self._live.start()
        self._show(Text(f"starting {self.job.workers} workers for {self.job.recipe} ...", "dim"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def line(self, name: str, text: str) -> None:
        words = f"syncline: {text}" if name == "syncline" else f"[{name}] {text}"
        self._console.print(words, markup=False, highlight=False, soft_wrap=True)

    def beat(self, pulse: Pulse) -> None:
        super().beat(pulse)
        self._show(Group(self._head(), self._table()))

    def _show(self, what: RenderableType) -> None:
        self._live.update(what, refresh=True)

    def _head(self) -> RenderableType:
        """What is trained; of a comparison, which turn it is."""
        if self.turns is not None:
            text = Text(self.turns.words(self.standing.model, monotonic() - self._began), "bold")
            return Group(text, ProgressBar(self.turns.total, self.turns.place(self.standing.model), width=60))
        text = Text(self.job.recipe, "bold")
        if self.standing.quality is not None:
            text.append(f"   {_quality(self.standing.quality)}", "not bold green")
        return text

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for name in ("worker", "", "done", "per second", "staleness", "waited", ""):
            table.add_column(name, justify="left" if name in ("worker", "") else "right", no_wrap=True)
        slowest = self.standing.slowest()
        for worker, place in sorted(self.standing.places.items()):
            why = f"slowest: {slowest[1]}" if slowest is not None and slowest[0] == worker else ""
            table.add_row(*self._cells(worker, place), Text(why, "yellow"))
        return table

    def _cells(self, worker: int, place: WorkerProgress) -> tuple[RenderableType, ...]:
        pulse, total = place.pulse, self.job.expected
        told = pulse.computed or pulse.waited  # one process and DDP do not tell
        waited = f"{pulse.waited:.1f} s ({place.waited_share:.0%})" if told else ""
        bar = "" if self.job.compare else _bar(pulse.iteration, total)
        return f"w{worker}", bar, f"{pulse.iteration:,}", f"{place.rate:,.0f}", str(pulse.staleness), waited


def _bar(done: int, total: int | None) -> RenderableType:
    """The progress of a worker; nothing if it is unknown how many iterations there will be."""
    return "" if total is None else ProgressBar(total, min(done, total), width=24)


def view_for(job: RecipeJob, quiet: bool) -> TrainView:
    """The view that fits where stderr goes."""
    if quiet:
        return TrainView(job)
    console = Console(stderr=True)
    moving = console.is_terminal and not console.is_dumb_terminal and not os.environ.get("NO_COLOR")
    return LiveView(job, console) if moving else PlainView(job)
