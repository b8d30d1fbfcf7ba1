"""The options that describe a strategy, with their help texts, for every command that has them.

`RUN`, `SYNC`, `COMPRESSION`, `NETWORK`, `CHECKPOINTS` and `OUTPUT` are the groups into which `--help` sorts the
options.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

RUN = "What to run"
SYNC = "Synchronisation"
COMPRESSION = "Compression"
NETWORK = "Network"
OUTPUT = "Output"
CHECKPOINTS = "Checkpoints"

Strategy = Annotated[
    str | None,
    typer.Option(
        "--strategy",
        metavar="STRATEGY",
        rich_help_panel=RUN,
        help="Who talks to whom. server: workers push to servers that hold the model. exchange: there are no servers, "
        "and workers send each other parts of their updates, for example exchange:partitions=4,tau=1. tree: nodes "
        "without a master, for example tree:topology=star. Or the path of a class of your own and its settings, for "
        "example mypackage.Ring:every=4. Default: server.",
    ),
]
Grow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STAGE",
        rich_help_panel=RUN,
        help="Start more workers on this host while the run trains. at=20s,workers=2: two more, 20 s after training "
        "has begun. With strategy tree a node starts too; at=20s,nodes=2,workers=3: two nodes, and three workers for "
        "each. The words are those of the fault grow in an experiment file. Repeat it for more stages.",
        show_default=False,
    ),
]
Patience = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        rich_help_panel=NETWORK,
        help="How long a worker waits for an answer before it sends its update again over TCP, for example 10s; never: "
        "it does not send again. Default: 30s.",
    ),
]
Backups = Annotated[
    str | None,
    typer.Option(
        metavar="N",
        rich_help_panel=RUN,
        help="How many other servers follow each server, with everything that it holds, and take over if it dies: 0 or "
        "1. With 1, nothing that a worker was told is lost, not even what a rule remembers. Needs at least 2 servers. "
        "Default: 0.",
    ),
]
Stop = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        rich_help_panel=RUN,
        help="End the run as soon as this is reached. updates=4000: iterations of all workers together; seconds=60; "
        "loss=0.1; accuracy=0.95. updates and seconds replace --iterations. Repeat it for several; the first one that "
        "is reached counts.",
    ),
]
Sync = Annotated[
    list[str] | None,
    typer.Option(
        metavar="MODEL",
        rich_help_panel=SYNC,
        help="The sync model: who waits for whom. bsp: all workers wait for each other in every iteration; ssp:3: a "
        "worker may be 3 iterations ahead of the slowest; asp: nobody waits; also dsps, drop, pssp and psp. Give it "
        "once for all servers, or once per server. Default: bsp.",
    ),
]
Release = Annotated[
    str | None,
    typer.Option(
        metavar="lazy|soft",
        rich_help_panel=SYNC,
        help="When delayed pulls are answered. lazy: once every worker has finished that iteration; soft: when the "
        "next round closes. Default: lazy.",
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        metavar="MODE",
        rich_help_panel=SYNC,
        help="Where the optimizer runs. gradients: every worker steps with the mean gradient, as under DDP; changes: "
        "every worker steps by itself and sends what changed; rule: the servers step (see --rule). Default: gradients "
        "under bsp, changes otherwise.",
    ),
]
Rule = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        rich_help_panel=SYNC,
        help="The optimizer on the servers and its learning rate: sgd:0.1, momentum:0.1, adam:0.001, fasgd:0.005. "
        "Selects mode rule.",
    ),
]
Gate = Annotated[
    str | None,
    typer.Option(
        metavar="GATE",
        rich_help_panel=COMPRESSION,
        help="Skip some updates and fetches. every:push=2,fetch=4: send every 2nd update and fetch every 4th time; "
        "budget:1MB: at most 1 MB per worker and iteration. Default: always (skip nothing).",
    ),
]
Codec = Annotated[
    str | None,
    typer.Option(
        metavar="CODEC",
        rich_help_panel=COMPRESSION,
        help="Compress what workers send. topk:0.01: the largest 1 % of the values; int8: 1 byte per value. Default: "
        "dense (float32).",
    ),
]
ReplyCodec = Annotated[
    str | None,
    typer.Option(
        metavar="CODEC",
        rich_help_panel=COMPRESSION,
        help="Compress what servers send back, with the same codecs as --codec. Default: dense.",
    ),
]
Placement = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        rich_help_panel=RUN,
        help="Which server holds which parameters: elastic (equal ranges), uniform, roundrobin or balanced. Default: "
        "elastic.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(metavar="N", rich_help_panel=RUN, help="The seed of everything random, for example 7. Default: 0."),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        rich_help_panel=CHECKPOINTS,
        help="Write checkpoints of the whole run to this folder, and keep the last three. Needs the extra checkpoints.",
    ),
]
CheckpointEvery = Annotated[
    str | None,
    typer.Option(
        "--checkpoint-every",
        metavar="N|TIME",
        rich_help_panel=CHECKPOINTS,
        help="How often: a number of iterations, for example 500, or a time, for example 30s. Default: 10min.",
    ),
]
Resume = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        rich_help_panel=CHECKPOINTS,
        help="Go on from the newest complete checkpoint in this folder. The number of workers and servers may differ.",
    ),
]


def words(*, sync: Sequence[str] | None, seed: int | None, **others: str | None) -> dict[str, str]:
    """The settings that were given as options, as text, without the options that were left out."""
    said = {**others, "sync": " ".join(sync) if sync else None, "seed": None if seed is None else str(seed)}
    return {key: word for key, word in said.items() if word is not None}
