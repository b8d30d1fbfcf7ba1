"""Coordinator and servers for workers that another launcher (torchrun) has started.

    python -m syncline.engines.launch.host WORKERS SERVERS FIRST

This process runs on the host of the first worker, whose process id is FIRST. It prints one line that says how workers
find the run. It ends the run when the first worker has ended, or when it reads anything or the end of file from stdin.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys

from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.process import run


def main() -> int:
    workers, servers, first = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt ends the workers, and their end ends this process
    return run(lambda: _host(checked(Plan((), workers, servers)), os.pidfd_open(first)))


def _host(plan: Plan, first: int) -> int:
    launcher = Launcher(plan)
    try:
        launcher.open()
        print(json.dumps(launcher.wiring.environment()), flush=True)
        launcher.serve(lambda: not select.select([sys.stdin, first], [], [], 0)[0])
    finally:
        launcher.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
