"""`python -m syncline.bench.worker CHANNEL PROGRAM ARGUMENTS`: one process of a system, started by its crew.

CHANNEL is the number of an open socket, PROGRAM a function such as `syncline.bench.gloo:work`, ARGUMENTS its keyword
arguments as JSON.
"""

from __future__ import annotations

import json
import os
import select
import sys
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from threading import Thread

from syncline.bench.channel import Channel


def main() -> None:
    """Run the program until the bench hangs up."""
    number, program, arguments = sys.argv[1:]
    channel = Channel(Connection(int(number)))
    Thread(target=_end_with, args=(int(number),), daemon=True).start()
    resolve_name(program)(channel, **json.loads(arguments))


def _end_with(number: int) -> None:
    """End this process when the other end of a socket is gone, even while it waits for peers that never come.

    It sleeps in the kernel until then.
    """
    watch = select.poll()
    watch.register(number, 0)  # hanging up is told in any case, and nothing else is asked for
    watch.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
