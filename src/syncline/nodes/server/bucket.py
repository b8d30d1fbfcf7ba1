"""One bucket as its shard holds it: the rules of push, close and pull. `i` is the iteration of a push or pull.

1. The bucket checks a push in this order: is it a repeat, is it too late, else take it. (The shard checks the view, the
   member and the holder of the bucket before that.)
2. Take: keep the update or apply it, and add the worker to `pushed[i]`. Then, while the push condition holds for V:
   close round V, increment V, and answer every pull that is parked under the closed round.
3. Then the pull for i: if the pull condition holds, answer it. Otherwise park it: under i with `lazy`, under V with
   `soft`.
4. A model that applies updates at the close: the bucket sums the kept updates of the round in worker order, divides the
   sum by their number (empty updates included) and applies the rule once. If all are empty, it applies nothing.
5. A model that applies updates on arrival: the bucket applies the rule once per push. It divides a change by the number
   of live workers; it does not divide a gradient.
6. Too late: under a model that applies at the close, the bucket drops an update for i < V, counts it, and answers at
   once.
7. A repeat of a parked push stays parked. A repeat of an answered push is answered again. No update is applied twice.
8. No round closes while there is no live member. No round after a joiner's limit closes.
9. An update is in the worker's memory until its push is answered. The bucket copies an update that it keeps longer.
   If the gate reapplies last updates, the bucket keeps each worker's last update. Where that worker skips an update, on
   arrival or at the close, the last one is applied instead, with the staleness that it has by then. A worker that has
   just joined or restarted has no last update; then nothing is applied.
10. An answer refers to the parameters without a copy. If they change again in the same `handle`, the bucket first
    replaces them in the answer by a copy. If the rule needs what each worker has read, an answer carries the copy that
    the bucket keeps (read_copies.py).
11. If the model asks again, a parked pull is under no round. After every push and every change of the members, and if
    the model says so after a time, the bucket asks the model about every parked pull, in order of arrival.
12. After a change of model, or if the bucket was lost and restored (recovery.py), a worker may be further ahead than
    the model allows. `soft` then parks its next pull under the first round whose close satisfies the pull condition.
13. If servers can be lost, an answer with parameters says which updates they contain. A restored bucket does not apply
    a push that its copy contains; the pull of this push is judged by rule 3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter

import numpy as np

from syncline.effects import Effect, Reject, Send, SetTimer
from syncline.layout import Bucket, Payload, Values
from syncline.messages import (
    BucketCopy,
    Gone,
    LastPush,
    Member,
    Params,
    Pull,
    Push,
    Skipped,
    Taken,
    Wants,
    worker_id,
)
from syncline.nodes.server.bucket_state import BucketState
from syncline.nodes.server.kept_updates import KeptUpdates, LastUpdates, WaitingUpdate, Who
from syncline.nodes.server.paces import Paces
from syncline.nodes.server.parked_pulls import ParkedPulls, ParkedRequest
from syncline.nodes.server.read_copies import ReadCopies
from syncline.nodes.server.reply_codec import teller
from syncline.nodes.server.rule_application import RuleApplication
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.update_writer import bucket_codec, encoded_bytes
from syncline.rules import Need
from syncline.sync import Release

_payload, _read, _worker = attrgetter("payload"), attrgetter("read"), attrgetter("worker")
_LAZY, _SOFT, _PARAMS = Release.LAZY, Release.SOFT, Wants.PARAMS  # enum members are slow to look up on every message


class HeldBucket:
    """Parameters, version, V, the pushes of each round and the parked pulls. Sync models see it as their `State`."""

    # Python shares the keys of instance dictionaries up to 30 attributes only; beyond that, slots are a fifth faster.
    __slots__ = (
        "_asks_at",
        "_contained",
        "_judged",
        "_kept",
        "_last",
        "_late",
        "_lends",
        "_lent_to",
        "_paces",
        "_parked",
        "_pulled",
        "_pushed",
        "_round_applied",
        "_seen",
        "_seen_at",
        "_seen_now",
        "_since",
        "_terms",
        "_unanswered",
        "_unruly",
        "bound",
        "codec",
        "memory",
        "missing",
        "name",
        "optimised",
        "params",
        "reads",
        "teller",
        "v",
        "version",
        "waited",
    )

    def __init__(self, name: Bucket, params: Values, terms: ShardTerms) -> None:
        self.name = name
        self.codec = terms.codec if terms.plain else bucket_codec(terms.codec, terms.layout, name)
        self.optimised = RuleApplication(params, self.codec, terms)
        self.params = params
        self.memory = self.optimised.memory
        self.version = terms.start
        self.v = terms.start
        self.bound = 0
        self.missing = 0
        self._terms = terms
        self._pushed: dict[int, set[Who]] = {}
        self._seen: dict[int, Push] = {}
        """The last push of each worker, to recognise a repeat."""
        self._late: dict[int, Push] = {}
        """The last push of each worker that was too late."""
        self._pulled: dict[int, tuple[int, int]] = {}
        """(incarnation, progress) of each worker's last answered pull without a push."""
        self._contained: dict[int, tuple[int, int]] = {}
        """(incarnation, progress) of each worker's last update that the parameters contain, if servers can be lost."""
        self._unanswered: dict[int, tuple[int, int]] = {}
        """The same for workers that have no answer to it yet, after the bucket was restored."""
        self._seen_at: tuple[int, int] | None = None
        self._seen_now: tuple[LastPush, ...] = ()
        """What answers say at this (version, V) about the updates that the parameters contain."""
        self._kept = KeptUpdates()
        self._last = LastUpdates()
        self._parked = ParkedPulls()
        self._paces = Paces()
        self._round_applied = terms.start - 1
        self._unruly = terms.start - 1
        """Up to this iteration a worker may be further ahead than the model allows, because an earlier model let it."""
        self._judged: ParkedRequest | None = None
        self.waited = 0.0
        """How many seconds the pull that the model is asked about has waited, if the model asks again."""
        self._since: dict[int, tuple[int, float]] = {}
        """(progress, time) of each worker's last parked pull, if the model asks again."""
        self._asks_at = 0
        """The number of the timer that is set to ask again; 0: none."""
        self._lent_to: list[Effect] | None = None
        """The effect list of the `handle` in which an answer last referred to the parameters."""
        self.teller = teller(terms.reply, terms.layout, name, terms.draw, terms.keeps)
        self.reads: ReadCopies | None = ReadCopies() if terms.copies else None
        if self.reads is not None:
            self.reads.begin(terms.present, terms.start, params)
        self._lends = self.teller is None and self.reads is None
        """Whether answers refer to the parameters without a copy."""
        self._set_first_bound()
        self._count_missing()

    # What the sync model sees, in addition to v, bound and missing.

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
        size = float(np.linalg.norm(self.params))
        if not size:
            return 1.0
        payload = self._judged.payload if self._judged else None
        if payload is None:
            return 0.0
        return float(np.linalg.norm(self.optimised.decoded(payload))) / size

    def pushed(self, i: int) -> Collection[Who]:
        return self._pushed.get(i, ())

    def step_seconds(self) -> Collection[float]:
        return self._paces.means(self._terms.members)

    def _last_pushed(self) -> Iterator[int]:
        return map(self.last_pushed, self._terms.members)

    def last_pushed(self, worker: int) -> int:
        member, seen = self._terms.members[worker], self._seen.get(worker)
        known = seen is not None and seen.incarnation == member.incarnation
        return seen.progress if seen and known else (member.first or 0) - 1

    # Push and pull.

    def push(self, arrived: ParkedRequest, push: Push, now: float, out: list[Effect]) -> bool | None:
        """Handle a member's push; returns True if it was taken, False if it was too late, None if it is a repeat."""
        worker, i = arrived.source.number, push.progress
        seen = self._seen.get(worker)
        if seen is not None and seen.incarnation == push.incarnation and i <= seen.progress:
            if not self._parked.holds(worker, i):
                late = i == seen.progress and self._late.get(worker) is seen
                self._answer(arrived, now, out, late, again=True)
            return None
        self._seen[worker] = push
        terms = self._terms
        if self._unanswered and self._is_contained(worker, push):
            self._pull(arrived, now, out)
            return None
        if terms.at_close and i < self.v:
            self._late[worker] = push
            self._answer(arrived, now, out, late=True)
            if terms.again:
                self.ask_again(now, out)
            return False
        if terms.adaptive:
            self._paces.pushed(worker, now)
        self._take(worker, push, arrived.payload, out)
        self.advance(now, out)
        if terms.again:
            self.ask_again(now, out)
        self._pull(arrived, now, out)
        return True

    def pull(self, arrived: ParkedRequest, pull: Pull, now: float, out: list[Effect]) -> None:
        """Handle a member's pull without a push: a joiner's first pull, or the final one of any worker."""
        source = arrived.source
        seen = self._seen.get(source.number)
        long_ago = seen is not None and seen.incarnation == pull.incarnation and pull.progress < seen.progress
        if long_ago or self._pulled.get(source.number) == (pull.incarnation, pull.progress):
            self._answer(arrived, now, out, again=True)
        elif not self._parked.holds(source.number, pull.progress):
            self._pull(arrived, now, out)

    def _take(self, worker: int, push: Push, payload: Payload | None, out: list[Effect]) -> None:
        who, i, read, terms = (worker, push.incarnation), push.progress, push.read, self._terms
        if push.empty:
            payload = None
        if terms.reapplies:
            payload, read = self._update_or_last(who, push, payload)
        if terms.at_close:
            self._kept.keep(i, who, WaitingUpdate(worker, payload, push.lr, read, terms.reapplies))
        elif payload is None:
            if terms.recovers:
                self._contains(who, i)
        else:
            stale, counted = self.version - read, terms.staleness
            counted[stale] = counted.get(stale, 0) + 1
            if terms.recovers:
                self._contains(who, i)
            if terms.simple and self._lent_to is not out:  # what `_apply` does nearly always
                self.optimised.apply([payload], terms.share, stale, push.lr)
                self.version += 1
            else:
                self._apply([payload], terms.share, stale, push.lr, out, None, who, read)
        if i >= self.v:
            there = self._pushed.get(i)
            if there is None:
                there = self._pushed[i] = set()
            there.add(who)
            if i == self.v and (terms.members[worker].first or 0) <= i:
                self.missing -= 1

    def _is_contained(self, worker: int, push: Push) -> bool:
        """Whether the copy from which the bucket was restored contains this push, which its worker has sent again."""
        incarnation, last = self._unanswered.get(worker, (-1, -1))
        if push.incarnation != incarnation or push.progress >= last:
            self._unanswered.pop(worker, None)
        return push.incarnation == incarnation and push.progress <= last

    def _contains(self, who: Who, i: int) -> None:
        """The parameters contain this worker's update for i from now on."""
        self._contained[who[0]] = (who[1], i)
        self._seen_at = None

    def _last_updates(self) -> tuple[LastPush, ...]:
        """Which updates the parameters contain: the members of which the last one is not that of round V - 1."""
        if self._seen_at != (self.version, self.v):
            last, found = self.v - 1, []
            for worker, member in self._terms.members.items():
                incarnation, i = self._contained.get(worker, (-1, -1))
                if incarnation != member.incarnation:
                    i = (member.first or 0) - 1
                if i != last:
                    found.append(LastPush(worker, member.incarnation, i))
            self._seen_at, self._seen_now = (self.version, self.v), tuple(found)
        return self._seen_now

    def _update_or_last(self, who: Who, push: Push, payload: Payload | None) -> tuple[Payload | None, int]:
        """A copy of this update, or the last one if it is to be reapplied; and the version it was computed from."""
        if payload is not None:
            return self._last.keep(who, payload, push.read, anew=self._terms.at_close), push.read
        last = self._last.of(who) if push.skipped is Skipped.AGAIN else None
        return (None, push.read) if last is None else (last.payload, last.read)

    def _pull(self, arrived: ParkedRequest, now: float, out: list[Effect]) -> None:
        terms, self._judged = self._terms, arrived
        message = arrived.message
        if terms.model.may_answer(self, arrived.source.number, message.progress, terms.draw):
            self._answer(arrived, now, out)
        elif terms.again:
            self._wait(arrived, now, out)
        elif terms.release is _SOFT and type(message) is Push and message.progress > self._unruly:
            self._parked.park(arrived, self.v)
        else:
            self._parked.park(arrived, self._release_round(arrived))

    def _may_answer(self, arrived: ParkedRequest) -> bool:
        terms, self._judged = self._terms, arrived
        return terms.model.may_answer(self, arrived.source.number, arrived.message.progress, terms.draw)

    # Asking again.

    def ask_again(self, now: float, out: list[Effect]) -> None:
        """Ask the model again about every parked pull, and answer those that it allows now."""
        for parked in self._parked.waiting():
            worker = parked.source.number
            self.waited = now - self._parked_since(parked, now)
            if self._may_answer(parked):
                self._parked.withdraw(worker)
                self._answer(parked, now, out)
        self.waited = 0.0
        self._set_timer(out)

    def timer(self, number: int, now: float, out: list[Effect]) -> None:
        """A timer has expired. Only the last one that was set counts."""
        if number == self._asks_at:
            self._asks_at = 0
            self.ask_again(now, out)

    def _wait(self, arrived: ParkedRequest, now: float, out: list[Effect]) -> None:
        """Park a pull about which the model is asked again."""
        self._parked.park(arrived, None)
        self._parked_since(arrived, now)
        self._set_timer(out)

    def _parked_since(self, parked: ParkedRequest, now: float) -> float:
        """When this pull was parked here: now, unless it is known."""
        worker, i = parked.source.number, parked.message.progress
        since = self._since.get(worker)
        if since is None or since[0] != i:
            since = self._since[worker] = (i, now)
        return since[1]

    def _set_timer(self, out: list[Effect]) -> None:
        seconds = self._terms.again
        if isinstance(seconds, float) and self._parked and not self._asks_at:
            self._terms.timers = self._asks_at = self._terms.timers + 1
            out.append(SetTimer(("ask", self.name, self._asks_at), seconds))

    def _answer(
        self, parked: ParkedRequest, now: float, out: list[Effect], late: bool = False, again: bool = False
    ) -> None:
        """Answer a push or pull; `again`: it was answered before."""
        message, source, terms = parked.message, parked.source, self._terms
        i, incarnation, fetch = message.progress, message.incarnation, True
        if self._kept.by_round:
            self._kept.own(i, (source.number, incarnation))
        if type(message) is Push:
            fetch = message.wants is _PARAMS
        else:
            self._pulled[source.number] = (incarnation, i)
        mean = (self.optimised.mean,) if terms.reports else ()
        if fetch and (terms.keeps or self._round_applied == i):
            if not self._lends:
                self._tell(parked, late, mean, again, out)
            else:
                seen = self._last_updates() if terms.recovers else ()
                params = Params(terms.view, incarnation, i, self.name, self.version, self.v, late, mean, 0, 0, seen)
                self._lent_to = out
                out.append(Send(source, params, self.params))
        else:
            taken = Taken(terms.view, incarnation, i, self.name, self.version, self.v, late, mean)
            out.append(Send(source, taken))
        if terms.adaptive:
            self._paces.answered(source.number, now)

    def _tell(self, parked: ParkedRequest, late: bool, mean: tuple[float, ...], again: bool, out: list[Effect]) -> None:
        """Answer with the change since the last reply that the worker has, or with a copy of the parameters."""
        message, to, reads = parked.message, parked.source, self.reads
        who, params, version, serial = (to.number, message.incarnation), self.params, self.version, 0
        v, seen = self.v, self._last_updates() if self._terms.recovers else ()
        sent = reads.of(who) if again and reads is not None else None
        if sent is not None:
            params, version = sent.values, sent.version
            if self._terms.recovers:
                v, seen = sent.v, sent.seen
        if self.teller is not None:
            holds = message.holds if type(message) is Push else None
            payload, serial = self.teller.tell(*who, holds, params, version)
            if reads is not None:
                reads.keep(who, version, self.teller.values_of(to.number), v, seen)
        elif sent is None and reads is not None:
            payload = reads.copy(who, version, params, v, seen)
        else:
            payload = params
        head, where = (self._terms.view, message.incarnation, message.progress), (self.name, version, v)
        out.append(Send(to, Params(*head, *where, late, mean, encoded_bytes(payload), serial, seen), payload))

    # Rounds.

    def advance(self, now: float, out: list[Effect]) -> None:
        """Close rounds while the push condition holds, and answer the pulls that are parked under them."""
        terms = self._terms
        while (
            (self.missing == 0 or self.v in self._pushed)
            and terms.members
            and terms.model.may_close(self)
            and self.v <= terms.limit
        ):
            closed = self.v
            self._apply_round(closed, out, len(self._pushed.get(closed, ())))
            self._pushed.pop(closed, None)
            self.v = closed + 1
            self._count_missing()
            if terms.adaptive:
                self.bound = terms.adaptive.next_bound(self)
            for parked in self._parked.release(closed):
                self._answer(parked, now, out)

    def _apply_round(self, i: int, out: list[Effect], least: int) -> None:
        """Apply the kept updates of round i as one update. Their sum is divided by their number, or by `least`.

        Since a change of the sync model, some updates of a round may have been applied on arrival, each divided by the
        number of live workers, and the others are kept.
        """
        if self._terms.recovers:
            for who in self._kept.by_round.get(i, ()):
                self._contains(who, i)
        kept = self._kept.take(i)
        full = [each for each in kept if each.payload is not None]
        if full:
            lr = next((each.lr for each in kept if each.lr is not None), None)
            reads, counted = set(map(_read, full)), self._terms.staleness
            for read in reads:  # nearly always one
                stale = self.version - read
                count = len(full) if len(reads) == 1 else sum(each.read == read for each in full)
                counted[stale] = counted.get(stale, 0) + count
            updates, share = list(map(_payload, full)), np.array(max(len(kept), least), np.float32)
            workers = None if self._terms.simple else list(map(_worker, full))
            self._apply(updates, share, self.version - min(reads), lr, out, workers)
            self._round_applied = i

    def _apply(
        self,
        updates: list[Payload],
        share: Values,
        staleness: int,
        lr: float | None,
        out: list[Effect],
        workers: list[int] | None,
        who: Who | None = None,
        read: int = 0,
    ) -> None:
        """Apply these updates of these workers as one; reject a worker whose update contains NaN or infinity.

        `who`: whose update it is, if it is one update and `workers` is None; `read`: the version that it is based on.
        """
        terms = self._terms
        if self._lent_to is out:
            self._copy_lent(out)
        if terms.simple:
            self.optimised.apply(updates, share, staleness, lr)
            self.version += 1
            return
        if workers is None:
            workers = [] if who is None else [who[0]]
        guard = terms.guards(workers)
        if not terms.needs:
            bad = (self.optimised.apply_guarded if guard else self.optimised.apply)(updates, share, staleness, lr)
        else:
            values = None if self.reads is None or who is None else self.reads.read_at(who, read)
            seer = who[0] if who is not None and Need.WORKER in terms.needs else None
            bad = self.optimised.apply_seen(updates, share, staleness, lr, seer, values, guard=guard)
        self.version += 1
        for place in bad:
            problem = f"it sent an update of {self.name} that contains NaN or infinity"
            out.append(Reject(worker_id(workers[place]), problem))

    def _copy_lent(self, out: list[Effect]) -> None:
        """Replace the parameters in the answers of this `handle` by a copy, because they are about to change."""
        copy = self.params.copy()
        for place, effect in enumerate(out):
            if type(effect) is Send and effect.payload is self.params:
                out[place] = Send(effect.to, effect.message, copy)
        self._lent_to = None

    def _count_missing(self) -> None:
        terms, there = self._terms, self._pushed.get(self.v, ())
        if self.v >= terms.last_first:
            self.missing = len(terms.present.difference(there))
        else:
            self.missing = sum(
                (member.first or 0) <= self.v and (worker, member.incarnation) not in there
                for worker, member in terms.members.items()
            )

    # Changes of the membership and of the model.

    def remove(self, worker: int, out: list[Effect]) -> None:
        """Remove a member: copy its kept updates, and answer its parked pull with `Gone`."""
        self._kept.own_all(worker)
        self._last.forget(worker)
        if self.reads is not None:
            self.reads.forget(worker)
        if self.teller is not None:
            self.teller.forget(worker)
        self._paces.forget(worker)
        self._since.pop(worker, None)
        self._unanswered.pop(worker, None)
        self._contained.pop(worker, None)
        parked = self._parked.withdraw(worker)
        if parked is not None:
            gone = Gone(self._terms.view, parked.message.incarnation, parked.message.progress, self.name)
            out.append(Send(parked.source, gone))

    def members_changed(self, now: float, out: list[Effect]) -> None:
        """Count the missing pushes again and close rounds that waited only for removed members."""
        self._seen_at = None
        self._count_missing()
        self.advance(now, out)
        if self._terms.again:
            self.ask_again(now, out)

    def model_changed(self, now: float, out: list[Effect]) -> None:
        """Apply kept updates if the new model keeps none, close rounds, then check parked pulls by the new model."""
        if not self._terms.at_close:
            for i in self._kept.rounds():
                self._apply_round(i, out, int(self._terms.share))
        self._set_first_bound()
        self._paces = Paces()
        self._unruly = self.fastest + 1
        waiting = self._parked.empty()
        self.advance(now, out)
        for parked in waiting:
            if self._may_answer(parked):
                self._answer(parked, now, out)
            elif self._terms.again:
                self._wait(parked, now, out)
            else:
                self._parked.park(parked, self._release_round(parked))

    def _release_round(self, parked: ParkedRequest) -> int:
        """The round to park a pull under if it came without a push, or if the sync model changed since.

        `lazy`: its own round. `soft`: the first round whose close satisfies the pull condition.
        """
        last = max(parked.message.progress, self.v)
        if self._terms.release is _LAZY:
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

    def _set_first_bound(self) -> None:
        if self._terms.adaptive:
            self.bound = self._terms.adaptive.first_bound()

    # Moves.

    def known(self) -> BucketState:
        """The state that moves together with the arrays."""
        counts = (self.version, self.v, self.bound, self._round_applied, self._unruly)
        workers = (self._pushed, self._seen, self._late, self._pulled)
        contained = (self._contained, self._unanswered)
        return BucketState(*counts, *workers, self._kept, self._last, self._parked, self._paces, *contained)

    def go_on_from(self, known: BucketState) -> None:
        """Continue from the state of the previous holder."""
        self.version, self.v, self.bound, self._round_applied, self._unruly = known[:5]
        self._pushed, self._seen, self._late, self._pulled = known[5:9]
        self._kept, self._last, self._parked, self._paces, self._contained, self._unanswered = known[9:]
        self._count_missing()

    # Recovery.

    def restore(
        self, copy: BucketCopy, answered: Mapping[Who, int], contained: Mapping[Who, int], read: Mapping[Who, int]
    ) -> None:
        """Continue from a worker's copy (recovery.py).

        `answered`, `contained`: each member's last push that was answered, and that the copy contains. `read`: the
        version that each member has read.
        """
        self.version, self.v, self._round_applied = max([copy.version, *read.values()]), copy.v, copy.applied
        for who, last in answered.items():
            worker, incarnation = who
            self._seen[worker] = Push(self._terms.view, incarnation, last, self.name, 0)
            self._contained[worker] = (incarnation, contained[who])
            if contained[who] > last:
                self._unanswered[worker] = (incarnation, contained[who])
            for i in range(self.v, max(last, contained[who]) + 1):
                self._pushed.setdefault(i, set()).add(who)
            if self.reads is not None:
                self.reads.copy(who, read[who], self.params, copy.v, copy.seen)
        self._unruly = self.fastest + 1
        self._count_missing()
