"""The messages between the nodes of the tree strategy."""

from __future__ import annotations

from typing import Literal

import msgspec
import numpy as np

from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Payload
from syncline.messages import Count, Iteration, LastPush, Message, WorkerNumber

Counted = tuple[tuple[WorkerNumber, Count], ...]
"""How many updates of each origin a sum contains."""

RoundKind = Literal["opening", "replica", "round"]


class OriginState(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The updates of one node's workers: how many there are, and the last of each worker. The values lie beside it."""

    origin: WorkerNumber
    count: Count
    last: tuple[LastPush, ...]
    round: Iteration = -1
    """With rounds: the values are the replica after this round."""
    ahead: tuple[tuple[Count, Count], ...] = ()
    """With rounds: (round, pushes) of each later round; the sums of these pushes follow the values."""
    based: bool = True
    """Whether there are values at all; with rounds they can be left out."""


class OriginStates(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A checkpoint of one bucket: what a node holds, by origin."""

    origins: tuple[OriginState, ...]


class SideSum(Message, frozen=True, tag="tree-sum", gc=False):
    """The change of everything on my side of a link. Number 0 is the sum itself, and replaces what you have."""

    link: Count
    mine: Count
    """My incarnation."""
    yours: Count
    """Your incarnation, as my view names it."""
    bucket: Bucket
    number: Count
    counts: Counted
    """How many updates the sum contains after this change."""
    size: Count = 0
    """The size of a payload that a codec encoded, in bytes; 0: the payload is the plain values."""


class SideHeard(Message, frozen=True, tag="tree-heard", gc=False):
    """I have this number of what you send over this link."""

    link: Count
    mine: Count
    yours: Count
    bucket: Bucket
    number: Count


class RoundSum(Message, frozen=True, tag="tree-round", gc=False):
    """With `bsp`, one of three: how far my side of the link is, the replica after a round, or a round of my side."""

    epoch: Count
    """The view in which nodes or links last changed."""
    bucket: Bucket
    number: Count
    kind: RoundKind
    round: Iteration
    pushes: Count = 0
    """How many pushes this round has on my side."""
    own: Iteration = -1
    """In an opening: the last round that I have closed myself."""
    passed: bool = False
    """A worker on my side has pushed a later round: its push of this one is lost with a node."""


class RoundHeard(Message, frozen=True, tag="tree-round-heard", gc=False):
    """I have this number of what you send me in this epoch."""

    epoch: Count
    bucket: Bucket
    number: Count


class TakeOver(Message, frozen=True, tag="tree-take", gc=False):
    """Hold this from now on: the updates of an origin, with the values in float64."""

    bucket: Bucket
    state: OriginState


class TookOver(Message, frozen=True, tag="tree-took", gc=False):
    """My checkpoint holds the updates of this origin."""

    bucket: Bucket
    origin: WorkerNumber


class OriginStored(Message, frozen=True, tag="tree-stored", gc=False):
    """To the coordinator: my checkpoint holds the updates of this origin, in all buckets."""

    incarnation: Count
    origin: WorkerNumber
    empty: bool = False
    """Nobody could give it any more: in some bucket it began empty."""


class CopySum(Message, frozen=True, tag="tree-copy", gc=False):
    """For the node that keeps a copy of what I hold: all of it, or the change of my own updates, in float64."""

    since: Count
    """The view that first named you as the keeper of the copy."""
    mine: Count
    yours: Count
    bucket: Bucket
    number: Count
    whole: bool
    origins: tuple[OriginState, ...]


class CopyHeard(Message, frozen=True, tag="tree-copied", gc=False):
    """I have this number of your copy."""

    since: Count
    mine: Count
    yours: Count
    bucket: Bucket
    number: Count


class CopyAsked(Message, frozen=True, tag="tree-copy-asked", gc=False):
    """I have started again: send me the copy of my updates, which can be newer than my checkpoint."""

    since: Count
    mine: Count
    yours: Count
    bucket: Bucket


class CopyBack(Message, frozen=True, tag="tree-copy-back", gc=False):
    """Your updates, as you have sent them to me; empty: I have none."""

    since: Count
    mine: Count
    yours: Count
    bucket: Bucket
    origins: tuple[OriginState, ...]


class CopyKept(Message, frozen=True, tag="tree-kept", gc=False):
    """To the coordinator: this node has a whole copy of what I hold."""

    incarnation: Count
    keeper: WorkerNumber
    since: Count


class NodeClock(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How far a node is, as it was in view `view`; of two for the same node the newer one counts."""

    node: WorkerNumber
    incarnation: Count
    number: Count
    value: Count
    view: Count


class Clocks(Message, frozen=True, tag="tree-clocks", gc=False):
    """How far the nodes are that I know of."""

    link: Count
    mine: Count
    yours: Count
    number: Count
    entries: tuple[NodeClock, ...]


class ClocksHeard(Message, frozen=True, tag="tree-clocks-heard", gc=False):
    """I have heard these clocks."""

    link: Count
    mine: Count
    yours: Count
    number: Count


MESSAGES = (
    SideSum,
    SideHeard,
    RoundSum,
    RoundHeard,
    TakeOver,
    TookOver,
    OriginStored,
    CopySum,
    CopyHeard,
    CopyAsked,
    CopyBack,
    CopyKept,
    Clocks,
    ClocksHeard,
)


def payload_type(message: Message, size: int) -> str:
    """The type of the values in a payload of `size` bytes; `PeerError` if the message cannot have such a payload."""
    match message:
        case SideSum(bucket=bucket, size=0):
            kind, expected = "<f4", VALUE_BYTES * bucket.size
        case SideSum(bucket=bucket, size=written) if written <= VALUE_BYTES * bucket.size:
            kind, expected = "|u1", written
        case RoundSum(bucket=bucket, kind="round"):
            kind, expected = "<f4", VALUE_BYTES * bucket.size
        case RoundSum(bucket=bucket, kind="replica"):
            kind, expected = "<f8", 2 * VALUE_BYTES * bucket.size
        case TakeOver(bucket=bucket) | CopySum(bucket=bucket) | CopyBack(bucket=bucket):
            kind, expected = "<f8", 2 * VALUE_BYTES * bucket.size * _rows_of(message)
        case _:
            raise PeerError(f"it sent {type(message).__name__} with a payload")
    if size != expected:
        raise PeerError(f"it sent {type(message).__name__} of {bucket} with {size:,} bytes instead of {expected:,}")
    return kind


def origin_values(message: TakeOver | CopySum | CopyBack, payload: Payload | None, size: int) -> Payload:
    """The values that come with origins of `size` values; `PeerError` if their number is wrong.

    An empty payload does not travel.
    """
    values: Payload = np.zeros(0) if payload is None else payload
    expected = size * _rows_of(message)
    if values.size != expected:
        raise PeerError(f"{type(message).__name__} of {message.bucket} with {values.size} values instead of {expected}")
    return values


def _rows_of(message: TakeOver | CopySum | CopyBack) -> int:
    if isinstance(message, TakeOver):
        return _rows(message.state)
    return sum(map(_rows, message.origins))


def _rows(state: OriginState) -> int:
    return state.based + len(state.ahead)
