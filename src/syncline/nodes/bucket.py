"""One bucket as its shard holds it: the law of push, close and pull.

1. A push is judged in this order (view, member and moved come before, in the shard): repeat, too late, take.
2. Take: keep the update or apply it, note the worker in `pushed[i]`; then, while the push condition holds for V: close
   V, V += 1, answer every pull parked under the round that closed.
3. Then the pull for i: if the pull condition holds, answer; else park it, `lazy` under i, `soft` under V.
4. At the close: a round's kept updates are summed in worker order, divided by their number (empty ones included), and
   the rule is applied once. If all were empty, nothing is applied.
5. On arrival: the rule is applied per push; a change is divided by the number of live workers, a gradient is not.
6. Too late: under a model that applies at the close, an update for i < V is dropped, counted and answered at once.
7. A repeat of a parked push stays parked; of an answered one, it is answered again. Nothing is applied twice.
8. Nothing closes while no member lives, nor later than a joiner's limit.
9. An update is the worker's memory until its push is answered: what is kept beyond that is copied first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from syncline.effects import Effect, Send
from syncline.layout import Bucket, Payload, Values
from syncline.messages import Gone, Member, NodeId, Params, Pull, Push, Taken, Wants
from syncline.nodes.terms import Terms
from syncline.sync import Release

STEPS = 8
"""Over how many of its last steps a worker's pace is measured."""

Who = tuple[int, int]
"""(worker, incarnation)"""


class Seen(msgspec.Struct, frozen=True, gc=False):
    """The last push of a worker that was judged, to know a repeat."""

    incarnation: int
    progress: int
    late: bool


@dataclass(slots=True)
class Kept:
    """An update that waits for the close of its round; `payload` is None if it was empty."""

    payload: Payload | None
    lr: float | None
    read: int
    owned: bool = False


