"""A launcher's run from start to end, as every command has it: interrupts are heeded, and nothing is left behind."""

from __future__ import annotations

from collections.abc import Callable

from syncline.cli.speaker import Closed
from syncline.engines.launch.interrupts import InterruptHandler
from syncline.engines.launch.launcher import Launcher


def run_to_end(launcher: Launcher, started: Callable[[], None] | None = None) -> None:
    """Start everything, let it end, and leave nothing behind, whatever happens; `started`: called when all is there."""
    with InterruptHandler(launcher.hurry) as interrupts:
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
        finally:  # an interrupt that came before this point has had its one chance to raise
            launcher.stop()
    if launcher.failure is not None:
        raise launcher.failure
