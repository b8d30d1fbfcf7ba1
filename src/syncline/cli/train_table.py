"""What is left to read when a training run is over: its figures, its workers, or a comparison. On stderr."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from syncline.cli.show import figures_table, settings_table

_NOTES = (
    "One thread each; {workers} workers, {servers} and a coordinator share {cores} cores. gloo is TCP on loopback, "
    "Syncline's lane is {lane}.",
    "Time is worker 0's, from when all were ready, to the first of its parameters, taken every 4 steps, that reach "
    "the target. How good they are is looked at afterwards for every system, outside the time.",
    "Median of {repeats} seeds. {slow}. One process has no straggler, and nobody to wait for.",
    "The model is tiny: what a step costs beside its gradient decides here. On a larger one, or on machines of their "
    "own, the order may be another.",
)

_MEANING = {
    "seconds": "from the first iteration of any worker to the last",
    "waiting_seconds": "summed over workers, from an update's leaving to its answer",
    "bottleneck": "compute or sync: what most of the workers' time went into",
}


def show_settings(settings: Mapping[str, tuple[str, str]]) -> None:
    rows = [(key, value, origin) for key, (value, origin) in settings.items()]
    Console(stderr=True).print(settings_table(rows), "")


def show_result(figures: Mapping[str, Any]) -> None:
    """A table of the workers, and one of the figures."""
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
    """A line a system, and what was measured how."""
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
