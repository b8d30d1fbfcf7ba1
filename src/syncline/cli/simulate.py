"""`syncline simulate FILE.toml`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from syncline.cli import strategy_options as strategy
from syncline.cli.output import Force, SideOutputs
from syncline.cli.output_checks import CURVE, PICTURE, REPORT, TRACE, OutputFile, check_outputs
from syncline.errors import UsageError

if TYPE_CHECKING:
    from syncline.sim.experiment import Experiment


def simulate(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE.toml",
            help="The experiment file: workers, compute times, network, model, strategy.",
            show_default=False,
        ),
    ],
    workers: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=strategy.RUN, help="Number of workers.")
    ] = None,
    servers: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=strategy.RUN, help="Number of servers.")
    ] = None,
    strategy_text: strategy.Strategy = None,
    placement: strategy.Placement = None,
    backups: strategy.Backups = None,
    iterations: Annotated[
        int | None, typer.Option(metavar="N", rich_help_panel=strategy.RUN, help="Iterations of each worker.")
    ] = None,
    stop: strategy.Stop = None,
    seed: strategy.Seed = None,
    sync: strategy.Sync = None,
    release: strategy.Release = None,
    mode: strategy.Mode = None,
    rule: strategy.Rule = None,
    codec: strategy.Codec = None,
    reply_codec: strategy.ReplyCodec = None,
    gate: strategy.Gate = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            rich_help_panel=strategy.OUTPUT,
            help="Write the results as JSON: virtual seconds, waiting time, bytes, loss.",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            rich_help_panel=strategy.OUTPUT,
            help="Draw when each worker computed and when it waited, and how stale updates were (PNG, SVG or PDF).",
        ),
    ] = None,
    curve: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.csv",
            rich_help_panel=strategy.OUTPUT,
            help="Write loss, accuracy and bytes over time to a CSV file.",
        ),
    ] = None,
    every: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.OUTPUT,
            help="With --curve: measure the model after every N iterations of all workers together. Default: one "
            "iteration of each worker.",
        ),
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.csv", rich_help_panel=strategy.OUTPUT, help="Write every message to a CSV file."),
    ] = None,
    force: Force = False,
    quiet: Annotated[
        bool,
        typer.Option("--quiet", "-q", rich_help_panel=strategy.OUTPUT, help="Show no progress and no tables."),
    ] = False,
) -> None:
    """Simulate a training run in virtual time, with the same protocol code that real runs use.

    The same file and seed always give the same result. Options override the file; the defaults below hold where
    neither says anything. A table at the start shows every setting and where it came from.

    Example: syncline simulate run.toml --sync ssp:3 --plot who-waited.png

    Exit codes: 0 success; 1 the run failed; 2 wrong option or setting; 3 success, but not all output could be
    written; 130 interrupted.
    """
    from syncline.engines.process import also_look_in, beside
    from syncline.sim.experiment import read_experiment
    from syncline.sim.stop import read_stop

    said = {
        "release": release,
        "mode": mode,
        "rule": rule,
        "gate": gate,
        "codec": codec,
        "reply_codec": reply_codec,
        "placement": placement,
        "backups": backups,
        "servers": servers,
        "sync": sync[0] if sync and len(sync) == 1 else sync or None,
    }
    overrides: dict[str, Any] = {
        **_strategy(strategy_text),
        **{f"strategy.{key}": value for key, value in said.items()},
        "cluster.workers": workers,
        "iterations": iterations,
        "seed": seed,
        **{f"stop.{key}": value for key, value in read_stop(stop or []).items()},
    }
    also_look_in(beside(file))
    experiment = read_experiment(file, {key: value for key, value in overrides.items() if value is not None})
    paths = {"--report": report, "--plot": plot, "--trace": trace, "--curve": curve}
    marks = {"--report": REPORT, "--plot": PICTURE, "--trace": TRACE, "--curve": CURVE}
    outputs = [OutputFile(option, path, marks[option]) for option, path in paths.items() if path is not None]
    check_outputs(experiment.inputs, outputs, force=force)
    if every is not None and curve is None:
        raise UsageError("--every", "has no effect without --curve; give both")
    if every is not None and every < 1:
        raise UsageError("--every", f"must be at least 1 iteration, not {every}")
    _run(experiment, paths, every, quiet)


def _strategy(text: str | None) -> dict[str, Any]:
    """The keys of an experiment file that `--strategy` sets."""
    if text is None:
        return {}
    import msgspec

    from syncline.strategies.table import read_strategy, strategy_class

    words = read_strategy(text, "--strategy")
    kind = words.pop("strategy")
    types = strategy_class(kind).setting_types()
    try:
        values = {key: msgspec.convert(word, types[key], strict=False) for key, word in words.items()}
    except msgspec.ValidationError as error:
        raise UsageError("--strategy", f"{text!r}: {error}") from None
    return {"strategy.kind": kind, **{f"strategy.{key}": value for key, value in values.items()}}


def _run(experiment: Experiment, outputs: Mapping[str, Path | None], every: int | None, quiet: bool) -> None:
    from syncline.cli import show
    from syncline.recipes.experiments import problem_of
    from syncline.sim.curve import write_curve
    from syncline.sim.plot import check_plot
    from syncline.sim.plot import plot as draw_plot
    from syncline.sim.trace import TraceLog
    from syncline.sim.world import World

    plot, scenario = outputs["--plot"], experiment.scenario
    if outputs["--curve"] is not None:
        every = every or scenario.cluster.workers
    if plot is not None:
        check_plot(plot)
    with SideOutputs() as files:
        report_file, trace_file = files.open("--report", outputs["--report"]), files.open("--trace", outputs["--trace"])
        curve_file, picture = files.open("--curve", outputs["--curve"]), files.open("--plot", plot)
        log = TraceLog(trace_file)
        world = World(scenario, problem_of(experiment), spans=plot is not None, trace=log, every=every)
        if not quiet:
            show.settings(experiment)
        with show.progress(quiet) as tell:
            outcome = world.run(tell)
        found = outcome.report
        if report_file is not None:
            show.as_json(found, report_file)
        if curve_file is not None:
            write_curve(outcome.curve, curve_file)
        if picture is not None and plot is not None:
            picture.draw(lambda path: draw_plot(outcome, path, plot.suffix[1:].lower()))
    if not quiet:
        show.summary(outcome, found)
    files.end()
