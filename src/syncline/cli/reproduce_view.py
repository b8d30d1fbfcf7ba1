"""What `syncline reproduce` shows: a progress bar with the remaining time, and a line for each finished figure."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from threading import Lock

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from syncline.cli.output import SideOutputs
from syncline.engines.launch.interrupts import InterruptHandler
from syncline.reproduce.catalogue import FIGURES
from syncline.reproduce.figure import ClaimStatus, Figure
from syncline.reproduce.produce import FigureFolder, Made, make, orders


def listed() -> None:
    """List every figure, its paper, and the paper's claim."""
    table = Table("name", "from", "what the paper says", box=None, pad_edge=False)
    for figure in FIGURES.values():
        needs = " [dim](needs --data)[/dim]" if figure.needs_data(quick=True) else ""
        table.add_row(figure.name, escape(figure.paper), escape(figure.claim) + needs)
    Console().print(table)


def produce(figures: Sequence[Figure], place: FigureFolder, left_out: Sequence[Figure]) -> None:
    """Make these figures one after another, and print for each how far the paper's claim holds here."""
    console, outputs = Console(stderr=True, highlight=False), SideOutputs()
    lose = partial(outputs.lose, "--out")
    with InterruptHandler(again=lambda: None), FigureProgress(console) as view:
        for figure in figures:
            view.begin(figure, place)
            _say(Console(highlight=False, soft_wrap=True), make(figure, place, view.tell, view.done, lose))
    if left_out:
        names = ", ".join(each.name for each in left_out)
        console.print(f"skipped because they train on MNIST: {names}; name its folder with --data")
    outputs.end()


def _say(console: Console, made: Made) -> None:
    status = made.verdict.status
    colour = "green" if status is ClaimStatus.HOLDS else "yellow"
    quick = " (--quick)" if made.quick else ""
    mark = f"[{colour}]{status}[/{colour}]{quick}"
    console.print(f"[bold]{made.figure.name}[/bold] {mark}: {escape(made.verdict.words)}")
    if made.files:
        console.print(f"  {escape(', '.join(map(str, made.files)))}", style="dim")


class FigureProgress:
    """On a terminal, a progress bar; otherwise one line per finished run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = TaskID(0)
        self._lock = Lock()
        self._shares: dict[str, float] = {}
        """For each run of the current figure: the share that is done."""
        self._finished: set[str] = set()
        """The runs that are over; of another one, all may be done before its result is there."""
        self._name = ""

    def __enter__(self) -> FigureProgress:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def begin(self, figure: Figure, place: FigureFolder) -> None:
        self._name = figure.name
        self._shares, self._finished = dict.fromkeys(orders(figure, place), 0.0), set()
        self._task = self._bar.add_task(figure.name, total=len(self._shares))

    def tell(self, name: str, done: int, total: int) -> None:
        with self._lock:
            self._shares[name] = done / max(total, 1)
            self._bar.update(self._task, completed=sum(self._shares.values()))

    def done(self, name: str) -> None:
        self.tell(name, 1, 1)
        self._finished.add(name)
        finished = len(self._finished)
        if not self._console.is_terminal:
            self._console.print(f"{self._name}: {finished} of {len(self._shares)} runs: {name}", markup=False)
        if finished == len(self._shares):
            self._bar.remove_task(self._task)
