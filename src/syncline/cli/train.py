"""`syncline train [RECIPE]`: train for real, with several worker processes on this host, and watch it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import strategy_options as strategy
from syncline.errors import UsageError


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="[RECIPE]",
            help="digits-mlp, digits-cnn, mnist-mlp or mnist-cnn. Default: digits-mlp; with --compare: digits-cnn.",
            show_default=False,
        ),
    ] = None,
    workers: Annotated[int | None, typer.Option("--workers", "-n", help="How many workers. Default: 4.")] = None,
    servers: Annotated[int | None, typer.Option(help="How many servers hold the model. Default: 1.")] = None,
    sync: strategy.Sync = None,
    release: strategy.Release = None,
    mode: strategy.Mode = None,
    rule: strategy.Rule = None,
    gate: strategy.Gate = None,
    codec: strategy.Codec = None,
    reply_codec: strategy.ReplyCodec = None,
    placement: strategy.Placement = None,
    iterations: Annotated[int | None, typer.Option(help="Of each worker. Default: the recipe's.")] = None,
    batch: Annotated[
        int | None, typer.Option(help="Examples of each worker's step. Default: 32; with --compare: the recipe's.")
    ] = None,
    seed: strategy.Seed = None,
    slow: Annotated[
        list[str] | None,
        typer.Option(metavar="WORKER:FACTOR", help="This worker's steps take FACTOR times as long; again for more."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The folder with mnist.npz, for the recipes that read it.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="local: processes; sim: the simulator. Default: local.")] = None,
    lane: Annotated[str | None, typer.Option(help="shm or tcp. Default: shm.")] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Time one process, DDP and four sync models on the same images; one is slow."),
    ] = False,
    report: Annotated[Path | None, typer.Option(metavar="FILE.json", help="Write the figures as JSON.")] = None,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write loss and accuracy there, for TensorBoard.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No view and no tables.")] = False,
) -> None:
    """Train a recipe for real, with several worker processes on this host, and watch it.

    Exit codes: 0 done; 1 a worker failed or a server was lost; 2 the request makes no sense; 130 interrupted.
    """
    from syncline.cli.output import check_outputs
    from syncline.cli.speaker import quiet_end
    from syncline.cli.train_request import TrainRequest, request
    from syncline.cli.train_run import run

    words = strategy.words(
        sync=sync, seed=seed, release=release, mode=mode, rule=rule, gate=gate, codec=codec, reply_codec=reply_codec,
        placement=placement,
    )  # fmt: skip
    check_outputs([], {"--report": report})
    if tensorboard is not None and (compare or engine == "sim"):
        raise UsageError("--tensorboard", f"makes no sense with {'--compare' if compare else '--engine sim'}")
    asked: TrainRequest = request(
        recipe,
        words,
        {"workers": workers, "servers": servers, "iterations": iterations, "batch": batch},
        {"engine": engine, "lane": lane},
        slow or [],
        data,
        compare=compare,
    )
    with quiet_end():
        run(asked, report, tensorboard, quiet)
