"""What a node is told and what it may ask for: `handle(event, now) -> list[Effect]`.

Payload ownership. An effect's payload is valid until that node's next `handle`; an engine that needs it longer copies
it. An event's payload is valid until the node has answered that push; until then the worker does not write it.
Payloads are not part of equality.
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
    """A struct whose arrays do not take part in equality."""

    def _facts(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in ("payload", "params"))

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and self._facts() == other._facts()

    def __hash__(self) -> int:
        return hash((type(self), self._facts()))


# Events: what a node is told.


class Received(_Carrier, frozen=True, eq=False, gc=False):
    """A message came in."""

    source: NodeId
    message: Message
    payload: Payload | None = None


class Ready(_Carrier, frozen=True, eq=False, gc=False):
    """The application has finished one bucket's update of the present iteration; None: it has none to send."""

    bucket: Bucket
    payload: Values | None = None
    lr: float | None = None
    params: Values | None = None
    """The parameters that the worker holds, for gates that compare; None: not known."""


class Enter(msgspec.Struct, frozen=True):
    """The application wants this worker to join a run that is under way."""


class Fetch(msgspec.Struct, frozen=True):
    """The application wants the parameters once iteration `progress` may be left, and has nothing to send."""

    progress: int


class Depart(msgspec.Struct, frozen=True):
    """The application wants this worker to leave as soon as all its pushes are answered."""


class Lost(msgspec.Struct, frozen=True):
    """The engine has found that this worker is dead."""

    worker: int
    incarnation: int


class Admit(msgspec.Struct, frozen=True):
    """The engine has started a server, which is to hold its share from now on; its number was never used before."""

    server: int


class Dismiss(msgspec.Struct, frozen=True):
    """The engine wants this server to hand over all that it holds."""

    server: int


class Change(msgspec.Struct, frozen=True):
    """The engine wants the shard to go on under another sync model (or release)."""

    model: Any
    release: Any = None


class Timer(msgspec.Struct, frozen=True):
    """A timer that the node had asked for has run out."""

    key: tuple[object, ...]


Event = Received | Ready | Enter | Fetch | Depart | Lost | Admit | Dismiss | Change | Timer


# Effects: what a node may ask for.


class Send(_Carrier, frozen=True, eq=False, gc=False):
    """Send this message, with the payload beside it."""

    to: NodeId
    message: Message
    payload: Payload | None = None


class SetTimer(msgspec.Struct, frozen=True):
    """Come back with `Timer(key)` after so many seconds."""

    key: tuple[object, ...]
    seconds: float


class How(Enum):
    """What a delivery does to the values that the application holds of a bucket."""

    REPLACE = auto()
    """They become the payload; without one they stay as they are."""
    ADD = auto()
    """The payload is added to them."""
    ZERO = auto()
    """They become zero: the mean of a round in which nobody had a gradient."""


class Deliver(_Carrier, frozen=True, eq=False, gc=False):
    """Change what the application holds of a bucket; `next`: the iteration is whole, go on with that one."""

    bucket: Bucket
    payload: Payload | None = None
    next: int | None = None
    how: How = How.REPLACE


class Reject(msgspec.Struct, frozen=True):
    """This peer broke the protocol, in a message that had to wait: end its connection."""

    peer: NodeId
    reason: str


class Fail(msgspec.Struct, frozen=True):
    """This node cannot go on."""

    error: SynclineError


Effect = Send | SetTimer | Deliver | Reject | Fail


class Node(Protocol):
    """A protocol: a plain state machine without socket, clock, thread or random state."""

    def handle(self, event: Event, now: float) -> list[Effect]:
        """Take one event in, give effects out. `now` is in seconds and never decreases."""
        ...
