"""The actor of one node: it starts the node's share of a run in a process of its own, and passes on what that says.

The parameters and updates of the run do not go through the actor, nor through Ray's object store.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from syncline.ray.host_messages import END, environment_for

WAIT_SECONDS = 20.0
"""How long one question for events waits for the first one."""

MOST_LINES = 500
"""The most events in one answer."""

MODULE = "syncline.ray.host_process"


class HostActor:
    """Holds the process of a host. Ray runs its methods in threads."""

    def __init__(self, folder: str, threads: int, chosen: Mapping[str, str]) -> None:
        """`folder`: where the run was started, if there is such a folder here. `chosen`: environment variables."""
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._process = subprocess.Popen(
            [sys.executable, "-m", MODULE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=folder if Path(folder).is_dir() else None,
            env=environment_for(os.environ, threads, chosen),
            start_new_session=True,
        )
        threading.Thread(target=self._read, daemon=True).start()

    def start(self, order: bytes) -> None:
        """Let the process do what this line says."""
        self._tell(order)

    def events(self) -> list[bytes]:
        """The events since the last call, at least one if there is one in time; b"" is the end of the process."""
        found: list[bytes] = []
        with suppress(queue.Empty):
            found.append(self._lines.get(timeout=WAIT_SECONDS))
            while len(found) < MOST_LINES:
                found.append(self._lines.get_nowait())
        return found

    def end(self) -> None:
        """Tell the process that the workers are done."""
        self._tell(END.encode() + b"\n")

    def signal(self, number: int) -> None:
        """Send this signal to the process; SIGTERM lets the host leave the run."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def leave(self) -> None:
        self.signal(signal.SIGTERM)

    def address(self) -> str:
        """The address of this node."""
        from ray.util import get_node_ip_address

        return str(get_node_ip_address())

    def _tell(self, line: bytes) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended
            self._process.stdin.write(line)
            self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._process.wait()
        self._lines.put(b"")