class Parked(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A push or pull that is not answered yet."""

    source: NodeId
    message: Push | Pull
    payload: Payload | None


class HeldBucket:
    """Parameters, version, V, who pushed what, and the parking lot. To its sync model it is the `State`."""

    __slots__ = (
        "_answered_at",
        "_judged",
        "_kept",
        "_lot",
        "_missing",
        "_pushed",
        "_round_applied",
        "_scratch",
        "_seen",
        "_steps",
        "_terms",
        "_waiting",
        "bound",
        "memory",
        "name",
        "params",
        "v",
        "version",
    )

    def __init__(self, name: Bucket, params: Values, terms: Terms) -> None:
        self.name = name
        self.params = params
        self.memory = terms.rule.start(params)
        self.version = 0
        self.v = 0
        self.bound = 0
        self._terms = terms
        self._pushed: dict[int, set[Who]] = {}
        self._kept: dict[int, dict[Who, Kept]] = {}
        self._seen: dict[int, Seen] = {}
        self._lot: dict[int, list[Parked]] = {}
        self._waiting: dict[int, Parked] = {}
        self._missing = 0
        self._round_applied = -1
        self._judged: Parked | None = None
        self._scratch = np.empty_like(params)
        self._answered_at: dict[int, float] = {}
        self._steps: dict[int, deque[float]] = {}
        self._set_first_bound()
        self._count_missing()

    # What the sync model sees.

    @property
    def missing(self) -> int:
        return self._missing

    @property
    def members(self) -> Mapping[int, Member]:
        return self._terms.members

    @property
    def fastest(self) -> int:
        return max(self._last_pushed(), default=-1)

    @property
    def slowest(self) -> int:
        return min(self._last_pushed(), default=-1)

    @property
    def significance(self) -> float:
        payload = self._judged.payload if self._judged else None
        if payload is None:
            return 0.0
        update = self._terms.codec.decode(payload, self._scratch)
        size = float(np.linalg.norm(self.params))
        return float(np.linalg.norm(update)) / size if size else 1.0

    def pushed(self, i: int) -> Collection[Who]:
        return self._pushed.get(i, ())

    def step_seconds(self) -> Collection[float]:
        return [sum(steps) / len(steps) for worker, steps in self._steps.items() if worker in self._terms.members]

    def _last_pushed(self) -> Iterable[int]:
        for worker, member in self._terms.members.items():
            seen = self._seen.get(worker)
            known = seen is not None and seen.incarnation == member.incarnation
            yield seen.progress if seen and known else (member.first or 0) - 1

    # Push and pull.

    def push(self, source: NodeId, push: Push, payload: Payload | None, now: float, out: list[Effect]) -> bool | None:
        """Judge a member's push; True: taken, False: too late, None: a repeat."""
        worker, i = source.number, push.progress
        arrived = Parked(source, push, payload)
        seen = self._seen.get(worker)
        if seen is not None and seen.incarnation == push.incarnation and i <= seen.progress:
            if not self._is_parked(worker, i):
                self._answer(arrived, now, out, late=seen.late and i == seen.progress)
            return None
        model = self._terms.model
        late = model.at_close and i < self.v
        self._seen[worker] = Seen(push.incarnation, i, late)
        if late:
            self._answer(arrived, now, out, late=True)
            return False
        self._measure(worker, now)
        self._take(worker, push, payload)
        self.advance(now, out)
        self._pull(arrived, now, out)
        return True

    def pull(self, source: NodeId, pull: Pull, now: float, out: list[Effect]) -> None:
        """Judge a member's pull without a push: a joiner's first, or anybody's last."""
        if not self._is_parked(source.number, pull.progress):
            self._pull(Parked(source, pull, None), now, out)

    def _is_parked(self, worker: int, i: int) -> bool:
        waiting = self._waiting.get(worker)
        return waiting is not None and waiting.message.progress == i

    def _take(self, worker: int, push: Push, payload: Payload | None) -> None:
        who, i = (worker, push.incarnation), push.progress
        update = None if push.empty else payload
        if self._terms.model.at_close:
            self._kept.setdefault(i, {})[who] = Kept(update, push.lr, push.read)
        elif update is not None:
            share = 1 if self._terms.rule.of_gradients else len(self._terms.members)
            self._apply([update], share, self.version - push.read, push.lr)
            self._round_applied = i
        if i >= self.v:
            self._pushed.setdefault(i, set()).add(who)
            if i == self.v and (self._terms.members[worker].first or 0) <= i:
                self._missing -= 1

    def _pull(self, arrived: Parked, now: float, out: list[Effect]) -> None:
        if self._may_answer(arrived):
            self._answer(arrived, now, out)
        elif self._terms.release is Release.SOFT and isinstance(arrived.message, Push):
            self._park(arrived, self.v)
        else:
            self._park(arrived, self._release_round(arrived))

    def _may_answer(self, arrived: Parked) -> bool:
        self._judged = arrived
        terms = self._terms
        may = terms.model.may_answer(self, arrived.source.number, arrived.message.progress, terms.draw)
        self._judged = None
        return may

    def _park(self, arrived: Parked, under: int) -> None:
        self._lot.setdefault(under, []).append(arrived)
        self._waiting[arrived.source.number] = arrived

    def _answer(self, parked: Parked, now: float, out: list[Effect], late: bool = False) -> None:
        message, source = parked.message, parked.source
        self._own(source.number, message)
        fetch = isinstance(message, Pull) or message.wants is Wants.PARAMS
        if not self._terms.rule.keeps:
            fetch = fetch and self._round_applied == message.progress
        kind = Params if fetch else Taken
        view, version = self._terms.view, self.version
        header = kind(view, message.incarnation, message.progress, self.name, version, self.v, late)
        out.append(Send(source, header, self.params if fetch else None))
        if self._terms.adaptive:
            self._answered_at[source.number] = now

    def _own(self, worker: int, message: Push | Pull) -> None:
        """Copy a kept update whose push is about to be answered: from then on the memory is the worker's again."""
        kept = self._kept.get(message.progress, {}).get((worker, message.incarnation))
        if kept is not None and kept.payload is not None and not kept.owned:
            kept.payload, kept.owned = kept.payload.copy(), True

    # Rounds.

    def advance(self, now: float, out: list[Effect]) -> None:
        """Close rounds while the push condition holds, and answer what was parked under them."""
        terms = self._terms
        while (
            self.v <= terms.limit
            and terms.members
            and (self._missing == 0 or self._pushed.get(self.v))
            and terms.model.may_close(self)
        ):
            closed = self.v
            self._apply_round(closed)
            self._pushed.pop(closed, None)
            self.v = closed + 1
            self._count_missing()
            if terms.adaptive:
                self.bound = terms.adaptive.next_bound(self)
            for parked in self._lot.pop(closed, ()):
                if self._waiting.get(parked.source.number) is parked:
                    del self._waiting[parked.source.number]
                    self._answer(parked, now, out)

    def _apply_round(self, i: int) -> None:
        """Apply what is kept of round i as one update."""
        kept = self._kept.pop(i, None)
        if not kept:
            return
        order = [kept[who] for who in sorted(kept)]
        updates = [each.payload for each in order if each.payload is not None]
        if updates:
            lr = next((each.lr for each in order if each.lr is not None), None)
            oldest = min(each.read for each in order if each.payload is not None)
            self._apply(updates, len(order), self.version - oldest, lr)
            self._round_applied = i

    def _apply(self, updates: list[Payload], share: int, staleness: int, lr: float | None) -> None:
        codec, scratch = self._terms.codec, self._scratch
        update = codec.decode(updates[0], scratch)
        if len(updates) > 1:
            np.copyto(scratch, update)
            for payload in updates[1:]:
                codec.add_into(payload, scratch)
            update = scratch
        if share > 1:
            update = np.divide(update, share, out=scratch)
        self._terms.rule.apply(self.params, update, self.memory, staleness, lr)
        self.version += 1

    def _count_missing(self) -> None:
        there = self._pushed.get(self.v, ())
        self._missing = sum(
            (member.first or 0) <= self.v and (worker, member.incarnation) not in there
            for worker, member in self._terms.members.items()
        )

    # Changes of the membership and of the model.

    def remove(self, worker: int, out: list[Effect]) -> None:
        """A member is gone: own what is kept of it, answer what is parked."""
        for kept in (kept for each in self._kept.values() for who, kept in each.items() if who[0] == worker):
            if kept.payload is not None and not kept.owned:
                kept.payload, kept.owned = kept.payload.copy(), True
        parked = self._waiting.pop(worker, None)
        if parked is not None:
            message = parked.message
            gone = Gone(self._terms.view, message.incarnation, message.progress, self.name)
            out.append(Send(parked.source, gone))
        self._answered_at.pop(worker, None)
        self._steps.pop(worker, None)

    def members_changed(self, now: float, out: list[Effect]) -> None:
        """Count anew who is missing; nobody waits for the dead."""
        self._count_missing()
        self.advance(now, out)

    def model_changed(self, now: float, out: list[Effect]) -> None:
        """Settle what the old model kept, then close, then judge each parked pull once by the new model."""
        if not self._terms.model.at_close:
            for i in sorted(self._kept):
                self._apply_round(i)
        self._set_first_bound()
        self.advance(now, out)
        waiting = sorted(self._waiting.values(), key=lambda parked: parked.source.number)
        self._lot.clear()
        self._waiting.clear()
        for parked in waiting:
            if self._may_answer(parked):
                self._answer(parked, now, out)
            else:
                self._park(parked, self._release_round(parked))

    def _release_round(self, parked: Parked) -> int:
        """Under which round a pull is parked that came by no push, or that outlives a change of model.

        `lazy`: its own. `soft`: the first whose close satisfies its condition.
        """
        last = max(parked.message.progress, self.v)
        if self._terms.release is Release.LAZY:
            return last
        here = self.v
        try:
            for under in range(here, last):
                self.v = under + 1
                if self._may_answer(parked):
                    return under
            return last
        finally:
            self.v = here

    # Pace, for models that adapt their bound.

    def _set_first_bound(self) -> None:
        adaptive = self._terms.adaptive
        if adaptive:
            self.bound = adaptive.first_bound()

    def _measure(self, worker: int, now: float) -> None:
        answered = self._answered_at.pop(worker, None)
        if answered is not None:
            self._steps.setdefault(worker, deque(maxlen=STEPS)).append(now - answered)
