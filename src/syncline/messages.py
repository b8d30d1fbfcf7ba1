"""All messages that nodes send each other, as frozen, tagged structs.

A message is a header. Its payload (parameters, an update) is sent after it, never inside it. Every message carries the
number of its sender's view. A message to or from a worker also carries that worker's incarnation.

Every number of a message has a range, which is part of its type: a frame with a number outside of it is not decoded.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Annotated

import msgspec

from syncline.layout import LARGEST, Bucket

PAYLOAD = 1 << 30
"""The largest payload that any message may have, in bytes. The bucket of a message limits its payload further."""


Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 62)]
"""A number that cannot be negative; small enough that the sum of a few of them still fits into a frame."""

Iteration = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 62)]
"""The number of an iteration or round; -1: before the first."""

Number = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 16)]
"""The number of a worker or server; -1: not known yet."""

WorkerNumber = Annotated[int, msgspec.Meta(ge=0, lt=1 << 16)]
"""The number of a worker that has one."""

Rate = Annotated[float, msgspec.Meta(ge=0, le=LARGEST)]
"""A learning rate. NaN is in no range, so it is not decoded either."""

Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e12)]
"""A time span."""


class NodeId(msgspec.Struct, frozen=True, order=True, cache_hash=True, gc=False):
    """The name of a node: its role and its number among the nodes of that role."""

    role: str
    number: Number

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
    """What kind of answer a push asks for."""

    PARAMS = 0
    """Fresh parameters."""
    TAKEN = 1
    """Only the permission to continue, without parameters."""
    NOTHING = 2
    """Only the acknowledgement: the worker is leaving."""


class Skipped(IntEnum):
    """What happened to an update that a gate did not let the worker send."""

    NOTHING = 0
    """The gate skipped no update."""
    HELD = 1
    """The worker holds it back and adds it to a later update."""
    AGAIN = 2
    """The worker discarded it. The server applies the worker's last update of the bucket again instead."""


class Message(msgspec.Struct, frozen=True, tag=True, gc=False, omit_defaults=True):
    """The base class of all messages."""

    view: Count

    @property
    def notice(self) -> str:
        """What the user should know when a server sends this to the coordinator; empty: nothing."""
        return ""


class Push(Message, frozen=True, tag="push", gc=False):
    """Worker to shard: one bucket's update for iteration `progress`, computed on version `read`."""

    incarnation: Count
    progress: Count
    bucket: Bucket
    read: Count
    wants: Wants = Wants.PARAMS
    lr: Rate | None = None
    empty: bool = False
    size: Count = 0
    """The size of a payload that a codec encoded, in bytes; 0: the payload is the plain values."""
    holds: Count = 0
    """The number of the last reply that the worker has, if replies are sent as changes."""
    skipped: Skipped = Skipped.NOTHING
    """Why the push is empty."""


class Pull(Message, frozen=True, tag="pull", gc=False):
    """Worker to shard: send the parameters once a worker may leave iteration `progress`. Does not count as a push."""

    incarnation: Count
    progress: Iteration
    bucket: Bucket


class Answered(Message, frozen=True, gc=False):
    """The common fields of `Params` and `Taken`; `v` is the bucket's V."""

    incarnation: Count
    progress: Iteration
    bucket: Bucket
    version: Count
    v: Count
    late: bool = False
    statistics: tuple[float, ...] = ()
    """With a gate: the mean of the statistic that the rule reports for this bucket; empty if it reports none."""


