"""When a start takes long, the launcher checks its own host as `syncline doctor` does, in a process beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress

SECONDS = 20.0
"""Seconds that the checks may take: a name service may be slow."""


class HostChecks:
    """Runs the checks once; `note` prints a line, `watch` and `forget` let the launcher's loop call it."""

    def __init__(
        self,
        note: Callable[[str], None],
        watch: Callable[[int, Callable[[], None]], None],
        forget: Callable[[int], None],
    ) -> None:
        self._note = note
        self._watch = watch
        self._forget = forget
        self._process: subprocess.Popen[bytes] | None = None
        self._output = b""

    def start(self, *, network: bool) -> None:
        """Start the checks, unless they were started before; `network`: the run has processes on other hosts."""
        if self._process is None:
            self._process = _checks(network)
            self._watch(self._stream, self._read)

    def run(self, *, network: bool) -> None:
        """Run the checks to their end, unless they were started before; for a launcher that only waits."""
        if self._process is not None:
            return
        self._process = _checks(network)
        with suppress(subprocess.TimeoutExpired):
            self._output, _ = self._process.communicate(timeout=SECONDS)
        self._show()

    @property
    def _stream(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _read(self) -> None:
        data = os.read(self._stream, 1 << 16)
        self._output += data
        if not data:
            self._forget(self._stream)
            self._show()

    def _show(self) -> None:
        for line in self._output.decode(errors="replace").splitlines():
            self._note(f"this host: {' '.join(line.split())}")

    def close(self) -> None:
        """End the checks, if they still run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()


def _checks(network: bool) -> subprocess.Popen[bytes]:
    words = ["network"] if network else []
    return subprocess.Popen(
        [sys.executable, "-m", "syncline.engines.doctor", *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
