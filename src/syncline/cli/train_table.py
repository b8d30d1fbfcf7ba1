"""The tables that `syncline train` prints on stderr at the end: figures, workers, or a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from syncline.cli.show import figures_table, settings_table

_NOTES = (
    "Each process uses one thread; {workers} workers, {servers} and a coordinator share {cores} cores. gloo is TCP on "
    "loopback, Syncline's lane is {lane}.",
    "Seconds: from when all workers were ready until worker 0's parameters, kept every 4 steps, first reach the "
    "target. Their accuracy is measured afterwards for every system, and this does not count as time.",
    "Median of {repeats} seeds. {slow}. One process has no straggler and waits for no other.",
    "The model is tiny, so what a step costs besides its gradient matters most here. With a larger model, or on "
    "separate machines, the order may differ.",
)

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
    shown = {key: value for key, value in figures.items() if key not in ("schema", "workers", "settings")}
    console.print(_workers(figures["workers"]), "")
    console.print(figures_table(shown, _MEANING if figures["engine"] == "local" else None))


def _workers(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="workers", title_justify="left", box=None, pad_edge=False)
    for key in rows[0]:
        table.add_column(key.replace("_", " "), justify="right")
    for row in rows:
        table.add_row(*(f"{value:,.3f}" if isinstance(value, float) else f"{value:,}" for value in row.values()))
    return table


def show_comparison(figures: Mapping[str, Any], cores: int) -> None:
    """Print one row per system, and notes on what was measured and how."""
    console = Console(stderr=True)
    target, settings = figures["target_accuracy"], figures["settings"]
    table = Table(title=f"seconds to {target:.0%} test accuracy", title_justify="left", box=None, pad_edge=False)
    for name in ("system", "seconds", "from", "to", "steps", "ms a step", "at the end"):
        table.add_column(name, justify="left" if name == "system" else "right", no_wrap=True)
    for row in figures["rows"]:
        table.add_row(*_cells(row, figures["repeats"]))
    console.print(table, "")
    late = ", ".join(
        f"worker {worker} is {1000 * seconds:.1f} ms late in each step ({settings['slow']['value']})"
        for worker, seconds in enumerate(figures["late_seconds"])
        if seconds
    )
    servers = int(settings["servers"]["value"])
    words = {
        "workers": settings["workers"]["value"],
        "servers": f"{servers} server{'s' * (servers > 1)}",
        "cores": cores,
        "lane": {"shm": "shared memory", "tcp": "TCP on loopback"}[figures["lane"]],
        "repeats": figures["repeats"],
        "slow": late[:1].upper() + late[1:],
    }
    for note in _NOTES:
        console.print(note.format(**words), style="dim", highlight=False)


def _cells(row: Mapping[str, Any], repeats: int) -> tuple[str, ...]:
    pace, accuracy = f"{1000 * row['step_seconds']:.2f}", f"{row['accuracy']:.1%}"
    if row["seconds"] is None:
        return row["system"], f"in {row['reached']} of {repeats}", "", "", "", pace, accuracy
    runs = [run["seconds"] for run in row["runs"]]
    spread = (f"{row['seconds']:.3f}", f"{min(runs):.3f}", f"{max(runs):.3f}")
    return row["system"], *spread, f"{row['steps']:.0f}", pace, accuracy
