"""The output of the benchmark: a table for each model, notes on how to read it, and the same numbers as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from benchmarks.cluster.measure import Row
from benchmarks.cluster.predict import cores, load_of
from rich.console import Console
from rich.table import Table

SCHEMA = 1

_OF_PREDICTING = (
    "predicted: by the simulator, from the same description; a message takes 0.1 ms of processor time, the work of "
    "codecs and servers on its values takes none, and TCP loses no packets",
    "gloo's ring is predicted from its bytes and the latency alone",
)


@dataclass(frozen=True)
class Report:
    """One run of the benchmark."""

    hosts: int
    rate: float
    """The requested rate in bytes per second; the rate of a link is this divided by `slower`."""
    slower: float
    seconds: float
    """The measuring time of each case."""
    alone: Mapping[str, float]
    """For each model, the steps per second of one worker without communication."""
    rows: Sequence[Row]
    measured: bool = True
    """False if the cases were only predicted."""
    latency: float = 0.0
    """The requested latency in seconds; that of the network is this multiplied by `slower`."""
    repeat: int = 1
    """The number of runs of each case."""

    @property
    def notes(self) -> list[str]:
        """What a reader has to know to interpret the numbers."""
        found = [*(self._of_measuring if self.measured else ()), *_OF_PREDICTING]
        if self.slower != 1:
            found.append(
                f"everything is {self.slower:g} times slower: pauses and latency are longer and links slower by this "
                "factor; so the processors have more time for the same bytes, and the ratio of computing to sending is "
                "unchanged"
            )
        return found

    @property
    def _of_measuring(self) -> list[str]:
        return [
            f"workers sleep instead of computing, since {cores()} cores cannot compute for {self.hosts} hosts; "
            "recipes/layer_shares.py has the times of the steps and layers",
            f"all hosts share the {cores()} cores and the kernel of this machine: the work of Syncline and gloo takes "
            "longer than on separate machines",
            "updates are synthetic: workers exchange them, but do not train",
            "connections have no encryption",
            *([f"figures are medians of {self.repeat} runs"] if self.repeat > 1 else []),
        ]

    def as_json(self) -> dict[str, object]:
        """The report as values that JSON can represent."""
        head = {"schema": SCHEMA, "cores": cores(), "hosts": self.hosts, "rate": self.rate, "slower": self.slower}
        rows = [{**asdict(row), "runs": [asdict(run) for run in row.runs], "load": _load(row)} for row in self.rows]
        head |= {"measured": self.measured, "seconds": self.seconds, "latency": self.latency, "repeat": self.repeat}
        return {**head, "notes": self.notes, "alone": dict(self.alone), "rows": rows}


def _load(row: Row) -> float | None:
    """x, if the workers send each other their updates."""
    return load_of(row.experiment) if row.experiment.exchanges else None


def show(report: Report, console: Console) -> None:
    """Print a table for each model, and the notes."""
    for model in report.alone:
        rows = [row for row in report.rows if row.experiment.model == model]
        console.print(_table(report, model, rows), "")
        for row in rows:
            if row.reason:
                console.print(f"{row.case}: {row.reason}", highlight=False, markup=False)
    for note in report.notes:
        console.print(f"- {note}", style="dim", highlight=False, markup=False)


_MEASURED = (
    *("steps/s", "times one worker", "predicted", "off", "MB/step", "p (x)"),
    *("link used", "exchanging", "cores", "of all", "limit"),
)
_PREDICTED = ("steps/s", "times one worker", "MB/step", "p (x)")


def link_words(report: Report) -> str:
    """The network of a report as it was emulated."""
    latency = f", latency {report.latency * report.slower * 1e3:g} ms" if report.latency else ""
    return f"{report.hosts} hosts, {report.rate * 8 / 1e9 / report.slower:g} Gbit links{latency}"


def _table(report: Report, model: str, rows: Sequence[Row]) -> Table:
    title = f"{model}, {link_words(report)}; one worker alone: {report.alone[model]:.2f} steps/s"
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
        return [] if expected is None else ["-", "-", f"{expected.speedup:.2f}", *["-"] * 8]
    return [
        f"{figures.iterations_per_second:.2f}",
        f"{figures.speedup:.2f}",
        "-" if expected is None else f"{expected.speedup:.2f}",
        "-" if expected is None else f"{expected.speedup / figures.speedup - 1:+.0%}",
        f"{figures.bytes_per_iteration / 1e6:.2f}",
        _ranges(row, figures.partitions),
        f"{figures.utilisation:.0%}",
        "-" if figures.exchanging is None else f"{figures.exchanging:.0%}",
        f"{figures.cores:.2f}",
        f"{figures.machine_cores:.2f}",
        figures.limit,
    ]


def _predicted(row: Row) -> list[str]:
    expected = row.predicted
    if expected is None:
        return []
    pace, sent = expected.iterations_per_second, expected.bytes_per_iteration
    return [f"{pace:.2f}", f"{expected.speedup:.2f}", f"{sent / 1e6:.2f}", _ranges(row, expected.partitions)]


def _ranges(row: Row, partitions: int) -> str:
    """The number of ranges, and the load that it should follow from."""
    return f"{partitions} ({load_of(row.experiment):.2f})" if partitions else "-"
