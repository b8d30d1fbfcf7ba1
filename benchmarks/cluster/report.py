"""What the benchmark shows and writes: a table for each model, the same figures as JSON, and what they do not say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.cluster.measure import Row
from benchmarks.cluster.predict import cores
from rich.console import Console
from rich.table import Table

SCHEMA = 1

_OF_PREDICTING = (
    "predicted: by the simulator, from the same description; a message takes a processor 0.1 ms, but what codecs and "
    "servers do with its values takes none, and TCP loses nothing",
    "gloo's ring is predicted by its bytes alone",
)


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
    measured: bool = True
    """Or only predicted."""

    @property
    def notes(self) -> list[str]:
        """What a reader has to know before believing it."""
        found = [*(self._of_measuring if self.measured else ()), *_OF_PREDICTING]
        if self.slower != 1:
            found.append(
                f"everything is {self.slower:g} times slower: pauses that much longer, links that much slower; so the "
                "processors have that much more time for the same bytes, and the proportions of the rest are kept"
            )
        return found

    @property
    def _of_measuring(self) -> list[str]:
        return [
            f"computing is a pause: {cores()} cores cannot compute for {self.hosts} hosts; how long it is, and which "
            "share each layer has, is in recipes/layer_shares.py",
            f"all hosts share the {cores()} cores of this machine, and their kernel: what Syncline and gloo compute "
            "themselves is slower than on machines of their own",
            "updates are made up: nothing is learned, only moved, added and handed back",
            "links have no latency of their own, and connections no encryption",
        ]

    def as_json(self) -> dict[str, object]:
        """Plain values, ready to be written."""
        head = {"schema": SCHEMA, "cores": cores(), "hosts": self.hosts, "rate": self.rate, "slower": self.slower}
        rows = [asdict(row) for row in self.rows]
        head |= {"measured": self.measured, "seconds": self.seconds}
        return {**head, "notes": self.notes, "alone": dict(self.alone), "rows": rows}


def show(report: Report, console: Console) -> None:
    """A table for each model, and the notes."""
    for model in report.alone:
        rows = [row for row in report.rows if row.experiment.model == model]
        console.print(_table(report, model, rows), "")
        for row in rows:
            if row.reason:
                console.print(f"{row.case}: {row.reason}", highlight=False, markup=False)
    for note in report.notes:
        console.print(f"- {note}", style="dim", highlight=False, markup=False)


_MEASURED = ("steps/s", "times one worker", "predicted", "off", "MB/step", "link used", "cores", "of all", "limit")
_PREDICTED = ("steps/s", "times one worker", "MB/step")


def _table(report: Report, model: str, rows: Sequence[Row]) -> Table:
    link = f"{report.hosts} hosts, {report.rate * 8 / 1e9 / report.slower:g} Gbit links"
    title = f"{model}, {link}; one worker alone: {report.alone[model]:.2f} steps/s"
    table = Table(title=title if report.measured else f"{title}; predicted", title_justify="left", box=None)
    table.pad_edge = False
    heads = _MEASURED if report.measured else _PREDICTED
    for head in ("case", *heads):
        table.add_column(head, justify="left" if head in ("case", "limit") else "right", no_wrap=True)
    for row in rows:
        cells = _measured(row) if report.measured else _predicted(row)
        table.add_row(row.case, *(cells or ["-"] * len(heads)))
    return table


def _measured(row: Row) -> list[str]:
    figures, expected = row.figures, row.predicted
    if figures is None:
        return [] if expected is None else ["-", "-", f"{expected.speedup:.2f}", *["-"] * 6]
    return [
        f"{figures.iterations_per_second:.2f}",
        f"{figures.speedup:.2f}",
        "-" if expected is None else f"{expected.speedup:.2f}",
        "-" if expected is None else f"{expected.speedup / figures.speedup - 1:+.0%}",
        f"{figures.bytes_per_iteration / 1e6:.2f}",
        f"{figures.utilisation:.0%}",
        f"{figures.cores:.2f}",
        f"{figures.machine_cores:.2f}",
        figures.limit,
    ]


def _predicted(row: Row) -> list[str]:
    expected = row.predicted
    if expected is None:
        return []
    pace, sent = expected.iterations_per_second, expected.bytes_per_iteration
    return [f"{pace:.2f}", f"{expected.speedup:.2f}", f"{sent / 1e6:.2f}"]
