"""The shard: all buckets of one server. It checks every request before it passes it to the bucket.

1. A message with a newer view than the shard's waits for that view. A message with an older view is checked by the
   shard's own view.
2. The shard answers a push or pull from a non-member (unknown, removed, or of another incarnation) with `Gone`. If
   another server holds its bucket, that `Gone` names no bucket.
3. The shard answers a request for a bucket that another server holds, or that was cut, with `Moved`. A request for a
   bucket that another server will hand over to this one waits for the handover.
4. All other requests follow the bucket's rules (bucket.py). Each bucket is synchronised by itself.
5. On a new view the shard removes the members that are gone, hands over the buckets that other servers hold from now
   on, and then evaluates the push conditions again.
6. A view can have a joiner without a first iteration. Once the shard holds all its buckets, it reports its largest V,
   and closes no round after that until a view sets the joiner's first iteration.
7. When a bucket is handed over to the shard, the members and the model in force here apply to it. The shard answers
   parked pulls of non-members with `Gone`, and treats a different model as a change of model. Then it handles the
   requests that waited for the bucket.
8. Once the shard holds all buckets that a view with a new placement gives it, it sends `Settled` to the coordinator.
9. If a server dies, the shard restores the buckets that a view gives to it from the workers' copies (recovery.py).
   Requests for such a bucket wait for that, as for a handover.
10. With backups (backed_shard.py), a bucket may be handed over more than once: by the server that held it, and by the
   backup of that server. The first handover counts that is not older than the move that gives the bucket to this shard.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf
from typing import NamedTuple

import numpy as np

from syncline.effects import Change, Effect, Event, Fail, Received, Reject, Send, Timer
from syncline.errors import PeerError, RunError
from syncline.layout import Bucket, Payload, Values, is_finite
from syncline.messages import (
    COORDINATOR,
    BucketCopy,
    CopyReport,
    CopyRequest,
    Gone,
    Handover,
    Member,
    Moved,
    Pull,
    Push,
    Report,
    Settled,
    Skipped,
    View,
    Wants,
    server_id,
    worker_id,
)
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.protocol import Counts
from syncline.nodes.server.bucket import HeldBucket
from syncline.nodes.server.handover import in_force, pack, split_arrays, unpack
from syncline.nodes.server.recovery import Recovery
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.nodes.update_writer import bucket_codec, check_written

_NOTHING, _TAKEN = Skipped.NOTHING, Wants.TAKEN  # enum members are slow to look up


class Tally:
    """Counts updates that were taken and dropped, each once per (worker, iteration).

    An update counts as dropped if any bucket dropped it. Updates and fetches that a gate skips are counted per bucket.
    """

    def __init__(self) -> None:
        self.updates = 0
        self.dropped = 0
        self.pushes_skipped = 0
        self.fetches_skipped = 0
        self.restored = 0
        """Buckets that were restored from workers' copies."""
        self.lost = 0
        """Updates, counted per bucket, that were answered without parameters and that no copy contained."""
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

    def skip(self, push: Push) -> None:
        self.pushes_skipped += push.skipped is not _NOTHING
        self.fetches_skipped += push.wants is _TAKEN


def _of_one_update(last: Push | None, push: Push) -> bool:
    """Whether two pushes of a worker have the same incarnation and iteration."""
    return last is not None and (last.incarnation, last.progress) == (push.incarnation, push.progress)


class ShardState(NamedTuple):
    """The state of a shard without its buckets; see `Shard` and `ShardTerms`."""

    limit: float
    timers: int
    settled: bool
    last_loss: int
    due_since: dict[Bucket, int]


