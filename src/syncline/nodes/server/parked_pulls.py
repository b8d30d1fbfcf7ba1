"""The parking lot of a bucket: pulls that are not answered yet, each under the round whose close releases it."""

from __future__ import annotations

from typing import Protocol

from syncline.layout import Payload
from syncline.messages import NodeId, Pull, Push


class ParkedRequest(Protocol):
    """A push or pull as it came in (`Received`); the payload stays the worker's memory until it is answered."""

    @property
    def source(self) -> NodeId: ...

    @property
    def message(self) -> Push | Pull: ...

    @property
    def payload(self) -> Payload | None: ...


class ParkedPulls:
    """At most one pull per worker: it sends no other before this one is answered."""

    __slots__ = ("_of", "_under")

    def __init__(self) -> None:
        self._of: dict[int, ParkedRequest] = {}
        self._under: dict[int, list[ParkedRequest]] = {}

    def park(self, parked: ParkedRequest, under: int) -> None:
        self._of[parked.source.number] = parked
        there = self._under.get(under)
        if there is None:
            there = self._under[under] = []
        there.append(parked)

    def holds(self, worker: int, progress: int) -> bool:
        parked = self._of.get(worker)
        return parked is not None and parked.message.progress == progress

    def release(self, closed: int) -> list[ParkedRequest]:
        """Take out what is parked under the round that has closed, in order of arrival."""
        of, released = self._of, []
        for each in self._under.pop(closed, ()):
            worker = each.source.number
            if of.get(worker) is each:
                del of[worker]
                released.append(each)
        return released

    def withdraw(self, worker: int) -> ParkedRequest | None:
        """Take out the pull of a worker that is gone."""
        return self._of.pop(worker, None)

    def everything(self) -> list[tuple[int, ParkedRequest]]:
        """(the round it is parked under, the pull) of each, those of a round in order of arrival."""
        return [
            (under, each)
            for under, parked in self._under.items()
            for each in parked
            if self._of.get(each.source.number) is each
        ]

    def empty(self) -> list[ParkedRequest]:
        """Take out everything, in worker order."""
        everything = [self._of[worker] for worker in sorted(self._of)]
        self._of.clear()
        self._under.clear()
        return everything
