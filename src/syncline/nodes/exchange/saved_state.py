"""What a checkpoint keeps of a worker besides its replica: its clock, and what the replica contains of the others.

A worker can be saved when it is paused between two steps, has sent all that it owes, and has everything that the others
have sent. Then no sum is under way or owed, and clocks say everything. All replicas are equal, up to rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from syncline.errors import RunError
from syncline.messages import Count, WorkerNumber
from syncline.nodes.exchange.messages import Clock, Parts

if TYPE_CHECKING:
    from syncline.nodes.exchange.peer import ExchangeWorker


class SavedClock(msgspec.Struct, frozen=True, array_like=True):
    """A replica contains all updates of this worker up to `clock`, which cuts the model into `parts` ranges."""

    worker: WorkerNumber
    clock: Clock
    parts: Parts
    finished: bool = False
    """The worker has made its last update."""


class SavedPeer(msgspec.Struct, frozen=True):
    """The state of one worker."""

    worker: WorkerNumber
    clock: Count
    parts: Parts
    others: tuple[SavedClock, ...]


def saved(worker: ExchangeWorker) -> SavedPeer:
    """The state of a worker that is paused and settled."""
    if not worker.is_settled:
        raise RunError(f"worker {worker.number} cannot be saved: it must be paused, and all sums must have arrived")
    others = tuple(
        SavedClock(number, max(peer.marks.reached), len(peer.marks.values), peer.finished)
        for number, peer in worker.receiver.peers.items()
    )
    return SavedPeer(worker.number, worker.progress, worker.parts, others)