class LastPush(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The last update of a worker that some values contain; they contain all earlier ones too."""

    worker: WorkerNumber
    incarnation: Count
    progress: Iteration


class Params(Answered, frozen=True, tag="params", gc=False):
    """Shard to worker: the answer to the push for `progress`, with the parameters at `version`."""

    size: Count = 0
    """The size of a payload that a codec encoded, in bytes; 0: the payload is the plain parameters."""
    serial: Count = 0
    """The number of this reply, if replies are sent as changes."""
    seen: tuple[LastPush, ...] = ()
    """Which updates the parameters contain, if servers can be lost: of every member all up to V - 1, except of those
    that are listed."""


class Taken(Answered, frozen=True, tag="taken", gc=False):
    """Shard to worker: the answer to the push for `progress`, without parameters."""


class Gone(Message, frozen=True, tag="gone", gc=False):
    """Shard or coordinator to worker: this incarnation is not a member and can never become one again.

    If the message names a bucket, it is also the answer to the push or pull of that bucket.
    """

    incarnation: Count
    progress: Iteration = -1
    bucket: Bucket = Bucket(0, 0)


class Moved(Message, frozen=True, tag="moved", gc=False):
    """Shard to worker: in view `view`, other servers hold this bucket, or it is cut into pieces."""

    incarnation: Count
    progress: Iteration
    bucket: Bucket


class Member(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A live worker; `first` is the first iteration it takes part in, None until the coordinator has set it."""

    worker: WorkerNumber
    incarnation: Count
    first: Count | None


Holders = tuple[tuple[Bucket, ...], ...]
"""The buckets that each server holds, indexed by server number; a server that left or never existed holds none."""


class Donation(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A joiner, and the member that gives it a replica."""

    joiner: WorkerNumber
    incarnation: Count
    donor: WorkerNumber


class Mesh(msgspec.Struct, frozen=True, tag="mesh"):
    """A topology without servers: every worker talks to every other worker."""

    donations: tuple[Donation, ...] = ()
    """The joiners that do not have their replica yet."""


class TreeMember(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node of a tree: a server that shares its workers' updates with its neighbours."""

    number: WorkerNumber
    incarnation: Count
    origins: tuple[WorkerNumber, ...]
    """The nodes whose workers' updates it holds: its own, and those of nodes that it has replaced."""
    copies: tuple[tuple[WorkerNumber, Count], ...] = ()
    """The nodes that keep a copy of what it holds, each with the view that named it first."""
    since: Count = 0
    """The view in which its workers last changed."""


class TreeLink(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Two neighbours in a tree; `number` names the link. The same two nodes can have another link later."""

    number: Count
    one: WorkerNumber
    other: WorkerNumber


class Attachment(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The node that serves a worker since view `since`."""

    worker: WorkerNumber
    node: WorkerNumber
    since: Count = 0


class StoredOrigin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An origin that may be in the last checkpoint of a node that is lost."""

    origin: WorkerNumber
    node: WorkerNumber
    only: bool
    """No live node can give it: if no checkpoint has it, it begins empty."""


class TreeMap(msgspec.Struct, frozen=True, tag="tree"):
    """A topology of nodes without loops, and which of them serves which worker."""

    nodes: tuple[TreeMember, ...]
    links: tuple[TreeLink, ...]
    workers: tuple[Attachment, ...]
    leaving: tuple[TreeMember, ...] = ()
    """Nodes that are replaced, but have not yet handed over what they hold."""
    orphans: tuple[tuple[WorkerNumber, WorkerNumber], ...] = ()
    """(origin, node): nobody is left who could give this origin to this node; unless it has it, it begins empty."""
    since: Count = 0
    """The view in which nodes or links last changed, or a node last restarted."""
    stored: tuple[StoredOrigin, ...] = ()
    """The origins that are, or may be, in the last checkpoints of nodes that are lost."""

    def node_of(self, worker: int) -> int:
        """The node that serves this worker, or the one to ask if none does, because the worker has left."""
        other = self.nodes[worker % len(self.nodes)].number
        return next((each.node for each in self.workers if each.worker == worker), other)


Topology = Holders | Mesh | TreeMap
"""Which server holds which buckets, or which nodes talk to each other."""


class Loss(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The state of a bucket was lost with its server; since view `view`, `holder` restores it from the workers' copies.

    The bucket of a later view can be a piece of it.
    """

    bucket: Bucket
    view: Count
    holder: WorkerNumber


class Backup(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Server `backup` follows everything that happens to server `server`; view `since` was the first to say so."""

    server: WorkerNumber
    backup: WorkerNumber
    since: Count


class ActingServer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Server `server` died; since view `view`, its backup hands over what it held. `since`: see `Backup`."""

    server: WorkerNumber
    backup: WorkerNumber
    since: Count
    view: Count


class View(Message, frozen=True, tag="view"):
    """Coordinator to all: the live members and the topology."""

    members: tuple[Member, ...]
    topology: Topology
    lost: tuple[Loss, ...] = ()
    """The buckets that are being restored, because their server died."""
    backups: tuple[Backup, ...] = ()
    """Which server is the backup of which, if servers have backups. While a server changes to another backup it has
    two; the first one listed is complete."""
    stand_ins: tuple[ActingServer, ...] = ()
    """The dead servers whose backups hand over what they held."""
    moving_since: Count = 0
    """With backups: the view with which the change of the placement began that is in progress; 0: none is."""

    @property
    def holders(self) -> Holders:
        """Which server holds which buckets; empty if the run has no servers."""
        return self.topology if isinstance(self.topology, tuple) else ()


class JoinRequest(Message, frozen=True, tag="join", gc=False):
    """Worker to coordinator: a request to become a member."""

    incarnation: Count


class LeaveNotice(Message, frozen=True, tag="leave", gc=False):
    """Worker to coordinator: the worker leaves; all its pushes are answered."""

    incarnation: Count


class Report(Message, frozen=True, tag="report", gc=False):
    """Shard to coordinator, after a view with a joiner: the largest V of the shard's buckets.

    The shard closes no round after that one until the coordinator sets the joiner's first iteration.
    """

    largest: Annotated[int, msgspec.Meta(ge=0, lt=1 << 61)]
    leaving: bool = False
    """A worker that reports, in a run without servers: it leaves, and cannot give the joiner a replica."""


class KeptUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An update that is applied when round `i` closes; unless it is empty, the handover's payload contains it."""

    i: Count
    worker: WorkerNumber
    incarnation: Count
    read: Count
    lr: Rate | None
    empty: bool


class LastUpdate(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A worker's last update, which may be applied again; the handover's payload contains it."""

    worker: WorkerNumber
    incarnation: Count
    read: Count


class ReadVersion(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The version that a worker has read; array number `array` of the copies at the end of the handover's payload."""

    worker: WorkerNumber
    incarnation: Count
    version: Count
    array: Count
    v: Count = 0
    seen: tuple[LastPush, ...] = ()
    """V at that time, and which updates the values contain, if servers can be lost."""


class ParkedPull(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A request that is answered when round `under` closes; if it is a push, the old holder already took its update."""

    worker: WorkerNumber
    under: Count
    request: Push | Pull


ALIGN = 8
"""Bytes: every array in a payload starts at a multiple of this."""


class Handover(Message, frozen=True, tag="handover"):
    """Server to server: the complete state of a bucket that the receiver holds from view `view` on.

    The payload contains these arrays one after another: parameters, the rule's memory, the reply codec's residual for
    the next mean, the kept updates that are not empty, the last updates, the copies of what workers have read.
    """

    bucket: Bucket
    version: Count
    v: Count
    model: str
    """The sync model and release in force at the sender, as text."""
    bound: Count
    applied: Iteration
    """The last round whose updates were applied when it closed."""
    unruly: Iteration
    """Up to this iteration a worker may be further ahead than the sync model allows, after a change of model."""
    pushed: tuple[tuple[Count, tuple[tuple[WorkerNumber, Count], ...]], ...]
    """For each open round: the (worker, incarnation) pairs that have pushed."""
    seen: tuple[tuple[WorkerNumber, Count, Iteration, bool], ...]
    """For each worker's last push: worker, incarnation, progress, and whether it was too late."""
    pulled: tuple[tuple[WorkerNumber, Count, Iteration], ...]
    """For each worker's last answered pull without a push: worker, incarnation, progress."""
    steps: tuple[tuple[WorkerNumber, tuple[Seconds, ...]], ...]
    """The durations of each worker's last steps, in seconds."""
    parked: tuple[ParkedPull, ...]
    kept: tuple[KeptUpdate, ...]
    memory: tuple[str, ...]
    """The names of the arrays in the rule's memory."""
    arrays: tuple[tuple[str, Count], ...]
    """Type and length of each array in the payload."""
    last: tuple[LastUpdate, ...] = ()
    residual: tuple[str, ...] = ()
    """The names of the arrays in the reply codec's residual."""
    reads: tuple[ReadVersion, ...] = ()
    """What each worker has read, if the rule needs it."""
    contained: tuple[LastPush, ...] = ()
    """Each worker's last update that the parameters contain, if servers can be lost."""
    unanswered: tuple[LastPush, ...] = ()
    """The same for workers that have no answer to it yet, after the bucket was restored."""


class CopyReport(Message, frozen=True, tag="copy_report", gc=False):
    """Worker to server, about a lost bucket: what it has read last of it, and which of its pushes are answered."""

    incarnation: Count
    bucket: Bucket
    next: Count
    """The first iteration of this bucket whose push is not answered."""
    held: bool
    """Whether the worker has a complete copy."""
    version: Count = 0
    """The version that the worker has read, even if it has no complete copy any more."""
    v: Count = 0
    """The bucket's V at that time."""


class CopyRequest(Message, frozen=True, tag="copy_request", gc=False):
    """Server to worker: send your copy of this lost bucket."""

    incarnation: Count
    bucket: Bucket


class BucketCopy(Message, frozen=True, tag="bucket_copy", gc=False):
    """Worker to server: its copy of a lost bucket, with the answer that brought it; the payload is the plain values."""

    incarnation: Count
    bucket: Bucket
    version: Count
    v: Count
    applied: Iteration = -1
    """The round of which the values are the mean, if servers hold no parameters; -1: none."""
    seen: tuple[LastPush, ...] = ()
    """See `Params`."""


class Settled(Message, frozen=True, tag="settled", gc=False):
    """Server to coordinator: the server holds all buckets that view `view` gives it and has handed over the others."""


class ReplicaState(Message, frozen=True, tag="state", gc=False):
    """Worker to worker: parameters and optimizer state for a joiner whose first iteration is `progress`."""

    incarnation: Count
    progress: Iteration


Answer = Params | Taken | Gone | Moved
ANSWERS = frozenset({Params, Taken, Gone, Moved})
"""The types in `Answer` as a set, for fast checks on every message."""

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
    CopyReport,
    CopyRequest,
    BucketCopy,
    Settled,
    ReplicaState,
)
"""The messages that every process understands; a strategy may define more."""
