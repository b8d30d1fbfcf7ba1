"""The command line of the cluster benchmark."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence

from benchmarks.cluster import grid
from benchmarks.cluster.learning_cli import WORD, run_learning
from benchmarks.cluster.measure import Method, Row, Tell, predict_model, run_model
from benchmarks.cluster.network import check_possible, network
from benchmarks.cluster.options import Network, Request, parse
from benchmarks.cluster.plot import plot
from benchmarks.cluster.progress import Progress, expected_seconds
from benchmarks.cluster.report import Report, show
from rich.console import Console

from syncline.engines.launch.interrupts import InterruptHandler
from syncline.errors import RunError, UsageError


def measure(request: Request, tell: Tell) -> Iterator[Report]:
    """For each network: make it, run every case, and remove it."""
    progress = Progress(_expected(request), tell)
    progress.start()
    for each in request.networks:
        if len(request.networks) > 1:
            latency = f"{each.latency * 1e3:g} ms"
            tell(f"{each.hosts} hosts, {each.rate * 8e-9:g} Gbit, {latency}, {each.slower:g} times slower:")
        note = f", everything {each.slower:g} times slower" if each.slower != 1 else ""
        method = Method(request.seconds, request.repeat, request.picture, note)
        alone, rows = {}, []
        with network(each.hosts, each.rate / each.slower, each.latency * each.slower) as hosts:
            for name in request.models:
                alone[name], more = run_model(each.base(name), request.cases, hosts, method, tell, progress.done)
                rows += more
        yield _report(request, each, alone, rows)


def _expected(request: Request) -> list[float]:
    """About how many seconds each run takes, in the order of `measure`."""
    return [
        expected_seconds(case, each.base(name), request.seconds)
        for each in request.networks
        for name in request.models
        for _ in range(request.repeat)
        for case in request.cases
    ]


def predict(request: Request, tell: Tell) -> Iterator[Report]:
    """For each network: simulate every case."""
    for each in request.networks:
        alone, rows = {}, []
        for name in request.models:
            alone[name], more = predict_model(each.base(name), request.cases, tell)
            rows += more
        yield _report(request, each, alone, rows)


def _report(request: Request, each: Network, alone: dict[str, float], rows: list[Row]) -> Report:
    head = (each.hosts, each.rate, each.slower, request.seconds)
    return Report(*head, alone, rows, not request.predict_only, each.latency, request.repeat)


def _tell(text: str) -> None:
    Console(stderr=True, highlight=False).print(text, markup=False, soft_wrap=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    reports: list[Report] = []
    try:
        if words[:1] == [WORD]:
            with InterruptHandler(again=lambda: None):
                return run_learning(words[1:], _tell)
        request = parse(words)
        if not request.predict_only:
            check_possible(max(each.hosts for each in request.networks))
        with InterruptHandler(again=lambda: None):
            for report in (predict if request.predict_only else measure)(request, _tell):
                reports.append(report)
                _write(request, reports)  # after each network, since all of them may take hours
    except UsageError as error:
        return _complain(str(error), 2)
    except RunError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return _complain("interrupted; the network was removed", 130)
    _show(reports)
    return 1 if any(row.failed for report in reports for row in report.rows) else 0


def _write(request: Request, reports: Sequence[Report]) -> None:
    if request.report is not None:
        request.report.write_text(json.dumps(grid.as_json(reports), indent=2) + "\n")
    if request.table is not None:
        grid.write(reports, request.table)
    if request.plot is not None:
        plot(reports[0], request.plot)


def _show(reports: Sequence[Report]) -> None:
    if len(reports) == 1:
        show(reports[0], Console(width=132))
    else:
        grid.show_grid(reports, Console(width=140))


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return code
