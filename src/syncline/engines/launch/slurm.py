"""SLURM: the place of a launcher among the tasks of a job step, from the variables that `srun` sets for every task.

1. Every task of the step runs one launcher, and the rank of the launcher is the task's.
2. The first task of each node starts servers, so a node with several tasks has servers only once.
3. Task 0 runs on the first node of the step. The port follows from the numbers of job and step, so that two steps that
   share a node do not collide.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from syncline.engines.launch.hosts import Hosts
from syncline.errors import UsageError

OPTION = "--slurm"

FIRST_PORT, PORTS = 16384, 16384
"""The ports that jobs share: below those that Linux gives to connections (from 32768)."""


def slurm_hosts(
    environment: Mapping[str, str], at: str | None = None, serving: int | None = None, port: int | None = None
) -> Hosts:
    """The place of this task; `at`: the coordinator's address, if not on the first node at the port of the step.

    `serving`: on how many nodes servers start; None: on all. `port`: the one port of every node; None: processes have
    ports of their own.
    """
    if "SLURM_STEP_ID" not in environment:
        raise UsageError(OPTION, "works only in a task of srun; start it with: srun syncline run --slurm PROGRAM")
    job, step = _number(environment, "SLURM_JOB_ID"), _number(environment, "SLURM_STEP_ID")
    tasks = _number(environment, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS")
    nodes = _number(environment, "SLURM_STEP_NUM_NODES", "SLURM_NNODES")
    node, first = _number(environment, "SLURM_NODEID"), _number(environment, "SLURM_LOCALID") == 0
    if serving is not None and serving > nodes:
        raise UsageError("--server-hosts", f"is {serving}, but this step has only {nodes} nodes")
    if port is not None and tasks != nodes:
        problem = f"is one port for a whole node, but this step has {tasks} tasks on {nodes} nodes"
        raise UsageError("--port", f"{problem}; start one task on each node (--ntasks-per-node=1), with -n workers")
    if at is None:
        first_host = first_node(_word(environment, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"))
        at = f"{first_host}:{port or port_of(job, step)}"
    count = serving or nodes
    place = node if first and node < count else -1
    return Hosts(tasks, _number(environment, "SLURM_PROCID"), at, count, place)


def first_node(names: str) -> str:
    """The first of SLURM's list of nodes: `gpu07` of `gpu[07-09,12],cpu1`."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])*", names)
    assert first is not None, "the pattern also matches nothing"
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first[0])


def port_of(job: int, step: int) -> int:
    """The port of a step."""
    return FIRST_PORT + (31 * job + step) % PORTS


def _word(environment: Mapping[str, str], *names: str) -> str:
    """The first of these variables that is set."""
    found = next((environment[name] for name in names if environment.get(name)), "")
    if not found:
        raise UsageError(OPTION, f"SLURM has not set {names[0]}; use --hosts, --host-rank and --at instead")
    return found


def _number(environment: Mapping[str, str], *names: str) -> int:
    word = _word(environment, *names)
    if not (word.isascii() and word.isdigit()):
        raise UsageError(OPTION, f"{names[0]} is {word!r}, which is not a number; use --hosts, --host-rank and --at")
    return int(word)
