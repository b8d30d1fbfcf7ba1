"""`syncline train [RECIPE]`: train for real, with several worker processes on this host, and watch it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from syncline.errors import UsageError


def train(
    recipe: Annotated[
        str, typer.Argument(metavar="[RECIPE]", help="digits-mlp, mnist-mlp or mnist-cnn.", show_default=False)
    ] = "digits-mlp",
    workers: Annotated[int | None, typer.Option("--workers", "-n", help="How many workers. Default: 4.")] = None,
    servers: Annotated[int | None, typer.Option(help="How many servers hold the model. Default: 1.")] = None,
    sync: Annotated[
        list[str] | None, typer.Option(help="bsp, asp, ssp:3, ...; once for all servers, or once each.")
    ] = None,
    release: Annotated[str | None, typer.Option(help="lazy or soft.")] = None,
    mode: Annotated[str | None, typer.Option(help="Who optimises: gradients, changes or rule.")] = None,
    rule: Annotated[
        str | None, typer.Option(help="The servers' rule: sgd:0.1, adam:0.001, fasgd:0.005, ...; selects mode rule.")
    ] = None,
    gate: Annotated[
        str | None, typer.Option(help="What is worth sending: every:push=2,fetch=2, budget:1MB, ... See docs.")
    ] = None,
    codec: Annotated[str | None, typer.Option(help="How updates are written: topk:0.01, int8, ... See docs.")] = None,
    reply_codec: Annotated[str | None, typer.Option(help="How parameters are written, as changes.")] = None,
    placement: Annotated[str | None, typer.Option(help="elastic, uniform, roundrobin or balanced.")] = None,
    iterations: Annotated[int | None, typer.Option(help="Of each worker. Default: the recipe's.")] = None,
    batch: Annotated[int | None, typer.Option(help="Examples of each worker's step. Default: 32.")] = None,
    seed: Annotated[int | None, typer.Option(help="For everything that is random. Default: 0.")] = None,
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
        bool, typer.Option("--compare", help="Time one process, DDP and four sync models to 95 %, with a straggler.")
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
    from syncline.cli.train_request import Request, request
    from syncline.cli.train_run import run

    words = {"release": release, "mode": mode, "rule": rule, "gate": gate, "placement": placement}
    words |= {"codec": codec, "reply_codec": reply_codec}
    words |= {"sync": " ".join(sync) if sync else None, "seed": None if seed is None else str(seed)}
    check_outputs([], {"--report": report})
    if tensorboard is not None and (compare or engine == "sim"):
        raise UsageError("--tensorboard", f"makes no sense with {'--compare' if compare else '--engine sim'}")
    asked: Request = request(
        recipe,
        {key: word for key, word in words.items() if word is not None},
        {"workers": workers, "servers": servers, "iterations": iterations, "batch": batch},
        {"engine": engine, "lane": lane},
        slow or [],
        data,
        compare=compare,
    )
    with quiet_end():
        run(asked, report, tensorboard, quiet)
