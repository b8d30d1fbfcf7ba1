"""What can be measured: anything that exchanges updates between processes."""

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
        """So many rounds back to back: the seconds of each, in worker 0, from one round's end to the next.

        Every burst checks what it computed; a wrong sum is a `RunError`.
        """
        ...

    def stop(self) -> None:
        """End all processes; called once whatever happened, also when `start` failed or never was called."""
        ...
