"""The options that choose where `syncline run` starts its processes: on this host, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from syncline.cli.speaker import Closed, Speaker
from syncline.cli.strategy_options import NETWORK
from syncline.engines.launch.plan import Plan
from syncline.errors import UsageError

if TYPE_CHECKING:
    from syncline.ray.ray_run import RayRun

ENGINE, ADDRESS = "--engine", "--address"

LOCAL, RAY = "local", "ray"

Engine = Annotated[
    str,
    typer.Option(
        ENGINE,
        metavar="local|ray",
        rich_help_panel=NETWORK,
        help="Where the processes run. local: on this host. ray: on the nodes of a Ray cluster; -n and --servers then "
        "count for all nodes. Default: local.",
        show_default=False,
    ),
]
Address = Annotated[
    str | None,
    typer.Option(
        ADDRESS,
        metavar="ADDRESS:PORT",
        rich_help_panel=NETWORK,
        help="With --engine ray: the address of the cluster. Default: RAY_ADDRESS, or the cluster that runs on this "
        "machine.",
    ),
]

WHY_NOT = {
    "--listen": "on Ray, workers join by themselves; leave it out",
    "--join": "Ray's workers find their run; leave it out",
    "--hosts": "Ray chooses the hosts; leave it out",
    "--host-rank": "Ray chooses the hosts; leave it out",
    "--at": "Ray chooses the hosts; leave it out",
    "--server-hosts": "Ray chooses the hosts; leave it out",
    "--slurm": "Ray chooses the hosts; leave it out",
    "--port": "Ray's nodes must reach each other at any port; leave it out",
    "--key-file": "every run on Ray makes a key of its own; leave it out",
    "--insecure": "every run on Ray has a key; leave it out",
    "--grow": "use syncline.ray.run(..., workers=(LEAST, MOST)), which grows when Ray has free CPUs",
}
"""The options that make no sense on Ray, and what is right."""


def check_engine(engine: str, address: str | None, given: Mapping[str, object]) -> bool:
    """Return True if the run is on Ray; raise `UsageError` for options that do not fit."""
    if engine not in (LOCAL, RAY):
        raise UsageError(ENGINE, f"must be {LOCAL} or {RAY}, not {engine!r}")
    if engine == LOCAL:
        if address is not None:
            raise UsageError(ADDRESS, f"names a Ray cluster; add {ENGINE} {RAY}, or leave it out")
        return False
    for option, value in given.items():
        if value:
            raise UsageError(option, f"cannot be used with {ENGINE} {RAY}: {WHY_NOT[option]}")
    return True


def run_on_ray(plan: Plan, address: str | None, speaker: Speaker, say_name: Callable[[str], None]) -> RayRun:
    """Run on the cluster, from start to end; `say_name` is called with the name of the run."""
    from syncline.ray import cluster
    from syncline.ray.function_run import run_to_end
    from syncline.ray.ray_run import RayJob, RayRun

    cluster.imported_ray(ENGINE)
    cluster.connect(address)
    cluster.check_size(plan.workers, 1.0)
    made = RayRun(RayJob(plan), speaker.line)
    run_to_end(made, lambda: say_name(made.name), Closed)
    return made
