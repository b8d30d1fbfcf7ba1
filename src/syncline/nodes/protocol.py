"""What engines and the simulator ask of a node, whichever strategy it belongs to.

A worker's node is a `Trainer`: it takes the updates of an application and says when the next iteration may begin. A
node that holds parameters for others is a `Keeper`. The coordinator's node is a `ViewMaker`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from syncline.effects import Change, Node
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Values
from syncline.messages import Message, NodeId, View
from syncline.nodes.phase import Phase


class Counts(NamedTuple):
    """What a node has counted, each once per worker and iteration unless it says otherwise."""

    updates: int = 0
    """Updates taken."""
    dropped: int = 0
    """Updates that came too late and were dropped."""
    progress: int = 0
    """Iterations that all members have finished, as far as this node knows."""
    pushes_skipped: int = 0
    """Updates that a gate held back, bucket by bucket."""
    fetches_skipped: int = 0
    """Fetches that a gate skipped, bucket by bucket."""


class Trainer(Node, Protocol):
    """The node of one worker."""

    number: int
    incarnation: int
    progress: int
    """The iteration that it is in."""
    phase: Phase
    closed: int
    """How many iterations all members have finished, as far as it knows."""

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """In which pieces the application hands its updates in, in the order in which they are best sent."""
        ...

    earlier: int = 0
    """The iterations of a run that this one goes on with."""

    @property
    def is_waiting(self) -> bool:
        """Is something unanswered that the application will wait for?"""
        return False

    @property
    def holds_back(self) -> bool:
        """Does it hold an update that it has not sent yet?"""
        return False

    @property
    def memories(self) -> dict[Bucket, dict[str, Values]]:
        """What it keeps of each bucket for the next update; what is written there counts."""
        return {}

    def waits_for(self, server: NodeId) -> bool:
        """May an answer come from this server, also if it is no neighbour any more?"""
        return False

    def is_given(self, bucket: Bucket) -> bool:
        """Has the application handed in this bucket of the present iteration?"""
        ...

    def is_answered(self, bucket: Bucket) -> bool:
        """Does the application hold what it asked for by handing in this bucket of the present iteration?"""
        ...

    def place_of(self, source: NodeId, message: Message, size: int) -> Bucket | None:
        """`PeerError`, unless `source` may send this message with so many payload bytes now.

        A bucket: the payload is the application's values of this bucket, and may be received in their place.
        None: it must be kept apart.
        """
        bucket: Bucket | None = getattr(message, "bucket", None)
        written = getattr(message, "size", 0)
        if bucket is None or size != (written or bucket.size * VALUE_BYTES) or written > bucket.size * VALUE_BYTES:
            raise PeerError(f"{type(message).__name__} with a payload of {size:,} bytes")
        return None

    def counts(self) -> Counts:
        return Counts(self.progress, progress=self.progress)


class Keeper(Node, Protocol):
    """A node that holds parameters for workers."""

    number: int

    def params(self) -> Mapping[Bucket, Values]:
        """The parameters that it holds; nobody may write them."""
        ...

    def param(self, bucket: Bucket) -> Values | None:
        """The parameters of this bucket; None: it holds none."""
        ...

    def counts(self) -> Counts: ...

    def remembered(self, bucket: Bucket) -> Mapping[str, Values]:
        """What its rule keeps of this bucket from one update to the next, by name."""
        ...

    def remember(self, bucket: Bucket, name: str, values: Values) -> None:
        """Go on with what a rule kept in an earlier run."""
        ...

    def in_force(self) -> Change:
        """The change that would bring another server to the same sync model."""
        ...


class ViewMaker(Node, Protocol):
    """The coordinator's node: the only one that makes views."""

    @property
    def view(self) -> View: ...

    @property
    def moving(self) -> bool:
        """Is a change of the topology under way that must end before the run may?"""
        ...

    @property
    def servers(self) -> frozenset[int]:
        """The servers that hold the model, or are to hold it once what moves now has moved."""
        ...

    @property
    def movers(self) -> frozenset[int]:
        """The servers that give or take in a change that is under way."""
        ...
