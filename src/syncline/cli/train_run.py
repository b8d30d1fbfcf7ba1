"""Runs a request of `syncline train`: with processes on this host, or in the simulator."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from syncline.cli import show
from syncline.cli.comparison_meaning import meaning
from syncline.cli.launching import run_to_end
from syncline.cli.output import SideOutputs
from syncline.cli.scalars import Scalars
from syncline.cli.train_comparison import show_comparison
from syncline.cli.train_request import Settings, TrainRequest
from syncline.cli.train_table import show_result, show_settings
from syncline.cli.train_view import TrainView, view_for
from syncline.engines.launch.launcher import Launcher
from syncline.engines.net.control import Pulse

Found = tuple[dict[str, Any], Settings]


def run(asked: TrainRequest, report: Path | None, tensorboard: Path | None, quiet: bool) -> None:
    """Train, show progress and results, and write the report if the run succeeds."""
    with SideOutputs() as outputs:
        file = outputs.open("--report", report)
        scalars = None if tensorboard is None else Scalars(tensorboard, outputs.lose)
        if not quiet:
            show_settings(asked.settings)
        found, settings = _simulated(asked, quiet) if asked.engine == "sim" else _trained(asked, quiet, scalars)
        found["settings"] = {key: {"value": value, "origin": origin} for key, (value, origin) in settings.items()}
        if file is not None:
            show.as_json(found, file)
    if asked.job.compare and not quiet:
        show_comparison(found, len(os.sched_getaffinity(0)))
    elif not quiet:
        show_result(found)
    outputs.end()


def _simulated(asked: TrainRequest, quiet: bool) -> Found:
    from syncline.recipes.simulated import simulate

    with show.progress(quiet) as tell:
        return simulate(asked.job, asked.plan.strategy, tell), asked.settings


def _trained(asked: TrainRequest, quiet: bool, scalars: Scalars | None) -> Found:
    with TemporaryDirectory(prefix="syncline-") as directory:
        job = msgspec.structs.replace(asked.job, directory=directory)
        view = view_for(job, quiet)
        launcher = Launcher(replace(asked.plan, command=job.command()), view.line, _both(view, scalars))
        try:
            with view:
                run_to_end(launcher)
        finally:
            if scalars is not None:
                scalars.close()
        return _read(asked, job.directory, launcher)


def _both(view: TrainView, scalars: Scalars | None) -> Callable[[Pulse], None]:
    def beat(pulse: Pulse) -> None:
        view.beat(pulse)
        if scalars is not None:
            scalars.beat(pulse)

    return beat


def _read(asked: TrainRequest, directory: str, launcher: Launcher) -> Found:
    """Read the workers' results, and every setting that was in force in the run."""
    from syncline.recipes.outcome import outcome, read_figures
    from syncline.recipes.timings import read_comparison

    job, lane = msgspec.structs.replace(asked.job, directory=directory), asked.plan.wiring.lane
    if job.compare:
        figures = read_comparison(job, lane)
        return {**figures, "meaning": meaning(figures)}, asked.settings
    found = outcome(job, lane, launcher.figures)
    settled = read_figures(Path(directory))[0].settings
    strategy = {key: (word, origin.removeprefix("the ")) for key, (word, origin) in settled.items()}
    return found, {**asked.settings, **strategy}
