"""`syncline bench`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.output import check_outputs, whole_text
from syncline.errors import UsageError

if TYPE_CHECKING:
    from syncline.bench.case import Case, Row

SIZES = (256, 250_000, 2_500_000, 25_000_000)
WORKERS = (2, 4)


def bench(
    size: Annotated[
        list[int] | None,
        typer.Option(metavar="N", help="How many float32 values; again for more. Default: 256, 250k, 2.5M, 25M."),
    ] = None,
    workers: Annotated[
        list[int] | None, typer.Option(metavar="N", help="How many workers; again for more. Default: 2 and 4.")
    ] = None,
    servers: Annotated[int, typer.Option(metavar="N", help="How many servers share the values.")] = 2,
    rounds: Annotated[
        int | None, typer.Option(metavar="N", help="Rounds of each system and case. Default: what fits in 20 s.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the figures as JSON.")] = None,
) -> None:
    """Time a round on this machine: every worker's update in, the new values out at every worker.

    All systems run in turn in one run, each process on one thread; a figure is the median.
    """
    cases = _cases(size or SIZES, workers or WORKERS, servers, rounds)
    check_outputs([], {"--report": report})
    _run(cases, rounds, report)


def _cases(sizes: Sequence[int], workers: Sequence[int], servers: int, rounds: int | None) -> list[Case]:
    """Every pair once, if all of them make sense and fit into memory."""
    from syncline.bench.case import Case

    given = [("--size", number) for number in sizes] + [("--workers", number) for number in workers]
    for option, number in [*given, ("--servers", servers), ("--rounds", 1 if rounds is None else rounds)]:
        if number < 1:
            raise UsageError(option, f"must be at least 1, not {number}")
    if servers > min(sizes):
        raise UsageError("--servers", f"{servers} servers cannot share {min(sizes)} values; take fewer")
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
        raise UsageError(option, f"{text}, and {there / 2**30:,.1f} GiB are free; take fewer")


def _run(cases: list[Case], rounds: int | None, report: Path | None) -> None:
    from syncline.bench.run import measure, systems
    from syncline.cli import show
    from syncline.cli.bench_table import show_rows

    rows: list[Row] = []
    with whole_text(report, "--report") as file:
        with _progress(len(cases)) as tell:
            for number, case in enumerate(cases):
                rows += measure(case, systems(case), rounds, partial(tell, case, number))
        if file is not None:
            show.as_json({"schema": 1, "rows": [asdict(row) for row in rows]}, file)
    show_rows(rows)


@contextmanager
def _progress(cases: int) -> Iterator[Callable[[Case, int, float], None]]:
    """A bar on a terminal: which case it is, and how many are done."""
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
