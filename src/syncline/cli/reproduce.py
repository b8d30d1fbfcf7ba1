"""`syncline reproduce NAME|all`: reproduces figures of the papers in the simulator."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import strategy_options as strategy
from syncline.cli.output import Force
from syncline.cli.output_checks import PICTURE, REPORT, OutputFile, check_directory, check_outputs
from syncline.errors import UsageError
from syncline.units import whole

MOST_JOBS = 1024


def reproduce(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME",
            help="The figures to make, for example fluent-dpr, or all. Without a name, list them.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            rich_help_panel=strategy.RUN,
            help="The folder that holds mnist.npz, for the figures that train on MNIST.",
        ),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", rich_help_panel=strategy.RUN, help="Fewer and shorter runs: minutes per figure, rougher numbers."
        ),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N", rich_help_panel=strategy.RUN, help="How many simulations run at a time. Default: one per core."
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(metavar="DIR", rich_help_panel=strategy.OUTPUT, help="The folder for pictures and numbers.")
    ] = Path("figures"),
    force: Force = False,
) -> None:
    """Reproduce figures of the papers in the simulator.

    For each figure it draws a picture, writes the numbers, and says whether the paper's claim holds here, holds in
    part, or does not hold, with the paper's numbers and ours.
    Finished simulations stay in DIR/runs, so an interrupted command continues where it stopped.

    Example: syncline reproduce mps-combination --quick
    """
    from syncline.cli.reproduce_view import listed, produce
    from syncline.reproduce.catalogue import ALL, chosen
    from syncline.reproduce.produce import FigureFolder

    if jobs is not None:
        whole(jobs, "--jobs", 1, MOST_JOBS)
    if data is not None and not data.is_dir():
        raise UsageError("--data", f"there is no directory {str(data)!r}; name the folder that holds mnist.npz")
    if not names:
        listed()
        return
    figures = chosen(names)
    needing = [figure for figure in figures if figure.needs_data(quick)]
    if data is None and needing and ALL not in names:
        raise UsageError("--data", f"{needing[0].name!r} trains on MNIST; name the folder that holds mnist.npz")
    if data is not None and needing:
        _check_data(data)
    _check_out(out)
    left_out = needing if data is None else []
    made = [figure for figure in figures if figure not in left_out]
    check_outputs(
        [] if data is None else [data / "mnist.npz"], _outputs(out, [each.name for each in made]), force=force
    )
    place = FigureFolder(out, data, quick, jobs or len(os.sched_getaffinity(0)))
    produce(made, place, left_out)


def _outputs(out: Path, names: Iterable[str]) -> list[OutputFile]:
    kinds = ((PICTURE, "png"), (REPORT, "json"))
    return [OutputFile("--out", out / f"{name}.{suffix}", mark) for name in names for mark, suffix in kinds]


def _check_data(data: Path) -> None:
    from syncline.recipes import check

    check("mnist-mlp", data, data_option="--data")


def _check_out(out: Path) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise UsageError("reproduce", "needs matplotlib; install it with: pip install matplotlib")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError("--out", f"cannot create {str(out)!r}: {error.strerror}") from None
    check_directory("--out", out)
