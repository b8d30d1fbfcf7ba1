"""Who is connected to the coordinator, and what a model needs of the run that it belongs to."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from syncline.engines.control import Hello, Place
from syncline.engines.frames import Frame
from syncline.engines.wire import Wire
from syncline.messages import NodeId

if TYPE_CHECKING:
    from syncline.engines.gathering import Gathering
    from syncline.engines.releases import Releases


@dataclass(eq=False, slots=True)
class Peer:
    """A connection of a server or worker; it is about one model at most."""

    id: NodeId
    hello: Hello
    wire: Wire
    incarnation: int = 0
    gathering: Gathering | None = None
    left: float | None = None
    """When it left, if it has: it may still read the final parameters."""

    @property
    def place(self) -> Place:
        """Where others find it."""
        return Place(self.hello.host, self.hello.unix, self.hello.tcp)


class Run(Protocol):
    """What a gathering needs of the run that it belongs to."""

    expected: int
    """How many workers start the run."""
    count: int
    """How many servers the run was started with."""
    layers: Mapping[str, Mapping[str, str]]
    """The user's settings by where they were said, the strongest first."""
    releases: Releases
    """What becomes of servers that come and go."""

    def absent(self) -> Collection[int]:
        """The workers that nobody need wait for at the beginning."""
        ...

    def fitting(self, values: int, said: Iterable[Mapping[str, str]]) -> dict[str, str]:
        """The settings that fit the lane to servers that hold so many values each, beside what was said."""
        ...

    def out(self, wire: Wire, message: Frame) -> None:
        """Send, unless the peer is gone."""
        ...

    def tell(self, peer: Peer, what: str, usage: bool = False) -> None:
        """Have launchers say what has become of a worker."""
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
