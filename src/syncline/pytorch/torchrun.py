"""Runs under torchrun. The first worker starts the coordinator and servers, and publishes their address in a store.

If torchrun is killed, its workers would continue. So every worker has a guard that ends the worker, and all that it has
started, together with torchrun.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from math import inf

from syncline.engines.launch.guard_link import GuardLink
from syncline.engines.net.wiring import Wiring
from syncline.engines.process import end_with_parent
from syncline.errors import RunError, UsageError

SECONDS = 60.0
"""How long the other workers wait for the first worker, in seconds."""

Host = subprocess.Popen[str]


def started_this(environment: Mapping[str, str]) -> bool:
    """Whether torchrun started this program, with at least 2 workers."""
    return "TORCHELASTIC_RUN_ID" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


def find_run(environment: Mapping[str, str]) -> tuple[Wiring, Host | None]:
    """The wiring of this worker; on the first worker also the process of the coordinator and servers.

    That process ends when its standard input is closed.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    if environment.get("GROUP_WORLD_SIZE", "1") != "1":
        raise UsageError(
            "torchrun",
            "several hosts (--nnodes) are not supported; use `syncline run --listen` on one host and "
            "`syncline run --join` on the others",
        )
    rank, size = int(environment["RANK"]), int(environment["WORLD_SIZE"])
    ours = rank == 0 and environment.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    store = TCPStore(
        environment["MASTER_ADDR"], int(environment["MASTER_PORT"]), is_master=ours, timeout=timedelta(seconds=SECONDS)
    )
    key = f"syncline/{environment.get('TORCHELASTIC_RESTART_COUNT', '0')}"
    host = None
    if rank == 0:
        host = subprocess.Popen(
            [sys.executable, "-m", "syncline.engines.launch.host", str(size), "1", str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert host.stdout is not None
        said = host.stdout.readline()
        if not said:
            raise RunError(f"the coordinator and servers did not start: their process ended with code {host.wait()}")
        store.set(key, said)
    said = store.get(key).decode()
    return Wiring.read(json.loads(said)).of("worker", rank), host


def end_with_torchrun() -> GuardLink | None:
    """Let this worker end when torchrun dies; return its guard, if this worker leads a session as it should."""
    torchrun = os.getppid()
    if os.getsid(0) != os.getpid():
        end_with_parent(torchrun)
        return None
    guard = GuardLink(torchrun, inf)
    guard.start()
    guard.add(os.getpid())
    return guard


def end_host(host: Host) -> None:
    """Tell the host process to end once the other workers have finished.

    It gets the word "end", because closing its input is not enough if a data loader's process also holds it open.
    """
    if host.stdin is not None and not host.stdin.closed:
        with suppress(BrokenPipeError):  # the host already ended, because no worker was left
            host.stdin.write("end\n")
            host.stdin.close()
