"""The meter of the server strategy.

A pull is delayed if its shard does not answer it at once. A worker waits while any of its pulls is parked.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from syncline.effects import Effect, Event, Received, Send
from syncline.layout import Bucket
from syncline.messages import ANSWERS, Answer, Gone, Handover, Message, Moved, NodeId, Params, Pull, Push, Wants
from syncline.nodes.meter import Meter

_Pull = tuple[int, int, Bucket]
"""(worker, incarnation, bucket)"""


@dataclass(slots=True)
class _Waiting:
    """The parked pulls of one worker: how many there are, and since when there is at least one."""

    count: int = 0
    since: float = 0.0


class PullMeter(Meter):
    """Counts delayed pulls and sums the seconds that workers wait for them."""

    observes = "server"

    def __init__(self, spans: bool = False) -> None:
        super().__init__(spans)
        self._parked: dict[_Pull, _Waiting] = {}
        self._last_delayed: dict[tuple[int, int], tuple[int, int]] = {}
        self._waiting: dict[tuple[int, int], _Waiting] = {}
        self._cut = False
        """Whether a bucket has moved, so that a pull may be answered piece by piece."""

    def handled(self, me: NodeId, event: Event, effects: Iterable[Effect], now: float) -> None:
        """Record which pulls the shard parked and answered when it handled this event."""
        asked: Push | Pull | None = None
        asker, parked = -1, self._parked
        if type(event) is Received:
            kind = type(event.message)
            if kind is Push or kind is Pull:
                asked, asker = event.message, event.source.number  # type: ignore[assignment]
        for effect in effects:
            if type(effect) is not Send:
                continue
            answer: Answer = effect.message  # type: ignore[assignment]
            sent: type[Message] = type(answer)
            if sent is Params or sent in ANSWERS:
                worker = effect.to.number
                if worker == asker and asked is not None and (answer.bucket == asked.bucket or sent is Gone):
                    asked = None
                if parked and sent is not Moved:
                    self._release((worker, answer.incarnation, answer.bucket), now)
            elif sent is Handover:
                self._cut = True
        if asked is not None:
            self._park(me.number, asker, asked, now)

    def close(self, now: float) -> None:
        """End the run: count the time until `now` for workers that still wait."""
        for (worker, _), waiting in self._waiting.items():
            if waiting.count and now > waiting.since:
                self.waited(worker, waiting.since, now)
        self._waiting.clear()
        self._parked.clear()

    def _park(self, server: int, worker: int, asked: Push | Pull, now: float) -> None:
        if type(asked) is Push and asked.wants is Wants.NOTHING:
            return  # a worker that leaves does not wait for this answer
        incarnation = asked.incarnation
        key = (worker, incarnation, asked.bucket)
        if key in self._parked or (self._cut and self._parked_whole(key) is not None):
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

    def _release(self, key: _Pull, now: float) -> None:
        waiting = self._parked.pop(key, None)
        if waiting is None and self._cut:
            waiting = self._take_piece(key)
        if waiting is not None:
            waiting.count -= 1
            if waiting.count == 0:
                self.waited(key[0], waiting.since, now)

    def _parked_whole(self, key: _Pull) -> _Pull | None:
        """The parked pull whose bucket contains this one's; None if there is none."""
        worker, incarnation, piece = key
        for other in self._parked:
            whole = other[2]
            if other[:2] == (worker, incarnation) and whole.start <= piece.start < piece.stop <= whole.stop:
                return other
        return None

    def _take_piece(self, key: _Pull) -> _Waiting | None:
        """Remove an answered piece from its parked pull and keep the rest parked."""
        other = self._parked_whole(key)
        if other is None:
            return None
        waiting, whole, piece = self._parked.pop(other), other[2], key[2]
        for rest in (Bucket(whole.start, piece.start), Bucket(piece.stop, whole.stop)):
            if rest.size:
                self._parked[*key[:2], rest] = waiting
                waiting.count += 1
        return waiting
