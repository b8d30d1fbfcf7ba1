"""The interfaces by which engines and the simulator use the nodes of any strategy.

A worker's node is a `Trainer`: it takes the application's updates and says when the next iteration may begin. A node
that holds parameters for workers is a `Keeper`. The coordinator's node is a `ViewMaker`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from syncline.effects import Change, Node
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Values
from syncline.messages import Message, NodeId, View
from syncline.nodes.peer_losses import PeerLoss
from syncline.nodes.phase import Phase
from syncline.nodes.staleness import Histogram

Room = Callable[[int, type[Message], Bucket], Values | None]
"""Where a node of a server can write the payload of its next message of a kind to another server, for a bucket."""


def no_room(server: int, kind: type[Message], bucket: Bucket) -> None:
    """Messages are copied: the node uses memory of its own."""


class Counts(NamedTuple):
    """The counters of a node; each counts once per worker and iteration unless stated otherwise."""

    updates: int = 0
    """Updates that were taken."""
    dropped: int = 0
    """Updates that came too late and were dropped."""
    progress: int = 0
    """Iterations that all members have finished, as far as this node knows."""
    pushes_skipped: int = 0
    """Updates that a gate skipped, counted per bucket."""
    fetches_skipped: int = 0
    """Fetches that a gate skipped, counted per bucket."""
    staleness: Histogram = MappingProxyType({})
    """How many applied updates had each staleness, counted per bucket."""
    partitions: int = 0
    """Into how many ranges this worker cuts the model, if workers send each other parts of it; else 0."""
    restored: int = 0
    """Buckets that were restored from workers' copies, because their server died."""
    restoring: int = 0
    """Buckets that are being restored."""
    lost: int = 0
    """Updates that were answered without parameters and are lost with their server, counted per bucket."""
    taken_over: int = 0
    """Buckets that this server has handed over, or taken over itself, for dead servers whose backup it was."""


class Collected(NamedTuple):
    """All updates of all workers, for a checkpoint, in strategies without servers."""

    clocks: dict[int, int]
    """For each live worker: how many of its updates are contained."""
    waiting: Values | None
    """What has arrived and is not yet part of the application's values, as a flat array; None: nothing."""


class Trainer(Node, Protocol):
    """The node of one worker."""

    number: int
    incarnation: int
    progress: int
    """The worker's current iteration."""
    phase: Phase
    closed: int
    """How many iterations all members have finished, as far as this node knows."""

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """The buckets in which the application hands in its updates, in the best order to send them."""
        ...

    losses: Sequence[PeerLoss] = ()
    """The peers that died, in strategies in which workers send each other updates."""
    earlier: int = 0
    """The number of iterations of an earlier run that this run continues."""

    @property
    def is_waiting(self) -> bool:
        """Whether a request is unanswered that the application will wait for."""
        return False

    @property
    def holds_back(self) -> bool:
        """Whether the worker holds an update that it has not sent yet."""
        return False

    @property
    def memories(self) -> dict[Bucket, dict[str, Values]]:
        """The arrays that the node keeps of each bucket for the next update; the caller may write to them."""
        return {}

    def gate_state(self) -> dict[str, Any]:
        """What the worker's gate knows and holds back, between iterations, as plain values and arrays."""
        return {}

    def restore_gate(self, state: Mapping[str, Any]) -> None:
        """Before the first step: continue with what `gate_state` returned in an earlier run."""
        return

    def waits_for(self, server: NodeId) -> bool:
        """Whether this server may still send an answer, even if it is not a neighbour any more."""
        return False

    def is_given(self, bucket: Bucket) -> bool:
        """Whether the application has handed in this bucket in the current iteration."""
        ...

    def is_answered(self, bucket: Bucket) -> bool:
        """Whether the bucket that the application handed in in the current iteration is answered."""
        ...

    def place_of(self, source: NodeId, message: Message, size: int) -> Bucket | None:
        """Check that `source` may send this message with `size` payload bytes now; raise `PeerError` if it may not.

        Returns a bucket if the payload is the application's new values of that bucket, so that the engine may receive
        it directly into them. Returns None if the engine must receive the payload elsewhere.
        """
        bucket: Bucket | None = getattr(message, "bucket", None)
        written = getattr(message, "size", 0)
        if bucket is None or size != (written or bucket.size * VALUE_BYTES) or written > bucket.size * VALUE_BYTES:
            raise PeerError(f"{type(message).__name__} with a payload of the wrong size: {size:,} bytes")
        return None

    def counts(self) -> Counts:
        return Counts(self.progress, progress=self.progress)


@runtime_checkable
class Collector(Trainer, Protocol):
    """A worker that can be saved although there are no servers: it accepts `Collect`."""

    @property
    def collected(self) -> Collected | None:
        """What the last `Collect` has found; None: not everything has arrived."""
        ...

    def resume(self, clocks: Mapping[int, int]) -> None:
        """Before the first step: go on after so many updates of each worker, which the first values contain.

        If the run has a worker that is not named, all begin to count anew.
        """
        ...

    @property
    def may_start(self) -> bool:
        """Whether the application begins its first step without asking; else it is told when (`Deliver`)."""
        ...


class Keeper(Node, Protocol):
    """A node that holds parameters for workers."""

    number: int

    def params(self) -> Mapping[Bucket, Values]:
        """All parameters that this node holds; read-only."""
        ...

    def param(self, bucket: Bucket) -> Values | None:
        """The parameters of this bucket; None if this node does not hold it."""
        ...

    def counts(self) -> Counts: ...

    def remembered(self, bucket: Bucket) -> Mapping[str, Values]:
        """The arrays in the rule's memory of this bucket, by name."""
        ...

    def remember(self, bucket: Bucket, name: str, values: Values) -> None:
        """Restore an array of the rule's memory from an earlier run."""
        ...

    def in_force(self) -> Change:
        """The event that gives another server the same sync model and release."""
        ...

    @property
    def at_rest(self) -> bool:
        """Whether this node owes other servers nothing, and waits for nothing from them."""
        return True

    @property
    def sums(self) -> int:
        """To how many arrays this node adds the values that it receives."""
        return 1


class ServerWatch(Protocol):
    """Measures the servers of a simulated run."""

    def sent(self, source: NodeId, to: NodeId, size: int) -> None:
        """A server has sent another one a payload of so many bytes."""
        ...

    def before(self, now: float) -> None:
        """A server is about to handle an event."""
        ...

    def after(self, now: float) -> None:
        """A server has handled an event after the end of the run."""
        ...

    def figures(self, ended: float) -> dict[str, Any]:
        """For the report of a run whose last iteration was done at `ended`."""
        ...


class ViewMaker(Node, Protocol):
    """The coordinator's node: the only one that makes views."""

    @property
    def view(self) -> View: ...

    @property
    def lost_origins(self) -> Set[int]:
        """The servers that are lost with the updates of their workers, because nobody had a copy of these."""
        ...

    @property
    def moving(self) -> bool:
        """Whether a change of the topology is in progress; the run may not end before it is complete."""
        ...

    @property
    def servers(self) -> frozenset[int]:
        """The servers that hold the model, or will hold it after all requested moves."""
        ...

    @property
    def movers(self) -> frozenset[int]:
        """The servers that take part in a move that is in progress."""
        ...
