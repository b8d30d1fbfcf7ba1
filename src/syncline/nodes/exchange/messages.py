"""The messages between the workers of the exchange strategy."""

from __future__ import annotations

from typing import Annotated

import msgspec

from syncline.layout import Bucket
from syncline.messages import Count, Message, WorkerNumber

Clock = Annotated[int, msgspec.Meta(ge=-(1 << 32), lt=1 << 62)]
"""The number of an update, counted from 1; 0 and below: before the first update."""

Parts = Annotated[int, msgspec.Meta(ge=1, le=1 << 16)]
"""Into how many ranges a worker cuts the model."""

Speed = Annotated[float, msgspec.Meta(ge=0, le=1e30)]


class RangeSum(Message, frozen=True, tag="exchange-sum", gc=False):
    """The sum of my updates `first` to `last` of one range; the payload is missing if the range is empty."""

    incarnation: Count
    part: Count
    """The number of the range."""
    bucket: Bucket
    """The range itself."""
    first: Clock
    last: Clock
    size: Count = 0
    """The size of a payload that a codec encoded, in bytes; 0: the payload is the plain values."""

    @property
    def progress(self) -> int:
        return self.last


class NewRanges(Message, frozen=True, tag="exchange-ranges", gc=False):
    """You have all my updates up to `clock`. From now on I cut the model into `parts` ranges."""

    incarnation: Count
    parts: Parts
    clock: Clock


class Farewell(Message, frozen=True, tag="exchange-farewell", gc=False):
    """I make no further updates, and you have all of mine."""

    incarnation: Count
    leaving: bool = False
    """I leave as soon as all have answered: send me nothing more."""
    heard: bool = False
    """The answer: I have heard it. If you leave, I send you nothing more."""


class Holding(Message, frozen=True, tag="exchange-holding", gc=False):
    """To a donor: you have everything that I have forgotten, and I forget nothing until the joiner has its replica."""

    incarnation: Count
    joiner: WorkerNumber
    joiner_incarnation: Count


class PeerMarks(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Up to which update a replica contains each range of a worker's updates."""

    worker: WorkerNumber
    incarnation: Count
    marks: tuple[Clock, ...]
    base: Clock
    """An update up to which it contains every range, whatever the marks say."""
    finished: bool
    left: bool = False
    """The worker leaves, and takes nothing more."""


class Grant(Message, frozen=True, tag="exchange-grant"):
    """Donor to joiner: my replica (the payload), my clock, and what my replica contains of each other worker."""

    incarnation: Count
    joiner_incarnation: Count
    bucket: Bucket
    clock: Count
    parts: Parts
    peers: tuple[PeerMarks, ...]


class Entry(Message, frozen=True, tag="exchange-entry", gc=False):
    """Joiner to all others: I begin after update `clock` with this many ranges, and have these of your updates."""

    incarnation: Count
    clock: Clock
    parts: Parts
    marks: tuple[Clock, ...]
    base: Clock


class SpeedReport(Message, frozen=True, tag="exchange-measured", gc=False):
    """To the leader: how many updates I make, and how many bytes I can send, per second."""

    incarnation: Count
    rate: Speed
    bandwidth: Speed


class Partitioning(Message, frozen=True, tag="exchange-partitioning", gc=False):
    """Leader to all: cut the model into this many ranges."""

    incarnation: Count
    parts: Parts


class CollectRequest(Message, frozen=True, tag="exchange-collect", gc=False):
    """I am about to be saved: send me all that I lack of your updates."""

    incarnation: Count


class CollectReply(Message, frozen=True, tag="exchange-collected", gc=False):
    """You have all my updates up to `clock`, and none of later ones."""

    incarnation: Count
    clock: Clock


MESSAGES = (
    *(RangeSum, NewRanges, Farewell, Holding, Grant, Entry, SpeedReport, Partitioning),
    *(CollectRequest, CollectReply),
)
