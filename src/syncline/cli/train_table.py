"""What is left to read when a training run is over: its figures and its workers. On stderr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from syncline.cli.show import figures_table, settings_table

_MEANING = {
    "seconds": "from the first iteration of any worker to the last",
    "waiting_seconds": "from sending an update to its answer, summed over workers",
    "bottleneck": "compute or sync: where most of the workers' time went",
}


def show_settings(settings: Mapping[str, tuple[str, str]]) -> None:
    rows = [(key, value, origin) for key, (value, origin) in settings.items()]
    Console(stderr=True).print(settings_table(rows), "")


def show_result(figures: Mapping[str, Any]) -> None:
    """Print a table of the workers and a table of the figures."""
    console = Console(stderr=True)
    shown = {
        key: value
        for key, value in figures.items()
        if key not in ("schema", "workers", "settings", "staleness_histogram")
    }
    console.print(_workers(figures["workers"]), "")
    console.print(figures_table(shown, _MEANING if figures["engine"] == "local" else None))


def _workers(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="workers", title_justify="left", box=None, pad_edge=False)
    for key in rows[0]:
        table.add_column(key.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" for value in row.values()))
    return table
