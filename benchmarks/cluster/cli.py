"""The command line of the cluster benchmark."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cluster.experiment import CASES, Experiment, case
from benchmarks.cluster.measure import predict_model, run_model
from benchmarks.cluster.models import MODELS, model
from benchmarks.cluster.network import check_hosts, check_possible, network
from benchmarks.cluster.plot import plot
from benchmarks.cluster.report import Report, show
from rich.console import Console

from syncline import units
from syncline.engines.launch.interrupts import InterruptHandler
from syncline.errors import RunError, UsageError
from syncline.sim.plot import check_plot

EPILOG = "Exit codes: 0 success, 1 a case failed, 2 an option is invalid, 130 interrupted."


@dataclass(frozen=True)
class Request:
    """The options of one run of the benchmark."""

    hosts: int
    rate: float
    """Bytes per second."""
    models: tuple[str, ...]
    cases: tuple[str, ...]
    seconds: float
    slower: float
    report: Path | None
    plot: Path | None
    predict_only: bool = False

    def base(self, name: str) -> Experiment:
        """The experiment of a model on the hosts and links of this request."""
        return Experiment(name, self.hosts, self.rate).slower(self.slower)


def parse(arguments: Sequence[str]) -> Request:
    """The request, or a UsageError that names the option."""
    parser = argparse.ArgumentParser("benchmarks/cluster", description=_description(), epilog=EPILOG)
    parser.add_argument("--hosts", type=int, default=4, help="hosts, each with a worker and a server (default: 4)")
    parser.add_argument("--rate", default="1Gbit", help="rate of each link in each direction (default: 1Gbit)")
    parser.add_argument("--models", default=",".join(MODELS), help=f"default: {','.join(MODELS)}")
    parser.add_argument("--cases", default=",".join(CASES), help=f"default: {','.join(CASES)}")
    parser.add_argument("--seconds", type=float, default=5.0, help="measuring time of a case (default: 5)")
    parser.add_argument(
        "--slower", type=float, default=1.0, help="divide the rate by this and multiply the pauses (default: 1)"
    )
    parser.add_argument("--report", type=Path, help="write the results as JSON")
    parser.add_argument("--plot", type=Path, help="draw the results")
    parser.add_argument(
        "--predict-only", action="store_true", help="only simulate; needs neither root nor network namespaces"
    )
    given = parser.parse_args(arguments)
    request = Request(
        given.hosts,
        units.rate(given.rate, "--rate"),
        _words(given.models, "--models"),
        _words(given.cases, "--cases"),
        given.seconds,
        given.slower,
        given.report,
        given.plot,
        given.predict_only,
    )
    _check(request)
    return request


def _description() -> str:
    return "Measure Syncline and gloo on an emulated network, with links of a limited rate. Needs root."


def _words(text: str, option: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise UsageError(option, "is empty; give names separated by commas")
    return words


def _check(request: Request) -> None:
    check_hosts(request.hosts)
    for option, value in (("--seconds", request.seconds), ("--slower", request.slower)):
        if not (0 < value < math.inf):
            raise UsageError(option, f"{value:g} must be finite and above 0")
    for name in request.models:
        model(name)
        for each in request.cases:
            case(each, request.base(name))
    for option, file in (("--report", request.report), ("--plot", request.plot)):
        if file is not None and not file.resolve().parent.is_dir():
            raise UsageError(option, f"{file}: the folder {file.resolve().parent} does not exist")
    if request.plot is not None:
        check_plot(request.plot)


def measure(request: Request) -> Report:
    """Make the network, run every case, and remove the network."""
    alone, rows = {}, []
    with network(request.hosts, request.rate / request.slower) as hosts:
        for name in request.models:
            alone[name], more = run_model(request.base(name), request.cases, hosts, request.seconds, _tell())
            rows += more
    return Report(request.hosts, request.rate, request.slower, request.seconds, alone, rows)


def predict(request: Request) -> Report:
    """Simulate every case."""
    alone, rows = {}, []
    for name in request.models:
        alone[name], more = predict_model(request.base(name), request.cases, _tell())
        rows += more
    return Report(request.hosts, request.rate, request.slower, request.seconds, alone, rows, measured=False)


def _tell() -> Callable[[str], None]:
    say = Console(stderr=True, highlight=False)
    return lambda text: say.print(text, markup=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    try:
        request = parse(sys.argv[1:] if arguments is None else arguments)
        if not request.predict_only:
            check_possible(request.hosts)
        with InterruptHandler(again=lambda: None):
            report = predict(request) if request.predict_only else measure(request)
    except UsageError as error:
        return _complain(str(error), 2)
    except RunError as error:
        return _complain(str(error), 1)
    except KeyboardInterrupt:
        return _complain("interrupted; the network was removed", 130)
    if request.report is not None:  # write files first, in case the terminal is closed
        request.report.write_text(json.dumps(report.as_json(), indent=2) + "\n")
    if request.plot is not None:
        plot(report, request.plot)
    show(report, Console(width=120))
    return 1 if any(row.failed for row in report.rows) else 0


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"{text}\n")
    return code
