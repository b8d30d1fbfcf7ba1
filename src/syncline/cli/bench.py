"""`syncline bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli import strategy_options as strategy
from syncline.cli.output import Force, SideOutputs
from syncline.cli.output_checks import REPORT, OutputFile, check_outputs
from syncline.errors import UsageError
from syncline.units import whole

if TYPE_CHECKING:
    from syncline.bench.case import Case, Row

SIZES = (256, 250_000, 2_500_000, 25_000_000)
WORKERS = (2, 4)
MODES = ("gradients", "changes")
MOST_VALUES = 10**12
MOST_ROUNDS = 1_000_000
"""About a day, at 0.1 s for a round of all systems."""


def bench(
    size: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="How many float32 values each worker sends per round, for example 25000000. Repeat it for more sizes. "
            "Default: 256, 250k, 2.5M and 25M.",
        ),
    ] = None,
    workers: Annotated[
        list[int] | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="How many workers. Repeat it for more cases. Default: 2 and 4.",
        ),
    ] = None,
    servers: Annotated[
        int,
        typer.Option(metavar="N", rich_help_panel=strategy.RUN, help="How many servers share the values."),
    ] = 2,
    mode: Annotated[
        str,
        typer.Option(
            metavar="MODE",
            rich_help_panel=strategy.RUN,
            help="gradients: workers receive the mean of the updates. changes: the servers add the mean to parameters, "
            "which workers receive.",
        ),
    ] = "gradients",
    rounds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="Rounds per system and case. Default: as many as fit in about 20 seconds per case.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", rich_help_panel=strategy.OUTPUT, help="Write the median time of every case as JSON."
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Time one round on this machine: every worker sends an update and receives the new values.

    Measures Syncline over shared memory and TCP, gloo, plain sockets, and a process that only adds and copies.
    All systems take turns in one run, each process on one thread; each result is a median.

    Example: syncline bench --size 25000000 --workers 2
    """
    if mode not in MODES:
        raise UsageError("--mode", f"{mode!r} is not measured; choose from: {', '.join(MODES)}")
    cases = [replace(case, mode=mode) for case in _cases(size or SIZES, workers or WORKERS, servers, rounds)]
    check_outputs([], [] if report is None else [OutputFile("--report", report, REPORT)], force=force)
    _run(cases, rounds, report)


def _cases(sizes: Sequence[int], workers: Sequence[int], servers: int, rounds: int | None) -> list[Case]:
    """Make a case of every pair of size and workers; refuse invalid numbers and cases that do not fit into memory."""
    from syncline.bench.case import Case
    from syncline.engines.launch.plan import MOST_PROCESSES

    for number in sizes:
        whole(number, "--size", 1, MOST_VALUES)
    for number in workers:
        whole(number, "--workers", 1, MOST_PROCESSES)
    whole(servers, "--servers", 1, MOST_PROCESSES)
    whole(1 if rounds is None else rounds, "--rounds", 1, MOST_ROUNDS)
    if servers > min(sizes):
        raise UsageError("--servers", f"{servers} servers cannot share {min(sizes)} values; use fewer servers")
    cases = [Case(count, servers, size) for count in dict.fromkeys(workers) for size in dict.fromkeys(sizes)]
    for case in cases:
        _check_memory(case)
    return cases


def _check_memory(case: Case) -> None:
    from syncline.bench.memory import free, needed
    from syncline.bench.run import systems

    count, there = len(systems(case)), free()
    need = needed(case, count)
    if there is not None and need > there:
        option = "--size" if needed(replace(case, size=1), count) < there else "--workers"
        text = f"{case.size:,} values with {case.workers} workers may take {need / 2**30:,.1f} GiB of memory"
        raise UsageError(option, f"{text}, but only {there / 2**30:,.1f} GiB are free; use fewer values or workers")


def _run(cases: list[Case], rounds: int | None, report: Path | None) -> None:
    from syncline.bench.run import measure, systems
    from syncline.cli import show
    from syncline.cli.bench_table import show_rows

    rows: list[Row] = []
    with SideOutputs() as outputs:
        file = outputs.open("--report", report)
        with _progress(len(cases)) as tell:
            for number, case in enumerate(cases):
                rows += measure(case, systems(case), rounds, partial(tell, case, number))
        if file is not None:
            show.as_json({"schema": 1, "rows": [asdict(row) for row in rows]}, file)
    show_rows(rows)
    outputs.end()


@contextmanager
def _progress(cases: int) -> Iterator[Callable[[Case, int, float], None]]:
    """On a terminal, show a progress bar with the current case."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("starting", total=cases)

        def tell(case: Case, before: int, share: float) -> None:
            text = f"{case.workers} workers, {case.size:,} values"
            bar.update(task, completed=before + share, description=text)

        yield tell
