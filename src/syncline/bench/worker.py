"""`python -m syncline.bench.worker CHANNEL PROGRAM ARGUMENTS`: one process of a system, started by `BenchCrew`.

CHANNEL is the file descriptor of an open socket, PROGRAM a function such as `syncline.bench.gloo:work`, ARGUMENTS its
keyword arguments as JSON.
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
    """Run the program until the bench closes the channel."""
    number, program, arguments = sys.argv[1:]
    channel = Channel(Connection(int(number)))
    Thread(target=_exit_when_closed, args=(int(number),), daemon=True).start()
    resolve_name(program)(channel, **json.loads(arguments))


def _exit_when_closed(number: int) -> None:
    """End this process when the other end of the socket is closed, even while the program waits for peers.

    It sleeps in the kernel until then.
    """
    watch = select.poll()
    watch.register(number, 0)  # no events are requested; poll() always reports a closed connection
    watch.poll()
    os._exit(0)


if __name__ == "__main__":
    main()
