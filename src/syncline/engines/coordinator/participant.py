"""Who is connected to the coordinator, and what a model needs of the run that it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Hello, NodeAddress
from syncline.engines.net.frames import Frame
from syncline.messages import NodeId

if TYPE_CHECKING:
    from syncline.engines.coordinator.returning_workers import ReturningWorkers
    from syncline.engines.coordinator.server_departures import ServerDepartures
    from syncline.engines.coordinator.trained_model import TrainedModel


@dataclass(eq=False, slots=True)
class Participant:
    """A connection of a server or worker; it is about one model at most."""

    id: NodeId
    hello: Hello
    wire: Connection
    incarnation: int = 0
    trained: TrainedModel | None = None
    left: float | None = None
    """When it left, if it has: it may still read the final parameters."""

    @property
    def place(self) -> NodeAddress:
        """Where others find it."""
        return NodeAddress(self.hello.host, self.hello.unix, self.hello.tcp)


class RunContext(Protocol):
    """What a trained needs of the run that it belongs to."""

    expected: int
    """How many workers start the run."""
    count: int
    """How many servers the run was started with."""
    layers: Mapping[str, Mapping[str, str]]
    """The user's settings by where they were said, the strongest first."""
    departures: ServerDepartures
    """What becomes of servers that come and go."""
    returning: ReturningWorkers
    """The workers that were lost and may come back."""

    def absent(self) -> Collection[int]:
        """The workers that nobody need wait for at the beginning."""
        ...

    def epochs(self) -> tuple[int, ...]:
        """The furthest epoch that a worker has begun, sampler by sampler."""
        ...

    def fitting(self, values: int, said: Iterable[Mapping[str, str]]) -> dict[str, str]:
        """The settings that fit the lane to servers that hold so many values each, beside what was said."""
        ...

    def out(self, wire: Connection, message: Frame) -> None:
        """Send, unless the peer is gone."""
        ...

    def tell(self, peer: Participant, what: str, usage: bool = False) -> None:
        """Have launchers say what has become of a worker."""
        ...

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Do something after so many seconds."""
        ...

    def count_out(self, number: int) -> None:
        """Do not wait for this worker at the beginning."""
        ...

    def ended(self) -> None:
        """Nobody trains this model any more."""
        ...

    def abort(self, reason: str) -> None:
        """The run cannot go on."""
        ...

    def first_servers(self) -> Collection[int]:
        """The servers that the run was started with, as far as they stay."""
        ...
