"""Prints the result of a comparison on stderr: what was measured, what was simulated, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table

from syncline.cli.comparison_meaning import row_of
from syncline.recipes.turns import ALONE

_MEASURED = (
    "Every system trains on the same {images:,} images with the same optimizer. The workers train on {round} images "
    "in each round; one process trains on the same {round} in one step. {repeats}",
    "Each process computes on one thread. {workers} workers, {servers} and a coordinator share the {cores} of this "
    "machine. gloo uses TCP on loopback, Syncline uses {lane}.",
    "A slow worker sleeps after computing ({slow}), to take as long as a slower machine. One process has no slow "
    "worker.",
)

_SIMULATED = (
    "Simulated from the measured step of one worker ({step:.1f} ms) and the size of the model ({kilobytes:,.0f} kB). "
    "Each machine has a worker and a server, and sends nothing while it computes. DDP is estimated from the bytes that "
    "its ring moves. One process has a machine to itself: its rate follows from the processor time of its step."
)


def show_comparison(figures: Mapping[str, Any], cores: int) -> None:
    """Print both tables with notes on how they were made, and one sentence on what they mean."""
    console = Console(stderr=True)
    words = _words(figures, cores)
    console.print(_measured(figures), "", sep="\n")
    for note in _MEASURED:
        console.print(note.format(**words), style="dim", highlight=False)
    console.print("", _simulated(figures), "", sep="\n")
    console.print(_SIMULATED.format(**words), "", style="dim", highlight=False, sep="\n")
    console.print(figures["meaning"], style="bold", highlight=False)


def _measured(figures: Mapping[str, Any]) -> Table:
    title = f"MEASURED on this machine: {figures['workers']} workers train on {figures['images']:,} images"
    slow = _slow(figures)
    table = _table(title, slow, f"seconds,\n{slow}", f"accuracy,\n{slow}")
    for row in figures["rows"]:
        table.add_row(*_rates(row, figures["rows"]), f"{row['seconds']:.2f}", f"{row['accuracy']:.1%}")
    return table


def _simulated(figures: Mapping[str, Any]) -> Table:
    found = figures["simulated"]
    link = f"{found['link_bits_per_second'] / 1e9:g} Gbit"
    table = _table(f"SIMULATED, not measured: {found['machines']} machines, {link} network", _slow(figures))
    for row in found["rows"]:
        table.add_row(*_rates(row, found["rows"]))
    return table


def _slow(figures: Mapping[str, Any]) -> str:
    return f"{sum(seconds > 0 for seconds in figures['late_seconds'])} slow"


def _table(title: str, slow: str, *more: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("system", no_wrap=True, vertical="bottom")
    for name in ("images/s,\nall equal", f"images/s,\n{slow}", f"times one\nprocess,\n{slow}", *more):
        table.add_column(name, justify="right", no_wrap=True, vertical="bottom")
    return table


def _rates(row: Mapping[str, Any], rows: list[dict[str, Any]]) -> tuple[str, ...]:
    equal, slow = row["images_per_second_equal"], row["images_per_second"]
    against = slow / row_of(rows, ALONE)["images_per_second"]
    return row["system"], f"{equal:,.0f}", f"{slow:,.0f}", f"{against:.2f}"


def _words(figures: Mapping[str, Any], cores: int) -> dict[str, Any]:
    """The values for the notes."""
    servers, late = int(figures["settings"]["servers"]["value"]), enumerate(figures["late_seconds"])
    slow = [f"worker {worker} for {1000 * seconds:.0f} ms in each step" for worker, seconds in late if seconds]
    return {
        **{key: figures[key] for key in ("images", "workers")},
        "round": figures["images_a_round"],
        "repeats": _repeats(figures["repeats"]),
        "servers": _count(servers, "server"),
        "cores": _count(cores, "core"),
        "lane": {"shm": "shared memory", "tcp": "TCP on loopback"}[figures["lane"]],
        "slow": ", ".join(slow) or "none in this run",
        "step": 1000 * figures["step_seconds"],
        "kilobytes": figures["simulated"]["model_bytes"] / 1000,
    }


def _repeats(repeats: int) -> str:
    if repeats == 1:
        return "One run each: rates vary between runs; --repeats 3 shows medians of three."
    return f"Medians of {repeats} runs, each with another seed."


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"
