"""The options of the cluster benchmark."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TypeVar

from benchmarks.cluster.experiment import CASES, Experiment, case
from benchmarks.cluster.models import MODELS, model
from benchmarks.cluster.network import check_hosts
from benchmarks.cluster.predict import cores

from syncline import units
from syncline.errors import UsageError
from syncline.sim.plot import check_plot

EPILOG = (
    "`benchmarks/cluster learn --help`: hosts that learn. Exit codes: 0 success, 1 a case failed, 2 an option is "
    "invalid, 130 interrupted."
)

PER_CORE = 62.5e6
"""With `--slower auto`, all links together have a rate of at most this many bytes per second for each core."""

Number = TypeVar("Number", int, float)

COMPARED = ("bsp", "gloo")
"""The cases by default if there are several networks."""


@dataclass(frozen=True)
class Network:
    """Hosts and links, as the user has asked for them; everything is then `slower`."""

    hosts: int
    rate: float
    """Bytes per second."""
    latency: float = 0.0
    """Seconds from one host to another."""
    slower: float = 1.0

    def base(self, name: str) -> Experiment:
        """The experiment of a model on this network."""
        return Experiment(name, self.hosts, self.rate, self.latency).slower(self.slower)

    def suited(self) -> Network:
        """The same network, as much slower as this machine needs to carry its traffic."""
        return replace(self, slower=float(max(1, math.ceil(self.hosts * self.rate / (PER_CORE * cores())))))


@dataclass(frozen=True)
class Request:
    """The options of one run of the benchmark."""

    networks: tuple[Network, ...]
    models: tuple[str, ...]
    cases: tuple[str, ...]
    seconds: float
    repeat: int
    report: Path | None
    plot: Path | None
    table: Path | None
    timeline: Path | None
    predict_only: bool

    def picture(self, experiment: Experiment, name: str) -> Path | None:
        """The file for the timeline of a case: the one that was given, or one for each case if there are several."""
        if self.timeline is None or len(self.models) * len(self.cases) == 1:
            return self.timeline
        return self.timeline.with_stem(f"{self.timeline.stem}-{experiment.model}-{name}")


def parse(arguments: Sequence[str]) -> Request:
    """The request, or a UsageError that names the option."""
    given = _parser().parse_args(arguments)
    networks = _networks(given)
    request = Request(
        networks,
        _words(given.models, "--models"),
        _words(given.cases or ",".join(CASES if len(networks) == 1 else COMPARED), "--cases"),
        given.seconds,
        given.repeat,
        given.report,
        given.plot,
        given.table,
        given.timeline,
        given.predict_only,
    )
    _check(request)
    return request


def _parser() -> argparse.ArgumentParser:
    text = "Measure Syncline and gloo on an emulated network, with links of a limited rate. Needs root."
    parser = argparse.ArgumentParser("benchmarks/cluster", description=text, epilog=EPILOG)
    add = parser.add_argument
    add("--hosts", default="4", help="hosts, each with a worker and a server (default: 4); several: 2,4,8")
    add("--rate", default="1Gbit", help="rate of each link in each direction (default: 1Gbit); several: 100Mbit,1Gbit")
    add("--latency", default="0ms", help="time from one host to another (default: 0ms); several: 0ms,20ms")
    add("--models", default=",".join(MODELS), help=f"default: {','.join(MODELS)}")
    add("--cases", default="", help=f"default: {','.join(CASES)}; on several networks: {','.join(COMPARED)}")
    add("--seconds", type=float, default=5.0, help="measuring time of a run (default: 5)")
    add("--repeat", type=int, default=1, help="run all cases this many times in turn and report medians (default: 1)")
    slower = "divide the rate by this and multiply pauses and latency (default: 1); auto: as much as this machine needs"
    add("--slower", default="1", help=slower)
    add("--report", type=Path, help="write the results as JSON")
    add("--plot", type=Path, help="draw the results")
    add("--table", type=Path, help="write a Markdown table with one line per network and model")
    add("--timeline", type=Path, help="draw one step of each case: when each bucket is sent, when links are busy")
    add("--predict-only", action="store_true", help="only simulate; needs neither root nor network namespaces")
    return parser


def _networks(given: argparse.Namespace) -> tuple[Network, ...]:
    """All combinations of the hosts, rates and latencies."""
    hosts = [_number(word, "--hosts", int) for word in _words(given.hosts, "--hosts")]
    rates = [units.rate(word, "--rate") for word in _words(given.rate, "--rate")]
    latencies = [units.seconds(word, "--latency") for word in _words(given.latency, "--latency")]
    found = [Network(*each) for each in product(hosts, rates, latencies)]
    if given.slower == "auto":
        return tuple(network.suited() for network in found)
    slower = _number(given.slower, "--slower", float)
    return tuple(replace(network, slower=slower) for network in found)


def _number(text: str, option: str, kind: Callable[[str], Number]) -> Number:
    try:
        return kind(text)
    except ValueError:
        raise UsageError(option, f"{text!r} is not a number") from None


def _words(text: str, option: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise UsageError(option, "is empty; give names or numbers separated by commas")
    return words


def _check(request: Request) -> None:
    units.whole(request.repeat, "--repeat", 1, 1000)
    for network in request.networks:
        check_hosts(network.hosts)
        for option, value in (("--seconds", request.seconds), ("--slower", network.slower)):
            if not (0 < value < math.inf):
                raise UsageError(option, f"{value:g} must be finite and above 0")
    for name, each in product(request.models, request.cases):
        model(name)
        case(each, request.networks[0].base(name))
    _check_files(request)


def _check_files(request: Request) -> None:
    pictures = {"--plot": request.plot, "--timeline": request.timeline}
    for option, file in {"--report": request.report, "--table": request.table, **pictures}.items():
        if file is not None and not file.resolve().parent.is_dir():
            raise UsageError(option, f"{file}: the folder {file.resolve().parent} does not exist")
    for option, file in pictures.items():
        if file is not None:
            if len(request.networks) > 1:
                raise UsageError(option, "draws one network; give one number of hosts, one rate and one latency")
            try:
                check_plot(file)
            except UsageError as error:
                raise UsageError(option, error.problem) from None
    if request.timeline is not None and request.predict_only:
        raise UsageError("--timeline", "draws a measurement; leave --predict-only out")
