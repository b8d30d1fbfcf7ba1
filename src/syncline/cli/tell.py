"""`syncline tell`: change the settings of a run while it trains."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from syncline.cli import strategy_options as strategy
from syncline.errors import UsageError


def tell(
    run: Annotated[
        str | None,
        typer.Argument(
            metavar="[RUN]",
            help="The name of a run of yours on this host (syncline run -v prints it), or the address that --listen "
            "printed. Default: your only run on this host.",
            show_default=False,
        ),
    ] = None,
    sync: strategy.Sync = None,
    release: strategy.Release = None,
    topology: Annotated[
        str | None,
        typer.Option(
            metavar="SHAPE",
            rich_help_panel=strategy.SYNC,
            help="For strategy tree: who talks to whom from now on. chain, star, twin, tree:D, a list of edges "
            "(0-1 1-2), or a file with one edge per line.",
            show_default=False,
        ),
    ] = None,
    merge: Annotated[
        str | None,
        typer.Option(
            metavar="NODES",
            rich_help_panel=strategy.SYNC,
            help="For strategy tree: the first of these connected nodes takes the place of all, for example 1,4. The "
            "others leave the run.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Which model, if the run trains several. Repeat it for more. Default: all."),
    ] = None,
    key_file: Annotated[Path | None, typer.Option(help="The key of a run on another host.")] = None,
    insecure: Annotated[bool, typer.Option(help="Connect to another host without a key.")] = False,
) -> None:
    """Change the sync model, the topology or the nodes of a run while it trains.

    Workers do not stop, and no update is lost. Returns when all servers have changed. If the change is not possible,
    prints why; the run continues unchanged.

    Exit codes: 0 success; 1 the run cannot be reached or has ended; 2 wrong option or setting.
    """
    from syncline.engines.net.control import ChangeRequest
    from syncline.engines.net.wiring import Wiring, key_of_user
    from syncline.engines.operator import change, find
    from syncline.strategies.sync_change import merge_numbers, topology_words, words_of

    models: tuple[str, ...] = ()
    nodes: tuple[int, ...] = ()
    word = shape = ""
    try:
        if topology is not None:
            shape = topology_words(topology)
        if merge is not None:
            nodes = merge_numbers(int(each) if each.strip().isdecimal() else -1 for each in merge.split(","))
        if (topology is None and merge is None) or sync is not None or release is not None:
            models, word = words_of(sync, release)
    except UsageError as error:
        raise UsageError(f"--{error.option}", _as_options(error.problem)) from None
    file, key = key_of_user(key_file, os.environ)
    request = ChangeRequest(1, models, word, tuple(model or ()), shape, nodes)
    change(find(run), Wiring(key_file=file, key=key, insecure="1" if insecure else ""), request)
    if shape:
        typer.echo(f"topology {shape}: the nodes change over")
        return
    if nodes:
        typer.echo(f"merge {','.join(map(str, nodes))}: the nodes change over")
        return
    said = [f"sync {' '.join(models)}"] * bool(models) + [f"release {word}"] * bool(word)
    typer.echo(f"{', '.join(said)}: all servers have changed")


def _as_options(problem: str) -> str:
    return problem.replace('sync="ssp:3", release="soft"', "--sync ssp:3, --release soft")
