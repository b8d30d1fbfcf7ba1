"""One host of a run, as the program that started the run sees it: its actor, and what has come from it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from syncline.errors import RunError
from syncline.ray.host_actor import HostActor
from syncline.ray.host_messages import Event, HostOrder, HostOver, HostReady, WorkersDone, encoded, event_of

FORWARDED = ("OMP_NUM_THREADS", "SYNCLINE_PATIENCE")
"""The environment variables that the processes of all nodes get from the program that starts the run."""


class RemoteHost:
    """An actor, and the state of its host."""

    def __init__(self, name: str, options: Mapping[str, Any], cpus: float, workers: int, node: str = "") -> None:
        """`workers`: how many it starts. `cpus`: how many each of them has. `node`: Ray's identifier of the node."""
        import ray

        self.name, self.workers, self.node = name, workers, node
        self.ready: HostReady | None = None
        self.done: WorkersDone | None = None
        self.over: HostOver | None = None
        self.lost = False
        """Its actor or its node has died."""
        self.leaving = False
        self.joined = False
        """The run had begun without it."""
        self.bundles: tuple[tuple[Any, int], ...] = ()
        """What Ray keeps for its workers: placements, with the number of the bundle there."""
        chosen = {name: os.environ[name] for name in FORWARDED if name in os.environ}
        made = ray.remote(HostActor).options(max_concurrency=4, max_restarts=0, **options)
        self._actor = made.remote(os.getcwd(), max(1, int(cpus)), chosen)

    def address(self) -> str:
        """The address of its node, when the actor has started."""
        import ray

        try:
            return str(ray.get(self._actor.address.remote()))
        except ray.exceptions.RayError as error:
            raise RunError(f"{self.name} did not start: {str(error).splitlines()[0]}") from None

    def start(self, order: HostOrder) -> None:
        self._actor.start.remote(encoded(order))

    def ask(self) -> Any:
        """A reference to its next events."""
        return self._actor.events.remote()

    def heard(self, lines: list[bytes]) -> list[Event]:
        """The events in these lines; a process that ends without a last word counts as killed."""
        found: list[Event] = []
        for line in lines:
            event = event_of(line) if line else HostOver(-9, problem=f"{self.name} was killed")
            if not line and self.over is not None:
                continue
            match event:
                case HostReady():
                    self.ready = event
                case WorkersDone():
                    self.done = event
                case HostOver():
                    self.over = event
            found.append(event)
        return found

    @property
    def ended(self) -> bool:
        return self.lost or self.over is not None

    @property
    def works(self) -> bool:
        """Whether it has workers that have not ended, as far as known."""
        return bool(self.workers) and self.done is None and not self.ended

    def end(self) -> None:
        """Tell it that the run is over, or that its servers are not needed any more."""
        if not self.ended:
            self._actor.end.remote()

    def leave(self) -> None:
        """Let its workers and servers leave the run."""
        if not self.ended:
            self.leaving = True
            self._actor.leave.remote()

    def signal(self, number: int) -> None:
        if not self.ended:
            self._actor.signal.remote(number)

    def kill(self) -> None:
        """End the actor; the kernel and the launcher's guard end what it has started."""
        import ray

        ray.kill(self._actor)
