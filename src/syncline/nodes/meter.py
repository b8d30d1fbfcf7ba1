"""The meter: what a run is judged by, read off the events and effects of its nodes.

A pull is delayed if its shard does not answer it at once; a worker waits while any of its pulls is parked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from syncline.effects import Effect, Event, Received, Send
from syncline.layout import Bucket
from syncline.messages import ANSWERS, Answer, Params, Pull, Push

_Pull = tuple[int, int, int, Bucket]
"""(server, worker, incarnation, bucket)"""


class Span(NamedTuple):
    """What a worker did from when to when: "compute" or "wait"."""

    worker: int
    start: float
    stop: float
    what: str


@dataclass(slots=True)
class _Waiting:
    """The parked pulls of one worker: how many, and since when there is one."""

    count: int = 0
    since: float = 0.0


class Meter:
    """Delays, waiting, and computing; with `spans`, also who did what when."""

    def __init__(self, spans: bool = False) -> None:
        self.delayed_pulls = 0
        self.waiting_seconds = 0.0
        self.compute_seconds = 0.0
        self.spans: list[Span] | None = [] if spans else None
        self._parked: dict[_Pull, _Waiting] = {}
        self._last_delayed: dict[tuple[int, int], tuple[int, int]] = {}
        self._waiting: dict[tuple[int, int], _Waiting] = {}

    def computed(self, worker: int, start: float, stop: float) -> None:
        self.compute_seconds += stop - start
        if self.spans is not None:
            self.spans.append(Span(worker, start, stop, "compute"))

    def handled(self, server: int, event: Event, effects: Iterable[Effect], now: float) -> None:
        """Note which pulls a shard has parked and released by handling this event."""
        asked: Push | Pull | None = None
        asker, parked = -1, self._parked
        if type(event) is Received:
            kind = type(event.message)
            if kind is Push or kind is Pull:
                asked, asker = event.message, event.source.number  # type: ignore[assignment]
        for effect in effects:
            if type(effect) is Send and (type(effect.message) is Params or type(effect.message) in ANSWERS):
                answer: Answer = effect.message  # type: ignore[assignment]
                worker = effect.to.number
                if worker == asker and asked is not None and answer.bucket == asked.bucket:
                    asked = None
                if parked:
                    waiting = parked.pop((server, worker, answer.incarnation, answer.bucket), None)
                    if waiting is not None:
                        self._release(worker, waiting, now)
        if asked is not None:
            self._park(server, asker, asked, now)

    def close(self, now: float) -> None:
        """The run is over: who still waits has waited until now."""
        for (worker, _), waiting in self._waiting.items():
            if waiting.count and now > waiting.since:
                self._waited(worker, waiting.since, now)
        self._waiting.clear()
        self._parked.clear()

    def _waited(self, worker: int, since: float, now: float) -> None:
        self.waiting_seconds += now - since
        if self.spans is not None and now > since:
            self.spans.append(Span(worker, since, now, "wait"))

    def _park(self, server: int, worker: int, asked: Push | Pull, now: float) -> None:
        incarnation = asked.incarnation
        key = (server, worker, incarnation, asked.bucket)
        if key in self._parked:
            return
        who, iteration = (server, worker), (incarnation, asked.progress)
        if self._last_delayed.get(who) != iteration:
            self._last_delayed[who] = iteration
            self.delayed_pulls += 1
        waiting = self._waiting.get((worker, incarnation))
        if waiting is None:
            waiting = self._waiting[worker, incarnation] = _Waiting()
        if waiting.count == 0:
            waiting.since = now
        waiting.count += 1
        self._parked[key] = waiting

    def _release(self, worker: int, waiting: _Waiting, now: float) -> None:
        waiting.count -= 1
        if waiting.count == 0:
            self._waited(worker, waiting.since, now)
