"""The parked pulls of a bucket.

Each is parked under a round and is answered when that round closes. If the sync model asks again, pulls are parked
under no round.
"""

from __future__ import annotations

from typing import Protocol

from syncline.layout import Payload
from syncline.messages import NodeId, Pull, Push


class ParkedRequest(Protocol):
    """A push or pull as it arrived (`Received`); its payload is in the worker's memory until it is answered."""

    @property
    def source(self) -> NodeId: ...

    @property
    def message(self) -> Push | Pull: ...

    @property
    def payload(self) -> Payload | None: ...


class ParkedPulls:
    """At most one pull per worker: a worker sends no other pull of the bucket before this one is answered."""

    __slots__ = ("_of", "_under")

    def __init__(self) -> None:
        self._of: dict[int, ParkedRequest] = {}
        self._under: dict[int, list[ParkedRequest]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def park(self, parked: ParkedRequest, under: int | None) -> None:
        self._of[parked.source.number] = parked
        if under is None:
            return
        there = self._under.get(under)
        if there is None:
            there = self._under[under] = []
        there.append(parked)

    def holds(self, worker: int, progress: int) -> bool:
        parked = self._of.get(worker)
        return parked is not None and parked.message.progress == progress

    def release(self, closed: int) -> list[ParkedRequest]:
        """Remove and return the pulls that are parked under the closed round, in order of arrival."""
        of, released = self._of, []
        for each in self._under.pop(closed, ()):
            worker = each.source.number
            if of.get(worker) is each:
                del of[worker]
                released.append(each)
        return released

    def withdraw(self, worker: int) -> ParkedRequest | None:
        """Remove and return the pull of this worker."""
        return self._of.pop(worker, None)

    def everything(self) -> list[tuple[int, ParkedRequest]]:
        """(round it is parked under, pull) for each pull; within a round in order of arrival.

        A pull that is parked under no round comes last, with the round of its iteration.
        """
        found = [
            (under, each)
            for under, parked in self._under.items()
            for each in parked
            if self._of.get(each.source.number) is each
        ]
        placed = {each.source.number for _, each in found}
        return found + [(max(each.message.progress, 0), each) for w, each in self._of.items() if w not in placed]

    def waiting(self) -> list[ParkedRequest]:
        """All pulls, in order of arrival."""
        return list(self._of.values())

    def empty(self) -> list[ParkedRequest]:
        """Remove and return all pulls, in worker order."""
        everything = [self._of[worker] for worker in sorted(self._of)]
        self._of.clear()
        self._under.clear()
        return everything
