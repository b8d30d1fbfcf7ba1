"""The tables of `syncline bench`, on stderr: each of Syncline's lanes compared with its alternatives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    from syncline.bench.case import Row

_TABLES = (
    ("shared memory", "syncline-shm", ("floor", "gloo")),
    ("TCP on loopback", "syncline-tcp", ("gloo", "sockets")),
)
_NOTES = (
    "ratio: Syncline's time divided by that of the system to its left; below 1, Syncline is faster",
    "floor: one process that only adds the updates and copies the sum (in mode changes: adds the sum to parameters and "
    "copies those); sockets: plain TCP without a protocol",
    "gloo uses TCP on loopback in both tables",
)
_NO_GLOO = "gloo was skipped because torch is not installed; install it with: pip install torch"


def show_rows(rows: Sequence[Row]) -> None:
    """Print two tables with one row per case, and notes that explain them."""
    console = Console(stderr=True)
    names = {row.system for row in rows}
    for title, own, others in _TABLES:
        console.print(_table(rows, title, own, [other for other in others if other in names]), "")
    for note in _NOTES[:2]:
        console.print(note, style="dim")
    console.print(_NOTES[2] if "gloo" in names else _NO_GLOO)


def _table(rows: Sequence[Row], title: str, own: str, others: Sequence[str]) -> Table:
    table = Table(title=f"a round over {title}, mode {rows[0].mode}", title_justify="left", box=None, pad_edge=False)
    heads = [head for other in others for head in (other, "ratio")]
    for head in ("workers", "values", own, *heads):
        table.add_column(head, justify="right", no_wrap=True)
    seconds = {(row.workers, row.size, row.system): row.seconds for row in rows}
    for workers, size in dict.fromkeys((row.workers, row.size) for row in rows):
        mine = seconds.get((workers, size, own))
        cells = [cell for other in others for cell in _cells(mine, seconds.get((workers, size, other)))]
        table.add_row(str(workers), f"{size:,}", _time(mine), *cells)
    return table


def _cells(mine: float | None, other: float | None) -> tuple[str, str]:
    """Another system's time, and the ratio of Syncline's time to it."""
    return _time(other), "-" if mine is None or not other else f"{mine / other:.2f}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"
