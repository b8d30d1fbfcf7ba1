"""What `syncline plan` shows: progress on stderr; the table, the recommendation and its commands on stdout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from syncline.plan.advice import figure, notes, reason
from syncline.plan.commands import commands_of
from syncline.plan.forecast import Forecast
from syncline.plan.planner import ClusterPlan

WIDTH = 130
"""Columns, if the output is not a terminal."""

_LEGEND = (
    "link: how much of the time the busiest link is in use, and what it carries per iteration in its busier direction. "
    "late: by how many iterations an update may be late. memory: what a machine needs, at most, without activations "
    "and the state of the optimizer."
)


@contextmanager
def progress(quiet: bool) -> Iterator[Callable[[str], None]]:
    """On a terminal, show what is being predicted."""
    console = Console(stderr=True)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    hidden = quiet or not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=hidden) as bar:
        task = bar.add_task("")
        yield lambda text: bar.update(task, description=escape(text))


def show_plan_table(plan: ClusterPlan, address: str = "", data: str = "") -> None:
    """Print the plan."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    console.print(_heading(plan), "", _table(plan), "", sep="\n")
    console.print(_LEGEND, style="dim")
    console.print(f"\nRecommended: {escape(reason(plan))}")
    for note in notes(plan):
        console.print(f"- {escape(note)}")
    for command in commands_of(plan.best.candidate, plan.model, plan.machines.workers, address, data):
        console.print(f"\n{command.where}:")
        console.print(f"  {escape(command.line)}", soft_wrap=True)


def _heading(plan: ClusterPlan) -> str:
    model, machines = plan.model, plan.machines
    assert model.step is not None
    size = f"{model.layout.size:,} values, {model.size / 1e6:,.4g} MB"
    links = f"{machines.bandwidth * 8 / 1e9:,.4g} Gbit/s, {machines.latency * 1e3:g} ms"
    load = f"sent whole to everybody, updates would fill {plan.load:,.3g} times a link"
    step = f"a step computes for {_time(model.step)} ({model.origin})"
    return escape(f"{model.name}: {size}; {machines.workers} machines, {links}\n{step}; {load}")


def _table(plan: ClusterPlan) -> Table:
    table = Table(box=None, pad_edge=False)
    rate = "steps/s" if plan.model.batch is None else "examples/s"
    for head in ("way to run it", "train", rate, "iteration", "link", "MB", "late", "memory", "limit"):
        right = head not in ("way to run it", "limit")
        table.add_column(head, justify="right" if right else "left", no_wrap=head != "way to run it")
    for row in plan.rows:
        table.add_row(*map(escape, _cells(plan, row)), style="bold" if row is plan.best else "" if row.fits else "dim")
    return table


def _cells(plan: ClusterPlan, row: Forecast) -> tuple[str, ...]:
    return (
        row.candidate.label,
        str(row.trainers),
        figure(row.rate * (plan.model.batch or 1)),
        _time(row.seconds),
        f"{row.link_used:.0%}",
        f"{row.round_bytes / 1e6:,.3g}",
        str(row.candidate.staleness),
        f"{row.memory / 1e6:,.0f} MB",
        row.limit if row.fits else "memory",
    )


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:,.3g} {unit}"
    return f"{seconds * 1e6:,.3g} µs"
