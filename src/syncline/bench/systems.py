"""The interface of a system that the bench can measure: it exchanges updates between processes."""

from __future__ import annotations

from typing import Protocol

from syncline.bench.case import Case


class System(Protocol):
    """Processes that stay alive from `start` to `stop`, and that use no processor time between bursts."""

    name: str

    def start(self, case: Case) -> None:
        """Start the processes and connect them; return when all are ready."""
        ...

    def burst(self, rounds: int) -> list[float]:
        """Run this many rounds back to back; return the seconds of each in worker 0, from end of round to end of round.

        Every burst checks its result; a wrong sum is a `RunError`.
        """
        ...

    def stop(self) -> None:
        """End all processes. It is called once, also if `start` failed or was never called."""
        ...
