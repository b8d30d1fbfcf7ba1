"""What the process of a host, its actor and the program that started the run say to each other, as lines of JSON.

The process gets a `HostOrder` as its first line of input, and later perhaps the word `END`. It prints events.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from syncline.engines.launch.plan import Plan
from syncline.engines.net.control import Figures

END = "end"
"""Word to the first host: all workers of the run are done, so the run ends. To a host of Ray Train: it may end."""


class HostOrder(msgspec.Struct, frozen=True):
    """What a host is to do."""

    plan: Plan
    join: str = ""
    """The coordinator's address, if the run has begun without this host."""
    launches: bool = True
    """Whether it starts workers. If not, others do: it runs the coordinator or servers until it is told to end."""
    function: bytes = b""
    """The function that the workers call, pickled; empty: they run the program of the plan."""
    searched: tuple[str, ...] = ()
    """Where they look for the modules of the function."""


class HostEvent(msgspec.Struct, frozen=True, tag=True):
    """The base class of all events."""


class HostReady(HostEvent, frozen=True):
    """All processes of the host have started."""

    address: str
    """The coordinator's address for other hosts; "": it is on another host."""
    name: str
    """The coordinator's name on its own host."""
    run: str


class Said(HostEvent, frozen=True):
    """A line of output of a process, or of `syncline` itself."""

    name: str
    text: str


class Returned(HostEvent, frozen=True):
    """What the function returned on a worker, pickled."""

    worker: int
    value: bytes


class WorkersDone(HostEvent, frozen=True):
    """All workers of this host have ended; the host waits for the end of the run."""

    succeeded: bool
    """Whether at least one of them ended with exit code 0."""


class WorkerEnd(msgspec.Struct, frozen=True):
    """How a worker ended."""

    name: str
    code: int | None
    restarts: int = 0


class HostOver(HostEvent, frozen=True):
    """The last event: how the run ended on this host."""

    code: int
    option: str = ""
    """With `problem`: a `UsageError`."""
    problem: str = ""
    """Why the run failed."""
    workers: tuple[WorkerEnd, ...] = ()
    figures: tuple[Figures, ...] = ()
    worker_figures: tuple[Figures, ...] = ()
    incomplete: bool = False


Event = HostReady | Said | Returned | WorkersDone | HostOver


def encoded(message: HostEvent | HostOrder) -> bytes:
    """The message as one line."""
    return msgspec.json.encode(message) + b"\n"


def event_of(line: bytes) -> Event:
    event: Event = msgspec.json.decode(line, type=Event)
    return event


def order_of(line: bytes) -> HostOrder:
    return msgspec.json.decode(line, type=HostOrder)


def environment_for(variables: Mapping[str, str], threads: int, chosen: Mapping[str, str]) -> dict[str, str]:
    """The environment of a host's process: that of its actor, with what the user has set where the run was started.

    Ray sets the number of threads for the actor, which does not compute.
    """
    given = {name: word for name, word in variables.items() if name != "OMP_NUM_THREADS"}
    return {**given, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1", **chosen}
