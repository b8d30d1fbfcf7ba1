"""What the benchmark shows and writes: a table for each model, the same figures as JSON, and what they do not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.cluster.measure import Row, cores, outcome
from rich.console import Console
from rich.table import Table

SCHEMA = 1


@dataclass(frozen=True)
class Report:
    """One run of the benchmark."""

    hosts: int
    rate: float
    """Bytes per second that was asked for; a link has this divided by `slower`."""
    slower: float
    seconds: float
    """Of each case."""
    alone: Mapping[str, float]
    """Of each model: the steps per second of one worker that computes alone."""
    rows: Sequence[Row]

    @property
    def notes(self) -> list[str]:
        """What a reader has to know before believing it."""
        found = [
            f"computing is a pause: {cores()} cores cannot compute for {self.hosts} hosts; how long it is, and which "
            "share each layer has, is in models.py",
            f"all hosts share the {cores()} cores of this machine, and their kernel: what Syncline and gloo compute "
            "themselves is slower than on machines of their own",
            "updates are made up: nothing is learned, only moved, added and handed back",
            "links have no latency of their own, and connections no encryption",
        ]
        if self.slower != 1:
            found.append(
                f"everything is {self.slower:g} times slower: pauses that much longer, links that much slower; so the "
                "processors have that much more time for the same bytes, and the proportions of the rest are kept"
            )
        return found

    def as_json(self) -> dict[str, object]:
        """Plain values, ready to be written."""
        head = {"schema": SCHEMA, "cores": cores(), "hosts": self.hosts, "rate": self.rate, "slower": self.slower}
        rows = [asdict(row) for row in self.rows]
        return {**head, "seconds": self.seconds, "notes": self.notes, "alone": dict(self.alone), "rows": rows}


def show(report: Report, console: Console) -> None:
    """A table for each model, and the notes."""
    for model in report.alone:
        rows = [row for row in report.rows if row.experiment.model == model]
        console.print(_table(report, model, rows), "")
        for row in rows:
            if row.figures is None:
                console.print(f"{row.case}: {outcome(row)}", highlight=False, markup=False)
    for note in report.notes:
        console.print(f"- {note}", style="dim", highlight=False, markup=False)


def _table(report: Report, model: str, rows: Sequence[Row]) -> Table:
    link = f"{report.hosts} hosts, {report.rate * 8 / 1e9 / report.slower:g} Gbit links"
    title = f"{model}, {link}; one worker alone: {report.alone[model]:.2f} steps/s"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in ("case", "steps/s", "times one worker", "MB/step", "link used", "cores", "of all", "limit"):
        table.add_column(head, justify="left" if head in ("case", "limit") else "right", no_wrap=True)
    for row in rows:
        figures = row.figures
        if figures is None:
            table.add_row(row.case, *["-"] * 7)
            continue
        table.add_row(
            row.case,
            f"{figures.iterations_per_second:.2f}",
            f"{figures.speedup:.2f}",
            f"{figures.bytes_per_iteration / 1e6:.2f}",
            f"{figures.utilisation:.0%}",
            f"{figures.cores:.2f}",
            f"{figures.machine_cores:.2f}",
            figures.limit,
        )
    return table
