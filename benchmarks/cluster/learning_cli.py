"""The command line of the learning mode: `python -m benchmarks.cluster learn [OPTIONS]`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from pathlib import Path
from statistics import median

from benchmarks.cluster.learning import LEARNING_CASES, LearningRun, LearningTask, learn, learning_case, why_not
from benchmarks.cluster.measure import Tell
from benchmarks.cluster.network import Host, LinkBetween, check_possible, network
from benchmarks.cluster.predict import GOODPUT, cores
from rich.console import Console
from rich.table import Table

from syncline import units
from syncline.errors import RunError, UsageError
from syncline.recipes import RECIPES, check
from syncline.rules import Momentum, Sgd
from syncline.spec import parse

WORD = "learn"
"""The first word of the command line in this mode."""

SCHEMA = 1


@dataclass(frozen=True)
class LearningRow:
    """One case with one optimizer: its runs, one for each seed, or the reason why there are none."""

    case: str
    task: LearningTask
    runs: tuple[LearningRun, ...] = ()
    reason: str = ""

    def middle(self, name: str) -> float:
        """The median of one figure over the runs."""
        return float(median(getattr(run, name) for run in self.runs))

    def reached(self, target: float) -> float | None:
        """The median of the seconds to the target; None if not every run reached it."""
        found = [run.curve.reached(target) for run in self.runs]
        times = [each for each in found if each is not None]
        return median(times) if times and len(times) == len(found) else None

    @property
    def best(self) -> float:
        """The median of the highest accuracies."""
        return median(max(run.curve.accuracies) for run in self.runs)


@dataclass(frozen=True)
class LearningRequest:
    """The options of one run of the learning mode."""

    task: LearningTask
    cases: tuple[str, ...]
    optimizers: tuple[str, ...]
    """Each case is run with each of them, and the table shows the best."""
    target: float
    repeat: int
    report: Path | None


def parse_learning(arguments: Sequence[str]) -> LearningRequest:
    """The request, or a UsageError that names the option."""
    given = _parser().parse_args(arguments)
    rate, step = units.rate(given.rate, "--rate"), units.seconds(given.step, "--step")
    task = LearningTask(given.recipe, given.hosts, rate, step, given.steps, given.every, given.batch, given.seed)
    if given.between is not None:
        seconds = units.seconds(given.between_latency, "--between-latency")
        task = replace(task, between=LinkBetween(units.rate(given.between, "--between"), seconds))
    elif given.between_latency != "0ms":
        raise UsageError(
            "--between-latency", "delays the link between two regions; give its rate too: --between 20Mbit"
        )
    cases, optimizers = _words(given.cases, "--cases"), _words(given.optimizers, "--optimizers")
    request = LearningRequest(task, cases, optimizers, given.target, given.repeat, given.report)
    _check(request)
    return request


def _words(text: str, option: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise UsageError(option, "is empty; give names separated by commas")
    return words


def _parser() -> argparse.ArgumentParser:
    text = "Train on an emulated network; report the seconds until the model has a given accuracy. Needs root."
    parser = argparse.ArgumentParser(f"benchmarks/cluster {WORD}", description=text)
    add = parser.add_argument
    own = [name for name, recipe in RECIPES.items() if not recipe.needs_data]
    add("--recipe", default="digits-cnn", help=f"one of {', '.join(own)} (default: digits-cnn)")
    add("--hosts", type=int, default=4, help="hosts, each with a worker and, if the case has servers, a server")
    add("--rate", default="46Mbit", help="rate of each link in each direction (default: 46Mbit)")
    add("--between", help="divide the hosts into two regions, joined by one link of this rate, e.g. 20Mbit")
    add("--between-latency", default="0ms", help="time from one region to the other (default: 0ms)")
    add("--step", default="100ms", help="how long a worker computes in a step (default: 100ms)")
    add("--steps", type=int, default=120, help="steps of each worker (default: 120)")
    add("--every", type=int, default=2, help="after how many steps a replica is kept (default: 2)")
    add("--batch", type=int, default=32, help="examples per worker and step (default: 32)")
    add("--seed", type=int, default=0, help="of the first run (default: 0)")
    add("--target", type=float, default=0.95, help="the accuracy to reach (default: 0.95)")
    add(
        "--optimizers",
        default="momentum:0.08,sgd:0.4",
        help="each case is run with each (default: momentum:0.08,sgd:0.4)",
    )
    add("--cases", default=",".join(LEARNING_CASES), help=f"default: {','.join(LEARNING_CASES)}")
    add("--repeat", type=int, default=1, help="runs of each case, each with another seed; medians (default: 1)")
    add("--report", type=Path, help="write the results as JSON")
    return parser


def _check(request: LearningRequest) -> None:
    task = request.task
    check(task.recipe, None, "--recipe", "--recipe")
    units.whole(task.hosts, "--hosts", 2, 64)
    for option, value in (("--steps", task.steps), ("--every", task.every), ("--repeat", request.repeat)):
        units.whole(value, option, 1, 1_000_000)
    units.whole(task.batch, "--batch", 1, RECIPES[task.recipe].examples or 1)
    units.whole(task.seed, "--seed", 0, 1 << 32)
    if not 0 < request.target < 1:
        raise UsageError("--target", f"must be above 0 and below 1, not {request.target:g}")
    if not task.rate or not task.step:
        raise UsageError("--rate" if not task.rate else "--step", "must be above 0")
    if task.between is not None and not task.between.rate:
        raise UsageError("--between", "must be above 0")
    for name in request.cases:
        learning_case(name, task)
    for word in request.optimizers:
        _check_optimizer(word)
    if request.report is not None and not request.report.resolve().parent.is_dir():
        raise UsageError("--report", f"the folder {request.report.resolve().parent} does not exist")


def _check_optimizer(word: str) -> None:
    try:
        known = isinstance(parse("rule", word), Momentum | Sgd)
    except UsageError as error:
        raise UsageError("--optimizers", error.problem) from None
    if not known:
        raise UsageError("--optimizers", f"{word!r} is not an optimizer that DDP has too; use momentum:LR or sgd:LR")


def run_learning(arguments: Sequence[str], tell: Tell) -> int:
    """Run every case with every seed; print and write the table. 1: a case failed."""
    request = parse_learning(arguments)
    check_possible(request.task.hosts)
    with network(request.task.hosts, request.task.rate, between=request.task.between) as hosts:
        rows = [_row(name, each, request, hosts, tell) for name in request.cases for each in request.optimizers]
    if request.report is not None:
        request.report.write_text(json.dumps(as_json(request, rows), indent=2) + "\n")
    show_learning(request, rows, Console(width=120))
    return 1 if any(row.reason.startswith("failed") for row in rows) else 0


def _row(name: str, optimizer: str, request: LearningRequest, hosts: Sequence[Host], tell: Tell) -> LearningRow:
    task = replace(learning_case(name, request.task), optimizer=optimizer)
    reason = why_not(task)
    if reason:
        return LearningRow(name, task, reason=f"skipped: {reason}")
    runs = []
    for number in range(request.repeat):
        try:
            runs.append(learn(replace(task, seed=task.seed + number), hosts))
        except RunError as error:
            return LearningRow(name, task, tuple(runs), f"failed: {error}")
        seconds = runs[-1].curve.reached(request.target)
        result = "not reached" if seconds is None else f"{seconds:.1f} s"
        tell(f"{name}, {optimizer}, seed {task.seed + number}: {request.target:.0%} {result}")
    return LearningRow(name, task, tuple(runs))


def as_json(request: LearningRequest, rows: Sequence[LearningRow]) -> dict[str, object]:
    """The report as values that JSON can represent."""
    head = {"schema": SCHEMA, "cores": cores(), "target": request.target, "repeat": request.repeat}
    return {**head, "notes": notes(request), "rows": [{**asdict(row), **_summary(request, row)} for row in rows]}


def _summary(request: LearningRequest, row: LearningRow) -> dict[str, object]:
    return {"seconds_to_target": row.reached(request.target) if row.runs else None}


HEADS = ("case", "optimizer", "seconds", "against gloo", "best accuracy", "steps/s", "kB/step", "link used", "p")


def show_learning(request: LearningRequest, rows: Sequence[LearningRow], console: Console) -> None:
    """Print the table and its notes."""
    task = request.task
    links = f"{task.hosts} hosts, links of {task.rate * 8e-6:g} Mbit/s, x = {task.load / GOODPUT:.2f}"
    if task.between is not None:
        slow = task.between
        links += f", two regions joined by {slow.rate * 8e-6:g} Mbit/s and {slow.latency * 1e3:g} ms"
    title = f"{task.recipe}: seconds to an accuracy of {request.target:.0%}; {links}"
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for head in HEADS:
        table.add_column(head, justify="left" if head in ("case", "optimizer") else "right", no_wrap=True)
    for cells in learning_cells(request, rows):
        table.add_row(*cells)
    console.print(table, "")
    for row in rows:
        if row.reason:
            console.print(f"{row.case}: {row.reason}", highlight=False, markup=False)
    for note in notes(request):
        console.print(f"- {note}", style="dim", highlight=False, markup=False)


def learning_cells(request: LearningRequest, rows: Sequence[LearningRow]) -> list[list[str]]:
    """The lines of the table: for each case, the optimizer that reaches the target first."""
    chosen = best_rows(request, rows)
    theirs = next((row.reached(request.target) for row in chosen if row.case == "gloo" and row.runs), None)
    return [_line(row, row.reached(request.target), theirs) if row.runs else [row.case, *["-"] * 8] for row in chosen]


def best_rows(request: LearningRequest, rows: Sequence[LearningRow]) -> list[LearningRow]:
    """For each case, the row that reaches the target first; if none does, the one with the highest accuracy."""

    def order(row: LearningRow) -> tuple[float, float]:
        seconds = row.reached(request.target) if row.runs else None
        return inf if seconds is None else seconds, -row.best if row.runs else 0.0

    cases = dict.fromkeys(row.case for row in rows)
    return [min((row for row in rows if row.case == case), key=order) for case in cases]


def _line(row: LearningRow, seconds: float | None, theirs: float | None) -> list[str]:
    return [
        row.case,
        row.task.optimizer,
        "not reached" if seconds is None else f"{seconds:.1f}",
        "-" if seconds is None or theirs is None else f"{seconds / theirs:.2f}",
        f"{row.best:.1%}",
        f"{row.middle('steps_per_second'):.2f}",
        f"{row.middle('bytes_per_step') / 1e3:.0f}",
        f"{row.middle('utilisation'):.0%}",
        f"{row.runs[0].partitions}" if row.runs[0].partitions else "-",
    ]


def notes(request: LearningRequest) -> list[str]:
    """What a reader has to know to interpret the numbers."""
    task = request.task
    found = [
        f"a step computes a real gradient of {task.batch} examples, and pauses until {task.step * 1e3:g} ms are over",
        f"seconds: until the replica of the first worker has the accuracy on the test data in two looks in a row; "
        f"one look every {task.every} steps, evaluated after the run",
        f"every worker makes {task.steps} steps; steps/s are those of one worker",
        f"each case was run with {' and '.join(request.optimizers)}; the table shows the better one",
        "gloo: DistributedDataParallel; connections have no encryption",
    ]
    if task.between is not None:
        found.append("two regions with half of the hosts each; tree-regions has one edge from one to the other")
    return [*found, *([f"medians of {request.repeat} runs with different seeds"] if request.repeat > 1 else [])]
