"""What a person sees: settings, progress, and a summary. All on stderr, so that stdout stays free."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from syncline.sim.experiment import Experiment
    from syncline.sim.outcome import Outcome

_LONG = 1.0
"""After how many seconds a run gets a progress bar."""


def settings(experiment: Experiment) -> None:
    """Every setting and where it came from."""
    rows = [(setting.key, setting.value, setting.origin) for setting in experiment.settings]
    Console(stderr=True).print(settings_table(rows), "")


def settings_table(rows: Iterable[tuple[str, str, str]]) -> Table:
    """A row for each setting: its name, its value, and where that came from."""
    table = Table("setting", "value", "from", title="settings", title_justify="left", box=None, pad_edge=False)
    for key, value, origin in rows:
        table.add_row(escape(key), escape(value), escape(origin), style="dim" if origin == "default" else "")
    return table


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A bar that appears once a run turns out to be long."""
    console = Console(stderr=True)
    if quiet or not console.is_terminal:
        yield None
        return
    columns = (
        TextColumn("simulating"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("iterations"),
        TimeRemainingColumn(),
    )
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task("simulating")
    begun = monotonic()

    def tell(done: int, total: int) -> None:
        if not bar.live.is_started and monotonic() - begun > _LONG:
            bar.start()
        bar.update(task, completed=done, total=total)

    try:
        yield tell
    finally:
        bar.stop()


def summary(outcome: Outcome, figures: dict[str, Any]) -> None:
    """The figures of the report, each with what it means."""
    console = Console(stderr=True)
    console.print(figures_table({key: value for key, value in figures.items() if key != "schema"}))
    for note in outcome.notes:
        console.print(f"note: {note}", style="yellow")


def figures_table(figures: dict[str, Any], meaning: Mapping[str, str] | None = None) -> Table:
    """A row for each figure: its name, its value, and what it means (`meaning`: where that is not the simulator's)."""
    known = {**_MEANING, **(meaning or {})}
    table = Table(title="result", title_justify="left", box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("value", overflow="fold", min_width=22)
    table.add_column("")
    for key, value in figures.items():
        table.add_row(key, "-" if value is None else _number(value), known.get(key, ""))
    return table


def as_json(figures: dict[str, Any], file: TextIO) -> None:
    json.dump(figures, file, indent=2, allow_nan=False)
    file.write("\n")


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


_MEANING = {
    "virtual_seconds": "until the last answer that any worker waits for",
    "iterations": "of each worker, as asked for",
    "updates": "pushes taken, per worker, iteration and server",
    "delayed_pulls": "pulls not answered at once",
    "dropped_updates": "updates that came too late",
    "waiting_seconds": "summed over workers, while a pull is parked",
    "train_progress": "iterations that every bucket has closed",
    "bytes_pushed": "payload of updates",
    "bytes_pulled": "payload of parameters",
    "pushes_skipped": "updates of buckets that a gate held back",
    "fetches_skipped": "parameters of buckets that a gate did without",
    "bytes_wire": "payload and headers of all messages",
    "replica_gap": "largest difference of a replica from the model at the end",
    "bottleneck": "where most of the time went",
    "accuracy": "on the test data",
    "loss": "on the test data",
}
