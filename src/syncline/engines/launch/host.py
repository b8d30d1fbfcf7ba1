"""Coordinator and servers for workers that another launcher (torchrun) has started; one such process on each host.

    python -m syncline.engines.launch.host FIRST WORKERS [HOSTS]

FIRST is the process id of this host's first worker, WORKERS the number of all workers. HOSTS is this host's place in a
run on several hosts (`Hosts` as JSON); the key then comes in SYNCLINE_KEY_FILE or SYNCLINE_KEY, and the port of this
host, if it has one for all processes, in SYNCLINE_PORT. The process prints one line that says how workers find the run.
When the first worker is done (it writes a line to stdin) or has died, the process on the first host ends the run, and
that on another host waits for the end. But if the first worker of another host has died, torchrun starts all workers
again, and this process ends at once.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TextIO

import msgspec

from syncline.engines.launch.hosts import Hosts
from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.launch.port_option import port_from_variable
from syncline.engines.net.wiring import Wiring, key_of_user
from syncline.engines.process import end_with_parent, outlive_parent, run


class Published(msgspec.Struct, frozen=True):
    """How the workers find the run."""

    at: str
    """The coordinator's address for other hosts; "": the run is on one host."""
    run: str
    wiring: dict[str, str]
    """For this host only: it contains the secret of the run."""


def main() -> int:
    first, workers = map(int, sys.argv[1:3])
    hosts = msgspec.json.decode(sys.argv[3], type=Hosts) if len(sys.argv) > 3 else None
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the workers, and their end ends this process
    return run(lambda: _host(_plan(workers, hosts), os.pidfd_open(first)))


def _plan(workers: int, hosts: Hosts | None) -> Plan:
    if hosts is None:
        return checked(Plan((), workers, 1))
    file, key = key_of_user(None, os.environ)
    wiring = Wiring(key_file=file, key=key, shared_port=port_from_variable(os.environ))
    return checked(Plan((), workers, 1, wiring=wiring, hosts=hosts))


def _host(plan: Plan, first: int) -> int:
    launcher = Launcher(plan)
    end_with_parent(os.getppid())  # a worker that dies now is not noticed otherwise; the guard ends the rest
    try:
        launcher.open()
        outlive_parent()
        at = launcher.reachable() if plan.hosts is not None and plan.leads else ""
        published = Published(at, launcher.wiring.run, launcher.wiring.environment())
        print(msgspec.json.encode(published).decode(), flush=True)
        launcher.serve(lambda: not _ready(sys.stdin, first))
        if not plan.leads and _ready(sys.stdin) and sys.stdin.readline():
            launcher.serve_on()
    finally:
        launcher.stop()
    return 0


def _ready(*files: TextIO | int) -> bool:
    return bool(select.select(files, [], [], 0)[0])


if __name__ == "__main__":
    sys.exit(main())