class Shard:
    """The node of one server: it holds a part of the model."""

    def __init__(self, number: int, pieces: Mapping[Bucket, Values], terms: ShardTerms, view: View) -> None:
        """`pieces`: the first parameters, which the shard updates in place. `terms`: not shared with other shards."""
        self.number = number
        self.terms = terms
        self.tally = Tally()
        self._deferred: list[Received] = []
        self._due: dict[Bucket, list[Received]] = {}
        """The buckets that will be handed over to this shard or restored, each with the requests that wait for it."""
        self._due_since: dict[Bucket, int] = {}
        """The view with which the move of each of them began."""
        self._recoveries: dict[Bucket, Recovery] = {}
        """Those of them that are restored from workers' copies."""
        self._last_loss = 0
        """The view in which a bucket was lost last, of any server."""
        self._settled = True
        self._set_members(view)
        terms.start = min((member.first or 0 for member in terms.members.values()), default=0) if pieces else 0
        self._holders = view.holders
        self.buckets = {name: HeldBucket(name, params, terms) for name, params in pieces.items()}
        self._await_others(view)
        self._settled = not self._due
        self._due_since = dict.fromkeys(self._due, view.view + 1)  # earlier handovers were for the process before

    def params(self) -> dict[Bucket, Values]:
        return {name: bucket.params for name, bucket in self.buckets.items()}

    def param(self, bucket: Bucket) -> Values | None:
        held = self.buckets.get(bucket)
        return None if held is None else held.params

    def counts(self) -> Counts:
        least = min((bucket.v for bucket in self.buckets.values()), default=0)
        tally = self.tally
        skipped = (tally.pushes_skipped, tally.fetches_skipped)
        found = Counts(tally.updates, tally.dropped, least, *skipped, self.terms.staleness)
        return found._replace(restored=tally.restored, restoring=len(self._recoveries), lost=tally.lost)

    def remembered(self, bucket: Bucket) -> Mapping[str, Values]:
        held = self.buckets[bucket]
        if held.teller is None:
            return held.memory
        none = {name: np.zeros(bucket.size, np.float32) for name in self.terms.reply_memory}
        return {**none, **held.memory, **held.teller.remembered(held.params)}

    def remember(self, bucket: Bucket, name: str, values: Values) -> None:
        held = self.buckets[bucket]
        if name not in self.terms.reply_memory:
            held.optimised.remember(name, values)
        elif held.teller is not None:
            held.teller.remember(name, values)

    @property
    def at_rest(self) -> bool:
        return True

    @property
    def sums(self) -> int:
        return 1

    def in_force(self) -> Change:
        return Change(self.terms.model, self.terms.release)

    # Backups.

    @property
    def is_restoring(self) -> bool:
        """Whether a bucket is being restored from workers' copies."""
        return bool(self._recoveries)

    def state(self) -> ShardState:
        """What another shard needs besides the buckets and the requests that wait, to continue as this one."""
        return ShardState(self.terms.limit, self.terms.timers, self._settled, self._last_loss, dict(self._due_since))

    def waiting(self) -> list[Received]:
        """The requests that wait for a bucket or for a view."""
        return [*(event for events in self._due.values() for event in events), *self._deferred]

    def go_on_from(self, state: ShardState) -> None:
        """Continue from the state of another shard with the same view, before `install` is called for its buckets."""
        self.terms.limit, self.terms.timers, self._settled, self._last_loss, self._due_since = state
        self._due = {name: [] for name in self._due_since}

    def install(self, message: Handover, payload: Payload, now: float, out: list[Effect]) -> None:
        """Continue with this state of a bucket."""
        bucket = self.buckets[message.bucket] = unpack(message, payload, self.terms)
        bucket.members_changed(now, out)

    def renew(self, now: float, out: list[Effect]) -> list[tuple[Handover, Payload]]:
        """Pack all buckets, and continue with exactly what another server unpacks."""
        packed = [pack(bucket, name, self.terms) for name, bucket in self.buckets.items()]
        for message, payload in packed:
            self.install(message, payload, now, out)
        return packed

    def all_hold(self, members: Iterable[Member]) -> None:
        """Record that these workers have the first parameters without a message."""
        for bucket in self.buckets.values():
            if bucket.teller is not None:
                bucket.teller.all_hold(members, bucket.params)

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: list[Effect] = []
        if type(event) is Received:
            message = event.message
            if type(message) is Push or type(message) is Pull:
                self._request(event, message, now, out)
            elif type(message) is View:
                self._adopt(message, now, out)
            elif type(message) is Handover:
                self._take_over(event, message, now, out)
                self._settle(out)
            elif type(message) is CopyReport:
                self._hear_report(event, message, now, out)
                self._settle(out)
            elif type(message) is BucketCopy:
                self._take_copy(event, message, now, out)
                self._settle(out)
            else:
                raise PeerError(f"server {self.number} does not accept this message from {event.source}: {message}")
        elif type(event) is Change:
            self.terms.change(event.model, event.release)
            for bucket in self.buckets.values():
                bucket.model_changed(now, out)
        elif type(event) is Timer and event.key[0] == "ask":
            _, name, number = event.key
            held = self.buckets.get(name)  # type: ignore[call-overload]
            if held is not None:
                held.timer(number, now, out)
        else:
            raise PeerError(f"server {self.number} does not accept this event: {event}")
        return out

    def _request(self, event: Received, message: Push | Pull, now: float, out: list[Effect]) -> None:
        terms, source = self.terms, event.source
        if message.view > terms.view:
            self._deferred.append(event)
            return
        if terms.checks and type(message) is Push and message.size:
            self._check_update(event, message)
        member = terms.members.get(source.number)
        if member is None or member.incarnation != message.incarnation:
            out.append(Send(source, self._gone(message)))
            return
        bucket = self.buckets.get(message.bucket)
        if bucket is None:
            self._not_here(event, message, out)
        elif type(message) is not Push:
            bucket.pull(event, message, now, out)  # type: ignore[arg-type]
        else:
            if message.read > bucket.version:
                raise PeerError(
                    f"it sent an update that is based on version {message.read} of {bucket.name}, but this "
                    f"server has only version {bucket.version}"
                )
            taken = bucket.push(event, message, now, out)  # type: ignore[arg-type]
            if taken:
                self.tally.take(source.number, message)
            elif taken is False:
                self.tally.drop(source.number, message)
            if terms.gated and taken is not None:
                self.tally.skip(message)

    def _gone(self, message: Push | Pull) -> Gone:
        """The answer to a non-member. It names the bucket only if this shard holds it or will hold it.

        Otherwise the new holder may still be reading the update, so the worker must not take it as answered.
        """
        if message.bucket in self.buckets or message.bucket in self._due:
            return Gone(self.terms.view, message.incarnation, message.progress, message.bucket)
        return Gone(self.terms.view, message.incarnation)

    def _not_here(self, event: Received, message: Push | Pull, out: list[Effect]) -> None:
        if message.bucket in self._due:
            self._due[message.bucket].append(event)
        else:
            moved = Moved(self.terms.view, message.incarnation, message.progress, message.bucket)
            out.append(Send(event.source, moved))

    # Views.

    def _adopt(self, view: View, now: float, out: list[Effect]) -> None:
        if view.view <= self.terms.view:
            return
        before, known = self.terms.members, self.terms.view
        self._set_members(view)
        for worker, member in before.items():
            after = self.terms.members.get(worker)
            if after is None or after.incarnation != member.incarnation:
                for bucket in self.buckets.values():
                    bucket.remove(worker, out)
        died = any(loss.view > known for loss in view.lost) or any(each.view > known for each in view.stand_ins)
        if view.holders != self._holders or died:
            self._hand_over(view, known, out)
        self._report_for_joiners(out)
        for bucket in self.buckets.values():
            bucket.members_changed(now, out)
        waiting, self._deferred = self._deferred, []
        for event in waiting:
            if type(event.message) is Handover:
                self._take_over(event, event.message, now, out)
            elif type(event.message) is CopyReport:
                self._hear_report(event, event.message, now, out)
            else:
                self._judge(event, now, out)
        for name in list(self._recoveries):
            self._go_on_restoring(name, now, out)
        self._settle(out)

    def _judge(self, event: Received, now: float, out: list[Effect]) -> None:
        """Handle a request that has waited; an error closes the connection to its sender."""
        try:
            self._request(event, event.message, now, out)  # type: ignore[arg-type]
        except PeerError as error:
            out.append(Reject(event.source, str(error)))

    def _set_members(self, view: View) -> None:
        self.terms.adopt(view)
        self._joiners = any(member.first is None for member in view.members)

    def _report_for_joiners(self, out: list[Effect]) -> None:
        self.terms.limit = inf
        if self._joiners and not self._due:
            largest = max((bucket.v for bucket in self.buckets.values()), default=0)
            self.terms.limit = largest
            out.append(Send(COORDINATOR, Report(self.terms.view, largest)))

    # Moves.

    def _hand_over(self, view: View, known: int, out: list[Effect]) -> None:
        """Send the buckets that other servers hold from now on, and cut those of which they hold a part.

        `known`: the view before. What was lost since then is discarded.
        """
        self._holders, self._settled = view.holders, False
        cut, me = bucket_map_of(view.holders), server_id(self.number)
        lost = {loss.bucket: loss for loss in view.lost if loss.view > known}
        self._last_loss = max([self._last_loss, *(loss.view for loss in lost.values())])
        for name in [name for name in self.buckets if cut.holder.get(name) != me or name in lost]:
            whole = self.buckets.pop(name)
            for piece in cut.inside(name):
                if piece in lost:
                    continue
                message, payload = pack(whole, piece, self.terms)
                if cut.holder[piece] == me:
                    self.buckets[piece] = unpack(message, payload, self.terms)
                else:
                    out.append(Send(cut.holder[piece], message, payload))
        self._await_others(view)
        self._recoveries = {name: each for name, each in self._recoveries.items() if name in self._due}
        for name in self._due.keys() & lost.keys():
            if lost[name].holder == self.number:
                self._recoveries[name] = Recovery(name)

    def _await_others(self, view: View) -> None:
        """Wait for the buckets that the view gives to this shard and that are not here."""
        mine = view.holders[self.number] if self.number < len(view.holders) else ()
        self._due = {name: self._due.get(name, []) for name in mine if name not in self.buckets}
        since = view.moving_since or view.view
        self._due_since = {name: self._due_since.get(name, since) for name in self._due}

    def _take_over(self, event: Received, message: Handover, now: float, out: list[Effect]) -> None:
        if message.view > self.terms.view:
            self._deferred.append(event)
            return
        if message.bucket in self._recoveries or (message.bucket not in self._due and message.view < self._last_loss):
            return
        if self.terms.backed and message.view < self._due_since.get(message.bucket, message.view + 1):
            return  # another handover has come before it
        if message.bucket not in self._due or event.payload is None:
            raise PeerError(f"{event.source} handed over {message.bucket}, which server {self.number} does not expect")
        if self.terms.checks:
            self._check_arrays(message, event.payload)
        bucket = self.buckets[message.bucket] = unpack(message, event.payload, self.terms)
        for parked in message.parked:
            member = self.terms.members.get(parked.worker)
            if member is None or member.incarnation != parked.request.incarnation:
                bucket.remove(parked.worker, out)
        if message.model == in_force(self.terms):
            bucket.members_changed(now, out)
        else:
            bucket.model_changed(now, out)
        self._judge_waiting(message.bucket, now, out)

    def _judge_waiting(self, name: Bucket, now: float, out: list[Effect]) -> None:
        """Handle the requests that have waited for a bucket, which is here now."""
        self._due_since.pop(name)
        for each in self._due.pop(name):
            self._judge(each, now, out)
        if not self._due:
            self._report_for_joiners(out)

    # Buckets that are lost.

    def _hear_report(self, event: Received, message: CopyReport, now: float, out: list[Effect]) -> None:
        if message.view > self.terms.view:
            self._deferred.append(event)
        elif message.bucket in self._recoveries:
            self._recoveries[message.bucket].report((event.source.number, message.incarnation), message)
            self._go_on_restoring(message.bucket, now, out)

    def _go_on_restoring(self, name: Bucket, now: float, out: list[Effect]) -> None:
        """Ask the member with the freshest copy for it, once all have reported."""
        recovery, terms = self._recoveries[name], self.terms
        if not recovery.is_complete(terms) or recovery.asked in terms.present:
            return
        try:
            recovery.asked = who = recovery.freshest(terms)
            if who is None:
                self._install(recovery, None, None, now, out)
            else:
                out.append(Send(worker_id(who[0]), CopyRequest(terms.view, who[1], name)))
        except RunError as error:
            out.append(Fail(error))

    def _take_copy(self, event: Received, message: BucketCopy, now: float, out: list[Effect]) -> None:
        recovery = self._recoveries.get(message.bucket)
        who, values = (event.source.number, message.incarnation), event.payload
        if recovery is None or recovery.asked != who:
            return
        if values is None or values.dtype != np.float32 or (self.terms.guards(who[:1]) and not is_finite(values)):
            raise PeerError(f"it sent a copy of {message.bucket} without finite values")
        try:
            self._install(recovery, message, values.copy(), now, out)
        except RunError as error:
            out.append(Fail(error))

    def _install(
        self, recovery: Recovery, copy: BucketCopy | None, values: Values | None, now: float, out: list[Effect]
    ) -> None:
        """Go on with a bucket that is restored."""
        bucket, lost = recovery.restored(copy, values, self.terms)
        del self._recoveries[recovery.bucket]
        self.buckets[recovery.bucket] = bucket
        self.tally.restored += 1
        self.tally.lost += lost
        bucket.members_changed(now, out)
        self._judge_waiting(recovery.bucket, now, out)

    def _check_update(self, event: Received, push: Push) -> None:
        """Raise PeerError unless what a codec has written for this bucket is what it writes."""
        bucket = self.buckets.get(push.bucket)
        if bucket is not None and event.payload is not None:
            check_written(bucket.codec, event.payload, bucket.name.size)

    def _check_arrays(self, message: Handover, payload: Payload) -> None:
        """Raise PeerError if a handover contains bytes that the bucket's codec cannot have written."""
        codec = bucket_codec(self.terms.codec, self.terms.layout, message.bucket)
        for array in split_arrays(payload, message.arrays):
            if array.dtype == np.uint8:
                check_written(codec, array, message.bucket.size)

    def _settle(self, out: list[Effect]) -> None:
        if not self._settled and not self._due:
            self._settled = True
            out.append(Send(COORDINATOR, Settled(self.terms.view)))
