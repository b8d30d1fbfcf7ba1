"""Coordinator and servers for workers that somebody else has started (torchrun): a process beside the first of them.

    python -m syncline.engines.launch.host WORKERS SERVERS

It says on its output, in one line, how workers find the run, and lets the run end once a word, or the end, comes in.
"""

from __future__ import annotations

import json
import select
import signal
import sys

from syncline.engines.launch.launcher import Launcher
from syncline.engines.launch.plan import Plan, checked
from syncline.engines.process import run


def main() -> int:
    workers, servers = map(int, sys.argv[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever interrupts the workers ends this by their end
    return run(lambda: _host(checked(Plan((), workers, servers))))


def _host(plan: Plan) -> int:
    launcher = Launcher(plan)
    try:
        launcher.open()
        print(json.dumps(launcher.wiring.environment()), flush=True)
        launcher.serve(lambda: not select.select([sys.stdin], [], [], 0)[0])
    finally:
        launcher.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
