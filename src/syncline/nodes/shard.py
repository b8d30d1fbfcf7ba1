"""The shard: the buckets of one server, behind one door.

1. A message with a newer view than the shard's waits for that view; an older one is judged by the shard's own.
2. A push or pull from a non-member (unknown, removed, or of another incarnation) is answered `Gone`.
3. One for a bucket that is held elsewhere is answered `Moved`.
4. The rest is the bucket's law (bucket.py). Each bucket synchronises by itself.
5. A new view: those who are gone are removed, then the push conditions are evaluated again at once.
6. A view with a joiner whose first iteration is not named: the shard reports its largest V, and closes no later round
   until a view names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from syncline.effects import Change, Effect, Event, Received, Send
from syncline.errors import PeerError
from syncline.layout import Bucket, Values
from syncline.messages import COORDINATOR, Gone, Moved, Pull, Push, Report, View
from syncline.nodes.bucket import HeldBucket
from syncline.nodes.terms import Terms


class Tally:
    """Updates taken and dropped, each counted once per (worker, iteration); dropped, if it was in any bucket."""

    def __init__(self) -> None:
        self.updates = 0
        self.dropped = 0
        self._counted: dict[int, Push] = {}
        self._dropped: dict[int, Push] = {}

    def take(self, worker: int, push: Push) -> None:
        last = self._counted.get(worker)
        if last is None or last.progress != push.progress or last.incarnation != push.incarnation:
            self._counted[worker] = push
            self.updates += 1

    def drop(self, worker: int, push: Push) -> None:
        if not _of_one_update(self._dropped.get(worker), push):
            self._dropped[worker] = push
            self.dropped += 1
            self.updates -= _of_one_update(self._counted.get(worker), push)
            self._counted[worker] = push


def _of_one_update(last: Push | None, push: Push) -> bool:
    """Are these of the same incarnation and iteration of a worker?"""
    return last is not None and (last.incarnation, last.progress) == (push.incarnation, push.progress)


class Shard:
    """One server's part of the model; a node."""

    def __init__(self, number: int, pieces: Mapping[Bucket, Values], terms: Terms, view: View) -> None:
        """`pieces` are written in place; `terms` is this shard's own."""
        self.number = number
        self.terms = terms
        self.tally = Tally()
        self._deferred: list[Received] = []
        terms.adopt(view)
        self.buckets = {name: HeldBucket(name, params, terms) for name, params in pieces.items()}

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: list[Effect] = []
        if type(event) is Received:
            message = event.message
            if type(message) is Push or type(message) is Pull:
                self._request(event, message, now, out)
            elif type(message) is View:
                self._adopt(message, now, out)
            else:
                raise PeerError(f"server {self.number} got {message} from {event.source}")
        elif type(event) is Change:
            self.terms.change(event.model, event.release)
            for bucket in self.buckets.values():
                bucket.model_changed(now, out)
        else:
            raise PeerError(f"server {self.number} cannot handle {event}")
        return out

    def _request(self, event: Received, message: Push | Pull, now: float, out: list[Effect]) -> None:
        terms, source = self.terms, event.source
        if message.view > terms.view:
            self._deferred.append(event)
            return
        member = terms.members.get(source.number)
        if member is None or member.incarnation != message.incarnation:
            answer = Gone(terms.view, message.incarnation, message.progress, message.bucket)
            out.append(Send(source, answer))
            return
        bucket = self.buckets.get(message.bucket)
        if bucket is None:
            moved = Moved(terms.view, message.incarnation, message.progress, message.bucket)
            out.append(Send(source, moved))
        elif type(message) is not Push:
            bucket.pull(event, message, now, out)  # type: ignore[arg-type]
        else:
            taken = bucket.push(event, message, now, out)  # type: ignore[arg-type]
            if taken:
                self.tally.take(source.number, message)
            elif taken is False:
                self.tally.drop(source.number, message)

    # Views.

    def _adopt(self, view: View, now: float, out: list[Effect]) -> None:
        if view.view <= self.terms.view:
            return
        before = self.terms.members
        self.terms.adopt(view)
        for worker, member in before.items():
            after = self.terms.members.get(worker)
            if after is None or after.incarnation != member.incarnation:
                for bucket in self.buckets.values():
                    bucket.remove(worker, out)
        self._heed_joiners(view, out)
        for bucket in self.buckets.values():
            bucket.members_changed(now, out)
        waiting, self._deferred = self._deferred, []
        for event in waiting:
            self._request(event, event.message, now, out)  # type: ignore[arg-type]

    def _heed_joiners(self, view: View, out: list[Effect]) -> None:
        self.terms.limit = inf
        if any(member.first is None for member in view.members):
            largest = max((bucket.v for bucket in self.buckets.values()), default=0)
            self.terms.limit = largest
            out.append(Send(COORDINATOR, Report(view.view, largest)))
