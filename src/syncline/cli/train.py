"""`syncline train [RECIPE]`: train a ready-made model with several worker processes on this host."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import strategy_options as strategy
from syncline.cli.output import Force
from syncline.errors import UsageError


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="The model and its data: digits-mlp, digits-cnn, mnist-mlp or mnist-cnn. Default: digits-mlp; with "
            "--compare, digits-cnn.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers", "-n", metavar="N", rich_help_panel=strategy.RUN, help="How many workers to start. Default: 4."
        ),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="How many servers to start; together they hold the model. Default: 1.",
        ),
    ] = None,
    strategy_text: strategy.Strategy = None,
    placement: strategy.Placement = None,
    backups: strategy.Backups = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=strategy.RUN, help="Iterations of each worker. Default: set by the recipe."
        ),
    ] = None,
    stop: strategy.Stop = None,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="Examples per worker and iteration. Default: 32; with --compare, set by the recipe.",
        ),
    ] = None,
    seed: strategy.Seed = None,
    slow: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WORKER:FACTOR",
            rich_help_panel=strategy.RUN,
            help="Slow a worker down on purpose. 3:5: the steps of worker 3 take 5 times as long. Repeat it for more "
            "workers.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=strategy.RUN,
            help="The folder that holds mnist.npz, for mnist-mlp and mnist-cnn.",
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(
            metavar="local|sim",
            rich_help_panel=strategy.RUN,
            help="local: train with real processes on this host; sim: run the same training in the simulator, in "
            "virtual time. Default: local.",
        ),
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare",
            rich_help_panel=strategy.RUN,
            help="Time one process, DDP and four sync models on the same images; first with equal workers, then with a "
            "slow one.",
        ),
    ] = False,
    repeats: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="With --compare: run every system N times, each time with another seed, and show medians. Default: 1.",
        ),
    ] = None,
    restarts: Annotated[
        int,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="Start a worker again if it dies or fails, and a server or the coordinator if it dies, up to N times. "
            "Default: 0.",
            show_default=False,
        ),
    ] = 0,
    grow: strategy.Grow = None,
    sync: strategy.Sync = None,
    release: strategy.Release = None,
    mode: strategy.Mode = None,
    rule: strategy.Rule = None,
    codec: strategy.Codec = None,
    reply_codec: strategy.ReplyCodec = None,
    gate: strategy.Gate = None,
    lane: Annotated[
        str | None,
        typer.Option(
            metavar="shm|tcp",
            rich_help_panel=strategy.NETWORK,
            help="How workers exchange values with servers: shared memory or TCP on loopback. Default: shm.",
        ),
    ] = None,
    checkpoint: strategy.Checkpoint = None,
    checkpoint_every: strategy.CheckpointEvery = None,
    resume: strategy.Resume = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json",
            rich_help_panel=strategy.OUTPUT,
            help="Write the results as JSON: accuracy, seconds, bytes, waiting time, every setting.",
        ),
    ] = None,
    tensorboard: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=strategy.OUTPUT,
            help="Write loss and accuracy to this folder for TensorBoard.",
        ),
    ] = None,
    force: Force = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=strategy.OUTPUT, help="Show no progress and no tables.")
    ] = False,
) -> None:
    """Train a ready-made model with several worker processes on this host, and show the progress of each worker.

    Example: syncline train --sync ssp:3 --slow 3:5

    Exit codes: 0 success; 1 a worker failed or a server was lost; 2 wrong option or setting; 3 success, but not all
    output could be written; 130 interrupted.
    """
    from syncline.cli.output_checks import REPORT, OutputFile, check_outputs
    from syncline.cli.speaker import quiet_end
    from syncline.cli.train_request import TrainRequest, request, with_checkpoints
    from syncline.cli.train_run import run

    words = strategy.words(
        sync=sync, seed=seed, release=release, mode=mode, rule=rule, gate=gate, codec=codec, reply_codec=reply_codec,
        placement=placement, strategy=strategy_text, backups=backups,
    )  # fmt: skip
    if tensorboard is not None and (compare or engine == "sim"):
        raise UsageError("--tensorboard", f"cannot be used with {'--compare' if compare else '--engine sim'}")
    asked: TrainRequest = request(
        recipe,
        words,
        {"workers": workers, "servers": servers, "iterations": iterations, "batch": batch, "repeats": repeats},
        {"engine": engine, "lane": lane},
        slow or [],
        data,
        compare=compare,
        stop=stop or [],
        grow=grow or [],
        restarts=restarts,
    )
    if compare or engine == "sim":
        given = {"--checkpoint": checkpoint, "--checkpoint-every": checkpoint_every, "--resume": resume}
        for option in [option for option, value in given.items() if value is not None]:
            raise UsageError(option, f"cannot be used with {'--compare' if compare else '--engine sim'}")
    asked = with_checkpoints(asked, checkpoint, checkpoint_every, resume)
    inputs = [] if data is None else [data / "mnist.npz"]
    check_outputs(inputs, [] if report is None else [OutputFile("--report", report, REPORT)], force=force)
    with quiet_end():
        run(asked, report, tensorboard, quiet)
