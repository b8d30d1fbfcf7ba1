"""`syncline plan`: predicts how fast a model would train on a cluster, and recommends how to run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli import strategy_options as strategy
from syncline.cli.output import Force, SideOutputs
from syncline.cli.output_checks import PICTURE, REPORT, OutputFile, check_outputs
from syncline.errors import UsageError
from syncline.units import rate, seconds, size, whole

if TYPE_CHECKING:
    from syncline.plan.machines import Machines
    from syncline.plan.sources import ModelRequest
    from syncline.sim.overlap import Overlap

MACHINES = "The machines"


def plan(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A recipe (digits-cnn), a list of layers (resnet56, googlenet, inception-v4, or "
            "conv:1728,dense:64x10), a number of values, a file with layers (.toml, .json), a checkpoint "
            "(.safetensors, .pt), or a Python program, which is run for a few steps in one process.",
            show_default=False,
        ),
    ],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- ARGS]", help="Arguments of the program.", show_default=False),
    ] = None,
    workers: Annotated[
        int,
        typer.Option(
            "--workers", "-n", metavar="N", rich_help_panel=MACHINES, help="How many machines; each has one worker."
        ),
    ] = 4,
    bandwidth: Annotated[
        str,
        typer.Option(metavar="RATE", rich_help_panel=MACHINES, help="The rate of each machine's link, each direction."),
    ] = "1Gbit",
    latency: Annotated[
        str, typer.Option(metavar="TIME", rich_help_panel=MACHINES, help="The time from one machine to another.")
    ] = "0.1ms",
    memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            rich_help_panel=MACHINES,
            help="The memory of each machine, for example 16GB. Default: what is free on this machine.",
        ),
    ] = None,
    apply: Annotated[
        str,
        typer.Option(
            metavar="RATE", rich_help_panel=MACHINES, help="How many bytes of updates a server adds up per second."
        ),
    ] = "2GB/s",
    step: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            rich_help_panel=strategy.RUN,
            help="How long one worker computes for a step, for example 100ms. Default: measured here, for a recipe or "
            "a program; published, for a list of layers with a name.",
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            rich_help_panel=strategy.RUN,
            help="Examples per worker and step. Default: 32 for a recipe; otherwise the plan counts steps.",
        ),
    ] = None,
    overlap: Annotated[
        str | None,
        typer.Option(
            metavar="none|backward|forward",
            rich_help_panel=strategy.RUN,
            help="What a worker computes while updates are sent to servers. Default: what PyTorch programs do: "
            "backward under bsp, none otherwise; none for a recipe.",
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
    program: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.py",
            rich_help_panel=strategy.RUN,
            help="The program in the commands that the plan prints, if MODEL is not a program. Default: train.py.",
        ),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS:PORT",
            rich_help_panel=strategy.RUN,
            help="Where the first machine listens, for the commands that the plan prints, for example 192.0.2.7:7070.",
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", rich_help_panel=strategy.OUTPUT, help="Write all figures as JSON."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.png",
            rich_help_panel=strategy.OUTPUT,
            help="Draw how fast each way to run the model is, and what limits it (PNG, SVG or PDF).",
        ),
    ] = None,
    force: Force = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=strategy.OUTPUT, help="Show no progress and no table.")
    ] = False,
) -> None:
    """Predict how fast a model would train on a cluster, for each way to run it, and recommend one.

    It compares exchange between equal workers, all-to-all, servers on machines of their own (the best split), servers
    on every machine, sync models, codecs, and DDP with gloo. It simulates the network; nothing is started on other
    machines. A table shows the fastest first, with what limits each; then come the commands that start the recommended
    one.

    Example: syncline plan googlenet --workers 8 --bandwidth 1Gbit

    Exit codes: 0 success; 1 the program failed; 2 wrong option or model; 3 success, but not all output could be
    written; 130 interrupted.
    """
    machines = _machines(workers, bandwidth, latency, apply, memory)
    asked = _request(model, arguments or [], step, batch, data, program)
    wanted = _overlap(overlap)
    if address is not None:
        _check_address(address)
    inputs = [path for path in (asked.path, None if data is None else data / "mnist.npz") if path is not None]
    paths = (("--report", report, REPORT), ("--plot", plot, PICTURE))
    outputs = [OutputFile(option, path, mark) for option, path, mark in paths if path is not None]
    check_outputs(inputs, outputs, force=force)
    _run(asked, machines, wanted, address or "", report, plot, quiet)


def _machines(workers: int, bandwidth: str, latency: str, apply: str, memory: str | None) -> Machines:
    from syncline.bench.memory import free
    from syncline.plan.machines import Machines

    machines = Machines(
        workers,
        rate(bandwidth, "--bandwidth"),
        seconds(latency, "--latency"),
        rate(apply, "--apply"),
        memory=free() if memory is None else size(memory, "--memory"),
    )
    machines.check()
    return machines


def _request(
    text: str, arguments: list[str], step: str | None, batch: int | None, data: Path | None, program: str | None
) -> ModelRequest:
    from syncline.plan.sources import ModelRequest, check_request

    if batch is not None:
        whole(batch, "--batch", 1)
    given = None if step is None else seconds(step, "--step")
    if given is not None and not given > 0:
        raise UsageError("--step", "must be above 0; give the time in which one worker computes a step, e.g. 100ms")
    request = ModelRequest(text, tuple(arguments), given, batch, data, program)
    check_request(request)
    return request


def _overlap(text: str | None) -> Overlap | None:
    from syncline.sim.overlap import Overlap
    from syncline.spec import one_of

    return None if text is None else one_of(Overlap, text, "--overlap")


def _check_address(text: str) -> None:
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 <= int(port[:6]) < 1 << 16:
        raise UsageError("--address", f"{text!r} is not an address; write HOST:PORT, e.g. 192.0.2.7:7070")


def _run(
    asked: ModelRequest,
    machines: Machines,
    overlap: Overlap | None,
    address: str,
    report: Path | None,
    plot: Path | None,
    quiet: bool,
) -> None:
    from syncline.cli.plan_view import progress, show_plan_table
    from syncline.cli.show import as_json
    from syncline.plan.planner import make_plan
    from syncline.plan.plot import draw_plan
    from syncline.plan.report import plan_report
    from syncline.plan.sources import find_model
    from syncline.sim.plot import check_plot

    if plot is not None:
        check_plot(plot)
    data = "" if asked.data is None else str(asked.data)
    with SideOutputs() as files:
        report_file, picture = files.open("--report", report), files.open("--plot", plot)
        with progress(quiet) as tell:
            tell(f"measuring {asked.text}")
            made = make_plan(find_model(asked, machines.workers), machines, overlap, tell)
        if report_file is not None:
            as_json(plan_report(made, address, data), report_file)
        if picture is not None and plot is not None:
            picture.draw(lambda path: draw_plan(made, path, plot.suffix[1:].lower()))
    if not quiet:
        show_plan_table(made, address, data)
    files.end()
