"""All that crosses a wire: frozen, tagged structs. A payload travels beside its header, never inside it.

Every message carries the number of its sender's view and the incarnation of the worker at either end.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Annotated

import msgspec

from syncline.layout import Bucket

PAYLOAD = 1 << 30
"""The largest payload of a message, in bytes; what may be read is a matter of the bucket."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A number that cannot be negative; small enough that the sum of a few of them still fits into a frame."""


class NodeId(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """Who: a role and a number within it."""

    role: str
    number: int

    def __str__(self) -> str:
        return self.role if self.role == "coordinator" else f"{self.role}{self.number}"


COORDINATOR = NodeId("coordinator", 0)


@lru_cache(maxsize=1 << 16)
def worker_id(number: int) -> NodeId:
    return NodeId("worker", number)


@lru_cache(maxsize=1 << 16)
def server_id(number: int) -> NodeId:
    return NodeId("server", number)


class Wants(IntEnum):
    """What a push asks for: fresh parameters, only the permission to go on, or, from who leaves, not even that."""

    PARAMS = 0
    TAKEN = 1
    NOTHING = 2


class Skipped(IntEnum):
    """What became of an update that a gate did not let pass: there was none, its worker holds it, or it is gone."""

    NOTHING = 0
    HELD = 1
    AGAIN = 2
    """The worker's last update of the bucket is to be applied again in its place."""


class Message(msgspec.Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The base of all headers."""

    view: int


class Push(Message, frozen=True, tag="push", gc=False):
    """Worker to shard: one bucket's update for iteration `progress`, computed on version `read`."""

    incarnation: int
    progress: int
    bucket: Bucket
    read: int
    wants: Wants = Wants.PARAMS
    lr: float | None = None
    empty: bool = False
    size: int = 0
    """The bytes of a payload that a codec has written; 0: it is the values themselves."""
    holds: int = 0
    """Which reply the worker holds, where replies are changes."""
    skipped: Skipped = Skipped.NOTHING
    """Why it is empty."""


class Pull(Message, frozen=True, tag="pull", gc=False):
    """Worker to shard: the parameters as they are once iteration `progress` may be left; counts as no push."""

    incarnation: int
    progress: int
    bucket: Bucket


class Answered(Message, frozen=True, gc=False):
    """What both answers to a push that was judged have in common; `v` is the bucket's V."""

    incarnation: int
    progress: int
    bucket: Bucket
    version: Count
    v: Count
    late: bool = False
    statistics: tuple[float, ...] = ()
    """With a gate: the mean of what the rule reports of the bucket, if it reports something."""


class Params(Answered, frozen=True, tag="params", gc=False):
    """Shard to worker: the push for `progress` is answered, and here are the parameters at `version`."""

    size: int = 0
    """The bytes of a payload that a codec has written; 0: it is the parameters themselves."""
    serial: int = 0
    """The number of this reply, where replies are changes."""


class Taken(Answered, frozen=True, tag="taken", gc=False):
    """Shard to worker: the same, without parameters."""


class Gone(Message, frozen=True, tag="gone", gc=False):
    """Shard or coordinator to worker: this incarnation is no member, and will not be one again.

    If it names a bucket, the push or pull of that bucket is answered by it.
    """

    incarnation: int
    progress: int = -1
    bucket: Bucket = Bucket(0, 0)


class Moved(Message, frozen=True, tag="moved", gc=False):
    """Shard to worker: this bucket is held elsewhere, or in pieces, in view `view`."""

    incarnation: int
    progress: int
    bucket: Bucket


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A live worker; `first` is the first iteration it takes part in, None until that is named."""

    worker: int
    incarnation: int
    first: int | None


Holders = tuple[tuple[Bucket, ...], ...]
"""Which buckets each server holds, by the server's number; one that has left, or was never there, holds none."""


class Mesh(msgspec.Struct, frozen=True, tag="mesh"):
    """There are no servers, and every worker talks to every other worker."""


class Edges(msgspec.Struct, frozen=True, tag="edges"):
    """The pairs of nodes that talk to each other."""

    pairs: tuple[tuple[NodeId, NodeId], ...]


Topology = Holders | Mesh | Edges
"""Who holds what, or who talks to whom."""


class View(Message, frozen=True, tag="view"):
    """Coordinator to all: who lives, and who holds what or talks to whom."""

    members: tuple[Member, ...]
    topology: Topology

    @property
    def holders(self) -> Holders:
        """Which server holds which buckets; nothing, where there are no servers."""
        return self.topology if isinstance(self.topology, tuple) else ()


class JoinRequest(Message, frozen=True, tag="join", gc=False):
    """Worker to coordinator: let me in."""

    incarnation: int


class LeaveNotice(Message, frozen=True, tag="leave", gc=False):
    """Worker to coordinator: all my pushes are answered, and I go."""

    incarnation: int


class Report(Message, frozen=True, tag="report", gc=False):
    """Shard to coordinator, on a view with a joiner: my largest V; I close no later round until you name its first."""

    largest: int


class KeptUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An update that waits for the close of round `i`; if it is not empty, its payload is in the handover's."""

    i: int
    worker: int
    incarnation: int
    read: int
    lr: float | None
    empty: bool


class LastUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A worker's last update, which may be applied again; its payload is in the handover's."""

    worker: int
    incarnation: int
    read: int


class ParkedPull(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that is answered at the close of round `under`; if it is a push, its update was taken already."""

    worker: int
    under: int
    request: Push | Pull


ALIGN = 8
"""Bytes: every array in a payload starts at a multiple of this."""


class Handover(Message, frozen=True, tag="handover"):
    """Server to server: all that is known of a bucket, which is the receiver's in view `view`.

    The payload holds its arrays one after another: parameters, the rule's memory, what the reply's codec keeps for the
    next mean, the kept updates that are not empty, the last updates.
    """

    bucket: Bucket
    version: int
    v: int
    model: str
    """Sync model and release in force."""
    bound: int
    applied: int
    """The last round that was applied at its close."""
    unruly: int
    pushed: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
    """Of each open round: the (worker, incarnation) that have pushed."""
    seen: tuple[tuple[int, int, int, bool], ...]
    """Of each worker's last push: worker, incarnation, progress, whether it was too late."""
    pulled: tuple[tuple[int, int, int], ...]
    """Of each worker's last pull without a push that was answered: worker, incarnation, progress."""
    steps: tuple[tuple[int, tuple[float, ...]], ...]
    """The last steps of each worker, in seconds."""
    parked: tuple[ParkedPull, ...]
    kept: tuple[KeptUpdate, ...]
    memory: tuple[str, ...]
    """What the arrays of the rule's memory are called."""
    arrays: tuple[tuple[str, int], ...]
    """Type and length of each array in the payload."""
    last: tuple[LastUpdate, ...] = ()
    residual: tuple[str, ...] = ()
    """What the arrays are called that the reply's codec keeps."""


class Settled(Message, frozen=True, tag="settled", gc=False):
    """Server to coordinator: I hold all that view `view` gives to me, and have handed over the rest."""


class ReplicaState(Message, frozen=True, tag="state", gc=False):
    """Worker to worker: parameters and optimizer state, for a joiner that starts with iteration `progress`."""

    incarnation: int
    progress: int


Answer = Params | Taken | Gone | Moved
ANSWERS = frozenset({Params, Taken, Gone, Moved})
"""The same as a set of types, for the paths that every message takes."""

MESSAGES: tuple[type[Message], ...] = (
    Push,
    Pull,
    Params,
    Taken,
    Gone,
    Moved,
    View,
    JoinRequest,
    LeaveNotice,
    Report,
    Handover,
    Settled,
    ReplicaState,
)
"""All messages that every process understands; a strategy may have further ones of its own."""
