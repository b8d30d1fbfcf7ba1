"""A connection to the coordinator, and what a model needs from its run."""

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
    """A connection of a server or worker, for one model at most."""

    id: NodeId
    hello: Hello
    wire: Connection
    incarnation: int = 0
    trained: TrainedModel | None = None
    own: bool = False
    """The run's own launcher started this process: it has shown the token that only that process has."""
    entered: bool = False
    """The run's own launcher started this worker, or it is or was a member. Until then it is only told what it needs to
    join."""
    named: bool = False
    """Others have been told the number of this server."""
    left: float | None = None
    """When the worker left, if it has; it may still read the final parameters."""
    counted: bool = False
    """The worker has sent its counters."""

    def __post_init__(self) -> None:
        self.entered |= self.own

    @property
    def place(self) -> NodeAddress:
        """Where other processes can connect to it."""
        return NodeAddress(self.hello.host, self.hello.unix, self.hello.tcp)


class RunContext(Protocol):
    """What a trained model needs from the run that it belongs to."""

    expected: int
    """How many workers start the run."""
    joinable: bool
    """Whether workers can join: from other hosts, or because the launcher starts them later."""
    growth: tuple[int, int]
    """How many workers and servers the launcher starts while the run trains."""
    count: int
    """How many servers the run was started with."""
    layers: Mapping[str, Mapping[str, str]]
    """The user's settings by their source, the one that takes precedence first."""
    departures: ServerDepartures
    """The servers that join and leave."""
    returning: ReturningWorkers
    """The workers that died and may be restarted."""

    @property
    def now(self) -> float:
        """The time of the present input."""
        ...

    def fresh_secret(self) -> str:
        """A new token that nobody else knows."""
        ...

    def absent(self) -> Collection[int]:
        """The workers that a model does not wait for before it begins."""
        ...

    def epochs(self) -> tuple[int, ...]:
        """The latest epoch that any worker has begun, for each sampler."""
        ...

    def fitting(self, values: int, said: Iterable[Mapping[str, str]]) -> dict[str, str]:
        """Default settings that suit the lane, for servers that hold `values` each; `said`: the user's settings."""
        ...

    def out(self, wire: Connection, message: Frame) -> None:
        """Send, unless the peer is gone."""
        ...

    def tell(self, peer: Participant, what: str, usage: bool = False) -> None:
        """Let the launchers print what has happened to a worker or server."""
        ...

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` after this many seconds."""
        ...

    def count_out(self, number: int) -> None:
        """Do not wait for this worker before a model begins."""
        ...

    def begun(self) -> None:
        """The training of a model has begun."""
        ...

    def ended(self) -> None:
        """The training of a model has ended."""
        ...

    def abort(self, reason: str) -> None:
        """The run has failed."""
        ...

    def first_servers(self) -> Collection[int]:
        """The servers that the run was started with, without those that have left or are leaving."""
        ...
