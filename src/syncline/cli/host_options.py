"""The options of a run that begins on several hosts, and what they mean together."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from syncline.cli.strategy_options import NETWORK
from syncline.engines.launch.hosts import Hosts
from syncline.engines.launch.slurm import slurm_hosts
from syncline.errors import UsageError

Count = Annotated[
    int | None,
    typer.Option(
        "--hosts",
        metavar="N",
        rich_help_panel=NETWORK,
        help="Begin one run on N hosts: start the same command on each of them, in any order, with --at and with its "
        "own --host-rank. Every host starts -n workers and --servers servers.",
    ),
]
Rank = Annotated[
    int | None,
    typer.Option(
        "--host-rank",
        metavar="R",
        rich_help_panel=NETWORK,
        help="With --hosts: which host this is, from 0 to N - 1. Host 0 starts the coordinator.",
    ),
]
At = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="ADDRESS:PORT",
        rich_help_panel=NETWORK,
        help="With --hosts: where host 0 listens, for example 192.0.2.7:7070; the same on every host. With --slurm it "
        "is known.",
    ),
]
Serving = Annotated[
    int | None,
    typer.Option(
        "--server-hosts",
        metavar="K",
        rich_help_panel=NETWORK,
        help="With --hosts: only hosts 0 to K - 1 start servers. With --slurm: only the first K nodes. Default: all.",
    ),
]
Slurm = Annotated[
    bool,
    typer.Option(
        "--slurm",
        rich_help_panel=NETWORK,
        help="As --hosts, in a job of SLURM: srun syncline run --slurm PROGRAM. Every task starts -n workers (default: "
        "1), and the first task of each node starts --servers servers.",
    ),
]

Port = Annotated[
    int | None,
    typer.Option(
        "--port",
        metavar="P",
        rich_help_panel=NETWORK,
        help="With --listen, --hosts or --join: one port of this host for everything that other hosts connect to, so "
        "that a firewall needs one rule. Default: a port for each process, chosen by the system.",
    ),
]


def hosts_of(
    count: int | None,
    rank: int | None,
    at: str | None,
    serving: int | None,
    slurm: bool,
    join: str | None,
    port: int | None = None,
) -> Hosts | None:
    """The place that these options describe; None without --hosts and --slurm."""
    if serving is not None and serving < 1:
        raise UsageError("--server-hosts", f"must be at least 1, not {serving}")
    if slurm:
        for option, value in {"--hosts": count, "--host-rank": rank, "--join": join}.items():
            if value is not None:
                raise UsageError("--slurm", f"cannot be used with {option}: SLURM says which host this is")
        return slurm_hosts(os.environ, at, serving, port)
    others = {"--host-rank": rank, "--at": at, "--server-hosts": serving}
    if count is None:
        for option, value in others.items():
            if value is not None:
                raise UsageError(option, "says more about --hosts; add --hosts N, or leave it out")
        return None
    if join is not None:
        raise UsageError("--hosts", "cannot be used with --join: --hosts begins a run, and --join joins one")
    if rank is None:
        raise UsageError("--host-rank", f"is missing: give every host its own, from 0 to {count - 1}")
    if at is None:
        raise UsageError("--at", "is missing: give every host the address and port of host 0, such as 192.0.2.7:7070")
    return Hosts(count, rank, at, serving or 0)
