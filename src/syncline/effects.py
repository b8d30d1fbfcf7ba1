"""Events and effects, the input and output of a node: `handle(event, now) -> list[Effect]`.

Payload ownership. An effect's payload is valid until the node's next `handle`; an engine that needs it longer copies
it. An event's payload is valid until the node has answered that push; until then the worker does not write to it. The
payloads of some messages between servers are valid only while the node handles the event (`Strategy.placed`).
Equality of events and effects ignores payloads.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from syncline.layout import Bucket, Payload, Values
from syncline.messages import Message, NodeId

if TYPE_CHECKING:
    from syncline.errors import SynclineError


class _Carrier(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A struct whose equality ignores its arrays."""

    def _facts(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in ("payload", "params"))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash((type(self), self._facts()))


# Events: the input of a node.


class Received(_Carrier, frozen=True, eq=False, gc=False):
    """A message arrived."""

    source: NodeId
    message: Message
    payload: Payload | None = None


def kept(event: Received) -> Received:
    """The same event with a copy of its payload, for a node or an engine that handles it later."""
    return event if event.payload is None else Received(event.source, event.message, event.payload.copy())


class Ready(_Carrier, frozen=True, eq=False, gc=False):
    """The application has finished one bucket's update of the current iteration; payload None: it has none to send."""

    bucket: Bucket
    payload: Values | None = None
    lr: float | None = None
    params: Values | None = None
    """The worker's current parameters, for gates that compare updates with them; None: unknown."""


class Enter(msgspec.Struct, frozen=True):
    """The application asks this worker to join a run that is already training."""


class Fetch(msgspec.Struct, frozen=True):
    """The application asks for the parameters once a worker may leave iteration `progress`; it sends no update."""

    progress: int


class Depart(msgspec.Struct, frozen=True):
    """The application asks this worker to leave the run as soon as all its pushes are answered."""


class Finish(msgspec.Struct, frozen=True):
    """The application has made its last update. It stays until the other workers have too, and then departs."""


class LinkUse(msgspec.Struct, frozen=True):
    """How much this host has sent to all peers so far, and for how long its link was in use."""

    arrived: int
    """Bytes that have arrived."""
    seconds: float
    """How long anything was under way."""


class Collect(msgspec.Struct, frozen=True):
    """The application saves its values between two steps: get all updates that the other workers have made."""


class Idle(msgspec.Struct, frozen=True):
    """The link to `peer` is free: nothing that this node has sent waits on this host any more."""

    peer: NodeId
    shared: bool = False
    """The two share memory: how long it took says nothing about a network."""
    use: LinkUse | None = None
    """What the operating system has counted; None: everything that was sent to this peer has arrived."""


class Lost(msgspec.Struct, frozen=True):
    """The engine has detected that this worker is dead."""

    worker: int
    incarnation: int


class Admit(msgspec.Struct, frozen=True):
    """The engine has started a server, which shall hold a share of the model. Its number was never used before."""

    server: int


class Dismiss(msgspec.Struct, frozen=True):
    """The engine asks this server to hand over all its buckets."""

    server: int


class Change(msgspec.Struct, frozen=True):
    """The engine asks the shard to continue with another sync model, and another release unless it is None."""

    model: Any
    release: Any = None


class Timer(msgspec.Struct, frozen=True):
    """A timer that the node set has expired."""

    key: tuple[object, ...]


class CopySpoiled(msgspec.Struct, frozen=True):
    """What the worker has read last of this bucket is not complete: a server died while it replaced the values."""

    bucket: Bucket


class Loaded(_Carrier, frozen=True, eq=False, gc=False):
    """What `Load` asked for: the last checkpoint that this server has written; `state` None: there is none."""

    bucket: Bucket
    server: int
    state: Any = None
    payload: Payload | None = None


class Saved(msgspec.Struct, frozen=True):
    """What `Save` with this bucket and serial number asked for is on disk."""

    bucket: Bucket
    serial: int


class Reshape(msgspec.Struct, frozen=True):
    """The engine asks the coordinator to change which nodes talk to each other."""

    plan: Any


class Restarted(msgspec.Struct, frozen=True):
    """The engine has started this server again, from its checkpoint."""

    server: int
    incarnation: int


class ServerLost(msgspec.Struct, frozen=True):
    """The engine has detected that this server is dead for good."""

    server: int


Event = (
    Received
    | Ready
    | Enter
    | Fetch
    | Depart
    | Finish
    | Collect
    | Idle
    | Lost
    | Admit
    | Dismiss
    | Change
    | Timer
    | CopySpoiled
    | Saved
    | Loaded
    | Reshape
    | Restarted
    | ServerLost
)


# Effects: the output of a node.


class Send(_Carrier, frozen=True, eq=False, gc=False):
    """Send this message and its payload."""

    to: NodeId
    message: Message
    payload: Payload | None = None
    of_replica: bool = False
    """The engine fills in the payload: a copy of all values that the application holds now."""
    of_copy: bool = False
    """The engine fills in the payload: the values of the message's bucket that this worker has read last."""


class SetTimer(msgspec.Struct, frozen=True):
    """Give the node the event `Timer(key)` after `seconds` seconds."""

    key: tuple[object, ...]
    seconds: float


class How(Enum):
    """How a delivery changes the application's values of a bucket."""

    REPLACE = auto()
    """The payload replaces the values; without a payload they stay as they are."""
    ADD = auto()
    """The payload is added to the values."""
    ZERO = auto()
    """The values become zero: the mean of a round in which no worker had a gradient."""


class Deliver(_Carrier, frozen=True, eq=False, gc=False):
    """Change the application's values of a bucket.

    If `next` is set, the current iteration is complete and the application continues with iteration `next`.
    """

    bucket: Bucket
    payload: Payload | None = None
    next: int | None = None
    how: How = How.REPLACE


class Save(_Carrier, frozen=True, eq=False, gc=False):
    """Write this state of a bucket to the node's checkpoint, then give the node `Saved(bucket, serial)`.

    A checkpoint of a bucket replaces the one before; it is whole or not there.
    """

    bucket: Bucket
    serial: int
    state: Any
    payload: Payload | None = None


class Load(msgspec.Struct, frozen=True):
    """Read the last checkpoint of a bucket that another server, which is lost, has written; then give `Loaded`."""

    bucket: Bucket
    server: int


class Reject(msgspec.Struct, frozen=True):
    """Close the connection to this peer: a message of it has turned out to break the protocol."""

    peer: NodeId
    reason: str


class Fail(msgspec.Struct, frozen=True):
    """Report that this node cannot continue."""

    error: SynclineError


Effect = Send | SetTimer | Deliver | Save | Load | Reject | Fail


class Node(Protocol):
    """A protocol as a plain state machine: it uses no sockets, clocks, threads or random state."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Handle one event and return the effects that the engine must perform. `now`: in seconds, never decreases."""
        ...
