"""One table of several networks: a line for each network and model, with the cases side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.cluster.experiment import System
from benchmarks.cluster.measure import Row
from benchmarks.cluster.report import SCHEMA, Report
from rich.console import Console
from rich.table import Table

NETWORK = ("hosts", "rate", "latency", "slower", "model")


def as_json(reports: Sequence[Report]) -> dict[str, object]:
    """The report of one network, or a list of the reports of several."""
    if len(reports) == 1:
        return reports[0].as_json()
    return {"schema": SCHEMA, "networks": [report.as_json() for report in reports]}


def cells(reports: Sequence[Report]) -> tuple[list[str], list[list[str]]]:
    """The heads and the lines of the table: for each case the speed-up, for each case but gloo its ratio to gloo."""
    lines = [(report, model) for report in reports for model in report.alone]
    cases = list(dict.fromkeys(row.case for report in reports for row in report.rows))
    kinds = {row.case: row.experiment.system for report in reports for row in report.rows}
    ours = [name for name in cases if kinds[name] is System.SYNCLINE and "gloo" in cases]
    heads = [*NETWORK]
    for name in cases:
        heads += [name, "limit"] if kinds[name] is System.GLOO else [name, "predicted", "limit"]
    heads += [f"{name} / gloo" for name in ours]
    return heads, [_line(report, model, cases, ours) for report, model in lines]


def _line(report: Report, model: str, cases: Sequence[str], ours: Sequence[str]) -> list[str]:
    rows = {row.case: row for row in report.rows if row.experiment.model == model}
    rate = f"{report.rate * 8e-9:g} Gbit"
    found = [f"{report.hosts}", rate, f"{report.latency * 1e3:g} ms", f"{report.slower:g}", model]
    for name in cases:
        row = rows[name]
        speed = _speed(row, measured=report.measured)
        result = "-" if speed is None else f"{speed:.2f}"
        expected = "-" if row.predicted is None else f"{row.predicted.speedup:.2f}"
        limit = (row.reason.partition(":")[0] or "-") if row.figures is None else row.figures.limit
        found += [result, limit] if row.experiment.system is System.GLOO else [result, expected, limit]
    return found + [_ratio(_speed(rows[n], report.measured), _speed(rows["gloo"], report.measured)) for n in ours]


def _speed(row: Row, measured: bool) -> float | None:
    figures = row.figures if measured else row.predicted
    return None if figures is None else figures.speedup


def _ratio(speed: float | None, other: float | None) -> str:
    return "-" if speed is None or other is None else f"{speed / other:.2f}"


def as_markdown(reports: Sequence[Report]) -> str:
    """The table in Markdown."""
    heads, lines = cells(reports)
    rows = [heads, ["---"] * len(heads), *lines]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def write(reports: Sequence[Report], path: Path) -> None:
    path.write_text(as_markdown(reports))


def show_grid(reports: Sequence[Report], console: Console) -> None:
    """Print the table, with the reasons of cases without results."""
    heads, lines = cells(reports)
    title = "Steps per second of all workers, as a multiple of one worker alone"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="left" if head in ("model", "limit") else "right", no_wrap=True)
    for line in lines:
        table.add_row(*line)
    console.print(table, "")
    for report in reports:
        for row in report.rows:
            if row.reason:
                where = f"{report.hosts} hosts, {row.experiment.model}, {row.case}"
                console.print(f"{where}: {row.reason}", highlight=False, markup=False)
