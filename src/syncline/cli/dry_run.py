"""`syncline run --dry-run`: prints every setting, where it came from, and what would be started. On stderr."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING

from rich.console import Console

from syncline.cli.show import settings_table
from syncline.engines.process import share_of_cores

if TYPE_CHECKING:
    from syncline.engines.launch.plan import Plan


_AT_START = {"bucket": "chosen when training starts"}
"""What is shown of a setting that the coordinator chooses if the user does not."""


def show_plan(plan: Plan, origins: dict[str, str]) -> None:
    """Print the plan; `origins` says where the numbers of workers and servers came from."""
    console = Console(stderr=True)
    rows = [("workers", str(plan.workers), origins["workers"])]
    if not plan.joins:
        rows.append(("servers", str(plan.server_count), origins["servers"]))
        rows += [(key, _shown(key, word, origin), origin) for key, (word, origin) in plan.settled().items()]
    rows += _places(plan)
    console.print(settings_table(rows), "")
    if not plan.joins:
        console.print("The program may override the settings that are marked default.", style="dim")
    costs = () if plan.joins else plan.strategy.costs(plan.all_workers)
    for line in (*costs, *_processes(plan)):
        console.print(line, soft_wrap=True, markup=False, highlight=False)


def _shown(key: str, word: str, origin: str) -> str:
    return _AT_START.get(key, word) if origin == "default" else word


def _places(plan: Plan) -> list[tuple[str, str, str]]:
    wiring = plan.wiring
    listen = f"{wiring.listen} port {plan.port or 'any'}" if wiring.listen else ""
    hosts = plan.hosts
    found = {
        "hosts": f"{hosts.count}; this is host {hosts.rank}" if hosts else "",
        "at": hosts.address if hosts else "",
        "lane": wiring.lane or "shm on the same host, tcp otherwise",
        "listen": listen,
        "join": " or ".join(plan.places) if plan.joins else "",
        "port": wiring.shared_port,
        "key-file": wiring.key_file,
        "SYNCLINE_KEY": "set" if wiring.key else "",
        "insecure": "yes" if wiring.insecure else "",
        "checkpoint": f"{wiring.save_to} every {wiring.save_every}" if wiring.save_to else "",
        "resume": wiring.resume,
        "trace": wiring.trace,
        "log-dir": plan.log_dir,
        "restarts": str(plan.restarts or ""),
        "grow": "; ".join(map(str, plan.growth)),
    }
    share = share_of_cores(plan.workers + plan.later_workers, os.environ)
    given = "default" if not wiring.lane else "command line"
    rows = [(key, word, given if key == "lane" else "command line") for key, word in found.items() if word]
    return rows + [(variable, f"{threads} for each worker", "default") for variable, threads in share.items()]


def _processes(plan: Plan) -> list[str]:
    command = shlex.join(plan.command)
    if plan.joins:
        return [f"would start {plan.workers} x {command}"]
    coordinator = "a coordinator, " if plan.leads else ""
    return [f"would start {coordinator}{plan.server_count} x server, {plan.workers} x {command}"]
