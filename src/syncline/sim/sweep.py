"""Simulate every combination of settings, several at a time; the results are rows of a table."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import msgspec

from syncline.errors import RunError, SynclineError, UsageError
from syncline.sim.experiment import Experiment, experiment_of
from syncline.sim.problem import Problem
from syncline.sim.sections import overlay, read_toml
from syncline.sim.world import simulate
from syncline.spec import write

MakeProblem = Callable[[Experiment], Problem]

OF_THE_FILE = "syncline.recipes.experiments.problem_of"
"""The function that makes the problem which `model` names in an experiment file."""

_COMMAND = (sys.executable, "-m", "syncline.sim.sweep_worker")
_NOT_FLAT = ("schema", "staleness_histogram", "staleness_curve", "bytes_per_link", "lost_origins")

Row = dict[str, Any]


class SweepOrder(msgspec.Struct, frozen=True):
    """One simulation: the content of an experiment file, its folder, and the dotted path of what makes its problem."""

    experiment: dict[str, Any]
    folder: str
    problem: str


def sweep(
    grid: Mapping[str, Any],
    *,
    base: str | Path | Mapping[str, Any] | None = None,
    problem: str | MakeProblem = OF_THE_FILE,
    jobs: int = 1,
    progress: bool = True,
) -> list[Row]:
    """Simulate every combination of the grid's values; return a flat row for each, which `pandas.DataFrame` takes.

    `grid`: keys of an experiment file, such as "strategy.sync", each with a value or a list of values. `base`: an
    experiment file, or its content, that has the other settings. `problem`: a function that makes the problem of an
    `Experiment`, or its dotted path. `jobs`: how many processes simulate at a time; with more than 1, `problem` must be
    in a module. All combinations are checked before the first one runs. A run that fails has a row too, with the reason
    in "error".
    """
    if type(jobs) is not int or jobs < 1:
        raise UsageError("jobs", f"must be a whole number of at least 1, not {jobs!r}")
    content, folder = _base(base)
    points = _points(grid)
    experiments = [_experiment(content, point) for point in points]
    for point, experiment in zip(points, experiments, strict=True):
        _check(point, experiment, folder)
    orders = [SweepOrder(each, str(folder), _dotted(problem, jobs)) for each in experiments]
    with _bar(len(points), progress) as done:
        found = _in_processes(orders, jobs, done) if jobs > 1 else _here(orders, problem, done)
    return [{**row, **point} for row, point in zip(found, points, strict=True)]


def simulated(order: SweepOrder, make: MakeProblem) -> Row:
    """The row of one simulation."""
    experiment = experiment_of(copy.deepcopy(order.experiment), Path(order.folder))
    try:
        report = simulate(experiment.scenario, make(experiment)).report
    except SynclineError as error:
        return {"error": str(error)}
    return {**{key: value for key, value in report.items() if key not in _NOT_FLAT}, "error": None}


def named_function(path: str) -> MakeProblem:
    """The function at this dotted path."""
    module, _, name = path.rpartition(".")
    try:
        found: MakeProblem = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError("problem", f"cannot import {path!r}: {error}") from None
    return found


# The grid.


def _base(base: str | Path | Mapping[str, Any] | None) -> tuple[dict[str, Any], Path]:
    if base is None or isinstance(base, Mapping):
        return dict(base or {}), Path()
    return read_toml(Path(base)), Path(base).parent


def _points(grid: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every combination, as (key, plain value); the last key changes fastest."""
    axes = [[(key, _plain(each)) for each in _listed(value)] for key, value in grid.items()]
    for key, axis in zip(grid, axes, strict=True):
        if not axis:
            raise UsageError(key, "has an empty list of values; give at least one")
    return [dict(point) for point in product(*axes)]


def _listed(value: Any) -> Sequence[Any]:
    if hasattr(value, "tolist"):  # an array of numpy, or one of its numbers
        value = value.tolist()
    return list(value) if isinstance(value, list | tuple | range) else [value]


def _plain(value: Any) -> Any:
    """A value as it stands in an experiment file; a part becomes its text."""
    value = value.tolist() if hasattr(value, "tolist") else value
    return value if isinstance(value, str | int | float | list | dict) else write(value)


def _experiment(content: Mapping[str, Any], point: Mapping[str, Any]) -> dict[str, Any]:
    found = copy.deepcopy(dict(content))
    for key, value in point.items():
        overlay(found, key, value)
    return found


def _check(point: Mapping[str, Any], experiment: dict[str, Any], folder: Path) -> None:
    try:
        experiment_of(copy.deepcopy(experiment), folder)
    except UsageError as error:
        where = ", ".join(f"{key} = {value}" for key, value in point.items())
        raise UsageError(error.option, f"{error.problem} (at {where})") from None


# Running.


def _here(orders: Sequence[SweepOrder], problem: str | MakeProblem, done: Callable[[], None]) -> list[Row]:
    make = named_function(problem) if isinstance(problem, str) else problem
    rows = []
    for order in orders:
        rows.append(simulated(order, make))
        done()
    return rows


def _in_processes(orders: Sequence[SweepOrder], jobs: int, done: Callable[[], None]) -> list[Row]:
    pool = ThreadPoolExecutor(jobs)
    try:
        rows = [pool.submit(_in_process, order) for order in orders]
        for each in as_completed(rows):
            each.result()
            done()
        return [each.result() for each in rows]
    finally:
        pool.shutdown(cancel_futures=True)


def _in_process(order: SweepOrder) -> Row:
    """Simulate in a process of its own; the processes share the machine, so each has one thread."""
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths}
    told = subprocess.run(
        _COMMAND, input=msgspec.json.encode(order), stdout=subprocess.PIPE, env=environment, check=False
    )
    if told.returncode:
        raise RunError(f"a simulation's process ended with exit code {told.returncode}")
    return msgspec.json.decode(told.stdout, type=Row)


def _dotted(problem: str | MakeProblem, jobs: int) -> str:
    """The dotted path of the function, which can be imported; other processes import it."""
    if isinstance(problem, str):
        named_function(problem)
        return problem
    module, name = getattr(problem, "__module__", ""), getattr(problem, "__qualname__", "")
    if jobs > 1 and (module in ("", "__main__") or not name.isidentifier()):
        why = f"{problem!r:.60} cannot be imported by other processes"
        raise UsageError("problem", f"{why}; put it in a module, or use jobs=1")
    return f"{module}.{name}"


@contextmanager
def _bar(total: int, shown: bool) -> Iterator[Callable[[], None]]:
    """A progress bar on stderr, if that is a terminal or a notebook."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("sweep"), BarColumn(), MofNCompleteColumn(), TextColumn("runs"), TimeRemainingColumn())
    hidden = not shown or not (console.is_terminal or console.is_jupyter)
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("sweep", total=total)
        yield lambda: bar.advance(task)
