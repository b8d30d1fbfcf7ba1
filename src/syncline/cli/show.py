"""Prints settings, progress and a summary, all on stderr, so that stdout stays free."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from syncline.sim.experiment import Experiment
    from syncline.sim.outcome import Outcome
    from syncline.sim.trace import TextTarget

_LONG = 1.0
"""The seconds after which a run gets a progress bar."""


def settings(experiment: Experiment) -> None:
    """Print every setting and where it came from."""
    rows = [(setting.key, setting.value, setting.origin) for setting in experiment.settings]
    Console(stderr=True).print(settings_table(rows), "")


def settings_table(rows: Iterable[tuple[str, str, str]]) -> Table:
    """One row per setting: its name, its value, and where the value came from."""
    table = Table("setting", "value", "from", title="settings", title_justify="left", box=None, pad_edge=False)
    for key, value, origin in rows:
        table.add_row(escape(key), escape(value), escape(origin), style="dim" if origin == "default" else "")
    return table


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """On a terminal, show a progress bar if the run takes longer than a second."""
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
    """Print the figures of the report with their meanings."""
    console = Console(stderr=True)
    console.print(figures_table({key: value for key, value in figures.items() if key not in _NOT_SHOWN}))
    for note in outcome.notes:
        console.print(f"note: {note}", style="yellow", markup=False)


_NOT_SHOWN = ("schema", "staleness_histogram", "staleness_curve", "bytes_per_link", "lost_origins")


def figures_table(figures: dict[str, Any], meaning: Mapping[str, str] | None = None) -> Table:
    """One row per figure: its name, its value and its meaning; `meaning` overrides the simulator's meanings."""
    known = {**_MEANING, **(meaning or {})}
    table = Table(title="result", title_justify="left", box=None, pad_edge=False)
    table.add_column("figure")
    table.add_column("value", overflow="fold", min_width=22)
    table.add_column("")
    for key, value in figures.items():
        table.add_row(key, "-" if value is None else escape(_number(value)), known.get(key, ""))
    return table


def as_json(figures: dict[str, Any], file: TextTarget) -> None:
    """Write a report, with its mark."""
    from syncline.sim.report import REPORT_MARK

    json.dump({**REPORT_MARK, **figures}, file, indent=2, allow_nan=False)
    file.write("\n")


def _number(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


_MEANING = {
    "virtual_seconds": "until the last answer that any worker waits for",
    "iterations": "of each worker, as requested",
    "iterations_done": "of all workers together",
    "stopped_by": "what ended the run",
    "updates": "pushes accepted, per worker, iteration and server",
    "delayed_pulls": "pulls not answered immediately",
    "dropped_updates": "updates that arrived too late",
    "waiting_seconds": "time with a delayed pull, summed over workers",
    "train_progress": "iterations that every bucket has closed",
    "bytes_pushed": "payload of updates",
    "bytes_pulled": "payload of parameters",
    "pushes_skipped": "updates of buckets that a gate held back",
    "fetches_skipped": "parameters of buckets that a gate did not fetch",
    "bytes_wire": "payload and headers of all messages",
    "staleness_mean": "versions between an update's parameters and its application",
    "staleness_max": "the largest staleness of an update",
    "hops_mean": "links between two nodes of the tree, on average",
    "hops_max": "links between the two nodes that are farthest apart",
    "seconds_to_agree": "from the end of training until all replicas contain all updates",
    "replica_gap_after_rest": "largest difference between two replicas after that",
    "replica_gap": "largest difference between a replica and the final model",
    "bottleneck": "where most of the time went",
    "partitions": "ranges into which workers cut the model, at the end",
    "restored_buckets": "buckets of dead servers that were restored from the workers' copies",
    "lost_updates": "updates of buckets that were lost with a server, answered without parameters",
    "deaths": "what has reached whom of each dead worker's updates",
    "accuracy": "on the test data",
    "loss": "on the test data",
}
