"""Checks what the shards of a random schedule do, from the messages that they receive and send.

A `Ledger` checks one shard. An `Account` holds the expected state of one bucket and moves with the bucket. To check
exactly-once, every update is one-hot in a coordinate of its own, and the rule counts updates per coordinate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from syncline.draw import Draw
from syncline.effects import Change, Effect, Event, Fail, Received, Send, SetTimer
from syncline.layout import Bucket, Values, within
from syncline.messages import (
    BucketCopy,
    CopyReport,
    Gone,
    Handover,
    Member,
    Moved,
    Params,
    Push,
    Report,
    Settled,
    Taken,
    View,
)
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.server.shard import Shard
from syncline.sync import Bsp, Drop, Dsps, Psp, Pssp, Release, Ssp

Key = tuple[int, int, int, Bucket]
"""Identifies a request: (worker, incarnation, progress, bucket)."""

NO_PUSH = (-1, Bucket(0, 0))
"""The progress and the bucket of a `Gone` that answers nothing."""

Asked = tuple[int, int, int]
"""A request without its bucket: (worker, incarnation, progress)."""

Answers = list[tuple[Key, Params | Taken | Gone | Moved]]


@dataclass
class Account:
    """The expected state of a bucket."""

    expected: Values
    last: dict[tuple[int, int], int] = field(default_factory=dict)
    """For each (worker, incarnation): the progress of the last request that was accepted or dropped."""
    open: set[Asked] = field(default_factory=set)
    pushed: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    kept: dict[int, list[int]] = field(default_factory=dict)
    """For each open round: the coordinates of the updates that wait for its close."""
    v: int = 0
    version: int = 0
    """The last two values at the time of the handover of the bucket."""
    contained: dict[tuple[int, int], int] = field(default_factory=dict)
    """After a recovery: the last update of each worker that the copy contained."""

    def piece(self, where: slice) -> Account:
        kept = {i: [c - where.start for c in cs if where.start <= c < where.stop] for i, cs in self.kept.items()}
        pushed = {i: set(there) for i, there in self.pushed.items()}
        piece = Account(
            self.expected[where].copy(), dict(self.last), set(self.open), pushed, kept, self.v, self.version
        )
        piece.contained = dict(self.contained)
        return piece

    def settle(self) -> None:
        """Count the kept updates as applied."""
        for coordinates in self.kept.values():
            self.expected[coordinates] += 1
        self.kept.clear()


@dataclass
class Books:
    """The state that all ledgers share."""

    taken: set[Key] = field(default_factory=set)
    dropped: set[Key] = field(default_factory=set)
    transit: dict[Bucket, Account] = field(default_factory=dict)
    """The buckets that are in flight to another server."""
    doomed: dict[Bucket, Account] = field(default_factory=dict)
    """The same, but they are lost in a later view; who has not heard of it may still take them."""
    lost_at: dict[Bucket, int] = field(default_factory=dict)
    """The view in which each bucket was lost last."""

    def lose(self, view: View) -> None:
        """The coordinator has published a view with lost buckets."""
        for loss in view.lost:
            if self.lost_at.get(loss.bucket, -1) < loss.view:
                self.lost_at[loss.bucket] = loss.view
                if loss.bucket in self.transit:
                    self.doomed[loss.bucket] = self.transit.pop(loss.bucket)

    def forget(self, asked: tuple[int, int], last: int, piece: Bucket) -> None:
        """What the dead server decided about later requests than `last` does not count."""
        for book in (self.taken, self.dropped):
            for key in [key for key in book if key[:2] == asked and key[2] > last and contains(key[3], piece)]:
                book.discard(key)
                rest = Bucket(key[3].start, piece.start), Bucket(piece.stop, key[3].stop)
                book.update((*key[:3], other) for other in rest if other.size)


class Ledger:
    """Passes events to a shard, and checks every step."""

    def __init__(self, shard: Shard, view: View, books: Books, draw: Draw) -> None:
        self.shard = shard
        self.view = view
        self.limit = inf
        self.books = books
        self.accounts = {name: Account(np.zeros_like(bucket.params)) for name, bucket in shard.buckets.items()}
        self._draw = draw
        self._deferred: list[Received] = []
        held = view.holders[shard.number] if shard.number < len(view.holders) else ()
        self._due: dict[Bucket, list[Received]] = {name: [] for name in held if name not in self.accounts}
        self._owes_report = self._joiners and bool(self._due)
        self._just_moved: set[Bucket] = set()
        self._just_lost: list[Account] = []
        self._restoring: set[Bucket] = set()
        self._last_loss = 0

    @property
    def members(self) -> dict[int, Member]:
        return {member.worker: member for member in self.view.members if member.first is not None}

    @property
    def _joiners(self) -> bool:
        return any(member.first is None for member in self.view.members)

    def step(self, event: Event, now: float) -> list[Effect]:
        """Let the shard handle an event, and check its effects."""
        before = {name: bucket.v for name, bucket in self.shard.buckets.items()}
        versions = {name: bucket.version for name, bucket in self.shard.buckets.items()}
        carried = self._carried(event)
        self._just_moved.clear()
        self._just_lost.clear()
        judged = self._judged(event, before, versions)
        late_whole = self._owes_report and not self._due
        at_close = self.shard.terms.model.at_close
        effects = self.shard.handle(event, now)
        if isinstance(event, Change):
            at_close = self.shard.terms.model.at_close
            if not at_close:
                for account in self.accounts.values():
                    account.settle()
        assert set(self.shard.buckets) == set(self.accounts), "the shard does not hold what its view gives to it"
        answers = self._answers(effects)
        repeats = self._judge(event, judged, carried, answers, at_close, before)
        self._check_answers(answers, repeats)
        self._check_rounds(before)
        self._check_params(versions)
        self._check_versions(effects)
        self._check_reports(effects, late_whole)
        return effects

    # The event.

    def _carried(self, event: Event) -> dict[int, list[int]]:
        """The coordinates in each push that this step may accept or drop, read before any answer."""
        events = [*self._deferred, event, *(each for waiting in self._due.values() for each in waiting)]
        pushes = [each for each in events if isinstance(each, Received) and isinstance(each.message, Push)]
        return {
            id(each): [] if each.payload is None else [int(c) for c in np.flatnonzero(each.payload)] for each in pushes
        }

    def _judged(self, event: Event, before: dict[Bucket, int], versions: dict[Bucket, int]) -> list[Received]:
        """The requests that this step accepts or drops, in order."""
        if not isinstance(event, Received):
            return []
        if isinstance(event.message, BucketCopy):
            return self._restored(event, event.message, before, versions)
        if isinstance(event.message, View):
            if event.message.view <= self.view.view:
                return []
            self._adopt(event.message, before, versions)
            events = [each for each in self._deferred if each.message.view <= self.view.view]
            self._deferred = [each for each in self._deferred if each.message.view > self.view.view]
        elif event.message.view > self.view.view:
            self._deferred.append(event)
            return []
        else:
            events = [event]
        judged: list[Received] = []
        for each in events:
            if isinstance(each.message, CopyReport):
                continue
            if isinstance(each.message, Handover):
                name, old = each.message.bucket, each.message.view < self._last_loss
                if name in self._restoring or (name not in self._due and old):
                    continue
                judged.extend(self._arrived(each.message.bucket, before, versions))
            elif each.message.bucket in self._due and self._is_member(each):
                self._due[each.message.bucket].append(each)
            else:
                judged.append(each)
        return judged

    def _is_member(self, event: Received) -> bool:
        member = self.members.get(event.source.number)
        return member is not None and member.incarnation == event.message.incarnation

    def _adopt(self, view: View, before: dict[Bucket, int], versions: dict[Bucket, int]) -> None:
        lost = {loss.bucket: loss for loss in view.lost if loss.view > self.view.view}
        self._last_loss = max([self._last_loss, *(loss.view for loss in lost.values())])
        moved, self.view = view.holders != self.view.holders, view
        if moved or lost:
            mine = view.holders[self.shard.number] if self.shard.number < len(view.holders) else ()
            for name in [name for name in self.accounts if name not in mine or name in lost]:
                whole = self.accounts.pop(name)
                self._just_moved.add(name)
                whole.v, whole.version = before.pop(name), versions.pop(name)
                for piece in bucket_map_of(view.holders).inside(name):
                    part = whole.piece(within(name, piece))
                    if piece in lost:
                        self._just_lost.append(part)
                    elif piece in mine:
                        self.accounts[piece], before[piece], versions[piece] = part, whole.v, whole.version
                    elif self.books.lost_at.get(piece, -1) > view.view:
                        self.books.doomed[piece] = part
                    else:
                        assert piece not in self.books.transit
                        self.books.transit[piece] = part
            self._due = {name: self._due.get(name, []) for name in mine if name not in self.accounts}
            self._restoring = {name for name in self._restoring if name in self._due}
            self._restoring |= {name for name in self._due if name in lost and lost[name].holder == self.shard.number}
        self.limit = max(before.values(), default=0) if self._joiners and not self._due else inf
        self._owes_report = self._joiners and bool(self._due)

    def _arrived(self, bucket: Bucket, before: dict[Bucket, int], versions: dict[Bucket, int]) -> list[Received]:
        books = self.books
        home = books.transit if books.lost_at.get(bucket, -1) <= self.view.view else books.doomed
        account = self.accounts[bucket] = home.pop(bucket)
        before[bucket], versions[bucket] = account.v, account.version
        if not self.shard.terms.model.at_close:
            account.settle()
        return self._due.pop(bucket)

    def _restored(
        self, event: Received, copy: BucketCopy, before: dict[Bucket, int], versions: dict[Bucket, int]
    ) -> list[Received]:
        """The worker that was asked has sent its copy, from which the shard restores a bucket."""
        name, who = copy.bucket, (event.source.number, copy.incarnation)
        recovery = self.shard._recoveries.get(name)
        if recovery is None or recovery.asked != who:
            return []
        account = self.accounts[name] = Account(event.payload.copy(), v=copy.v)
        seen = {(each.worker, each.incarnation): each.progress for each in copy.seen}
        for asked, report in recovery._reports.items():
            if not any(asked == (each.worker, each.incarnation) for each in self.members.values()):
                continue
            account.version = max(account.version, report.version)
            account.last[asked] = report.next - (1 if report.held else 2)  # a joiner still waits for its pull
            account.contained[asked] = seen.get(asked, copy.v - 1)
            for i in range(copy.v, max(report.next, account.contained[asked] + 1)):
                account.pushed.setdefault(i, set()).add(asked)
            self.books.forget(asked, report.next - 1, name)
        before[name], versions[name] = account.v, account.version
        self._restoring.discard(name)
        return self._due.pop(name)

    def _judge(
        self,
        event: Event,
        judged: list[Received],
        carried: dict[int, list[int]],
        answers: Answers,
        at_close: bool,
        before: dict[Bucket, int],
    ) -> Counter[Key]:
        """Record the decisions; count the requests that may be answered although they are not open."""
        late = {key for key, answer in answers if isinstance(answer, Params | Taken) and answer.late}
        repeats: Counter[Key] = Counter()
        for each in judged:
            worker, message = each.source.number, each.message
            asked = (worker, message.incarnation, message.progress)
            key = (*asked, message.bucket)
            if not self._is_member(each):
                if message.bucket not in self.accounts and message.bucket not in self._due:
                    key = (*asked[:2], *NO_PUSH)
                repeats[key] += 1
                assert any(other == key and isinstance(answer, Gone) for other, answer in answers), "no Gone"
                continue
            account = self.accounts.get(message.bucket)
            if account is None:
                repeats[key] += 1
                assert any(other == key and isinstance(answer, Moved) for other, answer in answers), "no Moved"
                continue
            if message.progress <= account.last.get(asked[:2], -1):
                if asked in account.open:
                    assert each is not event or not answers, f"the repeat of a parked push was answered: {key}"
                else:
                    assert any(other == key for other, _ in answers), f"an answered push was not answered again: {key}"
                repeats[key] += 1
                continue
            account.last[asked[:2]] = message.progress
            account.open.add(asked)
            if isinstance(message, Push):
                self._enter(key, carried[id(each)], key in late, at_close, before[message.bucket])
        return repeats

    def _enter(self, key: Key, coordinates: list[int], late: bool, at_close: bool, v: int) -> None:
        worker, incarnation, i, bucket = key
        account = self.accounts[bucket]
        if i <= account.contained.get((worker, incarnation), -1):
            assert not late, f"{key} is in the copy, and too late"
            assert (account.expected[coordinates] == 1).all(), f"{key} is said to be in the copy"
            self.books.taken.add(key)
            return
        if late:
            assert at_close, f"{key} is too late under a model that applies on arrival"
            assert i < self.shard.buckets[bucket].v, f"{key} is not too late"
            self.books.dropped.add(key)
            return
        assert not at_close or i >= v, f"{key} is too late"
        self.books.taken.add(key)
        account.pushed.setdefault(i, set()).add((worker, incarnation))
        if at_close:
            account.kept.setdefault(i, []).extend(coordinates)
        else:
            account.expected[coordinates] += 1

    # The effects.

    def _answers(self, effects: Sequence[Effect]) -> Answers:
        found = []
        for effect in effects:
            assert isinstance(effect, Send | SetTimer | Fail), effect
            if isinstance(effect, SetTimer | Fail):
                continue
            if effect.to.role == "worker" and isinstance(effect.message, Params | Taken | Gone | Moved):
                answer = effect.message
                found.append(((effect.to.number, answer.incarnation, answer.progress, answer.bucket), answer))
        return found

    def _check_answers(self, answers: Answers, repeats: Counter[Key]) -> None:
        for key, answer in answers:
            account = self.accounts.get(key[3])
            if account is not None and key[:3] in account.open and not isinstance(answer, Moved):
                account.open.discard(key[:3])
                if not isinstance(answer, Gone):
                    assert answer.late == was_dropped(self.books, key)
                    self._check_lead(key, answer)
            elif not (isinstance(answer, Gone) and self._withdrawn(key)):
                assert repeats[key] > 0, f"{key} was answered twice"
                repeats[key] -= 1
        for bucket, account in self.accounts.items():
            for asked in account.open:
                known = any(asked[:2] == (each.worker, each.incarnation) for each in self.members.values())
                assert known, f"{asked} of {bucket}, of a non-member, was left parked"

    def _withdrawn(self, key: Key) -> bool:
        """True if this was a delayed pull of a bucket that moved in this step; such a pull does not move along."""
        found = any(key[:3] in account.open for account in self._just_lost)
        if key[3] in self._just_moved:
            for piece in bucket_map_of(self.view.holders).inside(key[3]):
                books = self.books
                account = self.accounts.get(piece) or books.transit.get(piece) or books.doomed.get(piece)
                if account is None:
                    continue
                found |= key[:3] in account.open
                account.open.discard(key[:3])
        return found

    def _check_lead(self, key: Key, answer: Params | Taken) -> None:
        """Check that no worker is further ahead than the sync model allows."""
        worker, _, i, bucket = key
        model, lead = self.shard.terms.model, i - answer.v
        soft = self.shard.terms.release is Release.SOFT
        if answer.late or (soft and isinstance(model, Pssp)):
            return
        match model:
            case Bsp() | Drop():
                assert lead < 0, f"{key} answered at V = {answer.v}"
            case Ssp(s) | Dsps(_, s):
                assert lead < s, f"{key} answered at V = {answer.v}"
            case Pssp(s) if model.alpha != "significance":
                lucky = self._draw.uniform("pssp", worker, i) >= model.probability(self.shard.buckets[bucket], lead)
                assert lead < s or lucky, f"{key} answered at V = {answer.v}"
            case Psp(_, s) if lead >= s:  # a closed round is not waited for: a model before this one may have closed it
                held = self.shard.buckets[bucket]
                for peer in model.sampled(held.members, worker, i, self._draw):
                    assert held.last_pushed(peer) >= i - s, f"{key} answered before worker {peer} was there"

    def _check_rounds(self, before: dict[Bucket, int]) -> None:
        for name, bucket in self.shard.buckets.items():
            assert bucket.v >= before[name], "V went back"
            for i in range(before[name], bucket.v):
                assert self.members, "a round closed while nobody lives"
                assert i <= self.limit, f"{name}: round {i} closed past the limit {self.limit}"
                assert self._may_close(name, i), f"{name}: round {i} closed too early"
            open_for_no_reason = self.members and bucket.v <= self.limit and self._may_close(name, bucket.v)
            assert not open_for_no_reason, f"{name}: round {bucket.v} should have been closed"

    def _may_close(self, bucket: Bucket, i: int) -> bool:
        pushed = self.accounts[bucket].pushed.get(i, set())
        model = self.shard.terms.model
        if isinstance(model, Drop) and len(pushed) >= model.k:
            return True
        return all(
            (worker, member.incarnation) in pushed for worker, member in self.members.items() if member.first <= i
        )

    def _check_params(self, versions: dict[Bucket, int]) -> None:
        for name, bucket in self.shard.buckets.items():
            account = self.accounts[name]
            for i in [i for i in account.kept if i < bucket.v]:
                account.expected[account.kept.pop(i)] += 1
            assert np.array_equal(bucket.params, account.expected), (
                f"{name}: parameters {np.flatnonzero(bucket.params != account.expected)} are "
                f"{bucket.params[bucket.params != account.expected]}, not as taken"
            )
            assert account.expected.max() <= 1
            assert bucket.version >= versions[name], f"{name}: the version went back"

    def _check_versions(self, effects: Sequence[Effect]) -> None:
        """Check that a payload holds the parameters of the version in its header."""
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Params):
                bucket = self.shard.buckets[effect.message.bucket]
                fresh = effect.message.version == bucket.version
                assert fresh or not np.shares_memory(effect.payload, bucket.params), (
                    f"{effect.message} carries the parameters of version {bucket.version}"
                )
                assert not fresh or np.array_equal(effect.payload, bucket.params)

    def _check_reports(self, effects: Sequence[Effect], late_whole: bool) -> None:
        """Check that a shard reports only when it holds every bucket that its view assigns to it."""
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Report | Settled):
                assert not self._due, f"{effect.message} while {list(self._due)} are still to come"
            if isinstance(effect, Send) and isinstance(effect.message, Report):
                largest = effect.message.largest
                if late_whole:  # the shard could not report earlier in this step, so some rounds closed without a limit
                    self.limit = largest
                    self._owes_report = late_whole = False
                assert largest == self.limit
                assert all(bucket.v <= largest + 1 for bucket in self.shard.buckets.values())
        assert not late_whole, "a joiner waits for a report"


def was_dropped(books: Books, key: Key) -> bool:
    """True if this request, or one that contains it, was too late."""
    return any(key[:3] == other[:3] and contains(other[3], key[3]) for other in books.dropped)


def contains(whole: Bucket, piece: Bucket) -> bool:
    return whole.start <= piece.start and piece.stop <= whole.stop
