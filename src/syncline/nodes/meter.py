"""Meters: observers of drivers that compute the figures of a run from the events and effects of its nodes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, NamedTuple

from syncline.effects import Deliver, Effect, Event, Finish, Ready
from syncline.messages import NodeId


class Span(NamedTuple):
    """An interval of a worker's time, in seconds, and what it did: "compute" or "wait"."""

    worker: int
    start: float
    stop: float
    what: str


class Meter:
    """Sums the seconds that workers compute and wait; with `spans` it also records every interval."""

    observes: ClassVar[str] = ""
    """The role of the nodes that the meter observes."""

    def __init__(self, spans: bool = False) -> None:
        self.delayed_pulls = 0
        self.waiting_seconds = 0.0
        self.compute_seconds = 0.0
        self.spans: list[Span] | None = [] if spans else None

    def handled(self, me: NodeId, event: Event, effects: Iterable[Effect], now: float) -> None:
        """Called after a node has handled an event."""

    def computed(self, worker: int, start: float, stop: float) -> None:
        self.compute_seconds += stop - start
        if self.spans is not None:
            self.spans.append(Span(worker, start, stop, "compute"))

    def waited(self, worker: int, since: float, now: float) -> None:
        self.waiting_seconds += now - since
        if self.spans is not None and now > since:
            self.spans.append(Span(worker, since, now, "wait"))

    def close(self, now: float) -> None:
        """End the run: count the time until `now` for workers that still wait."""


class StepMeter(Meter):
    """For strategies without servers: a worker waits from its last update of an iteration until the next one begins."""

    observes = "worker"

    def __init__(self, spans: bool = False) -> None:
        super().__init__(spans)
        self._since: dict[int, float] = {}

    def handled(self, me: NodeId, event: Event, effects: Iterable[Effect], now: float) -> None:
        if type(event) is Ready:
            self._since[me.number] = now
        elif type(event) is Finish:
            self._since.pop(me.number, None)  # no step follows, so it does not wait for one
        for effect in effects:
            if type(effect) is Deliver and effect.next is not None and me.number in self._since:
                self.waited(me.number, self._since.pop(me.number), now)

    def close(self, now: float) -> None:
        for worker, since in self._since.items():
            self.waited(worker, since, max(since, now))
        self._since.clear()
