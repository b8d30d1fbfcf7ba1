"""Under torchrun: the first worker starts coordinator and servers beside itself, and tells the others by its store."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from syncline.engines.net.wiring import Wiring
from syncline.errors import RunError, UsageError

SECONDS = 60.0
"""How long the others wait for the first worker."""

Host = subprocess.Popen[str]


def is_there(environment: Mapping[str, str]) -> bool:
    """Was this program started by torchrun, as one of several?"""
    return "TORCHELASTIC_RUN_ID" in environment and int(environment.get("WORLD_SIZE", "1")) > 1


def meet(environment: Mapping[str, str]) -> tuple[Wiring, Host | None]:
    """How this worker finds the run; the first one also gets the process that hosts it, which ends with its input."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    if environment.get("GROUP_WORLD_SIZE", "1") != "1":
        raise UsageError(
            "torchrun", "several hosts (--nnodes) are not supported; take: syncline run --listen, and --join elsewhere"
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
            [sys.executable, "-m", "syncline.engines.launch.host", str(size), "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert host.stdout is not None
        said = host.stdout.readline()
        if not said:
            raise RunError(f"coordinator and servers did not start: exit code {host.wait()}")
        store.set(key, said)
    said = store.get(key).decode()
    return Wiring.read({**json.loads(said), "SYNCLINE_WORKER": str(rank)}), host


def dismiss(host: Host) -> None:
    """Have the host let the others finish, and end. A word, since a loader's process may hold its input open too."""
    if host.stdin is not None and not host.stdin.closed:
        with suppress(BrokenPipeError):  # it has ended by itself: there was nobody left
            host.stdin.write("end\n")
            host.stdin.close()
