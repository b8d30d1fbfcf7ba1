"""Runs a launcher from start to end, for every command: handles interrupts and leaves no process behind."""

from __future__ import annotations

from collections.abc import Callable

from syncline.cli.speaker import Closed
from syncline.engines.launch.interrupts import InterruptHandler, pausing
from syncline.engines.launch.launcher import Launcher


def run_to_end(launcher: Launcher, started: Callable[[], None] | None = None) -> None:
    """Start all processes, wait for the end of the run, and always stop every process.

    `started` is called when all processes have started.
    """
    with InterruptHandler(launcher.hurry) as interrupts, pausing(launcher.pause, launcher.resume):
        try:
            try:
                launcher.start()
                if started is not None:
                    started()
                launcher.wait()
            except (KeyboardInterrupt, Closed) as interrupt:
                launcher.interrupt(*interrupt.args)
                raise
            finally:
                interrupts.over()
        finally:  # an interrupt that arrived before this point has already been raised
            launcher.stop()
    if launcher.failure is not None:
        raise launcher.failure
