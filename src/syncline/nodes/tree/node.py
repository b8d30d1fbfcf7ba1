"""A node of the tree: it serves its workers as a shard does, and shares their updates with its neighbours.

1. A message with a newer view than the node's waits for that view. So what comes over a link that a view lacks has left
   its origin before its node adopted that view.
2. The node answers a push or pull of a non-member with `Gone`, and of a worker that another node serves with `Moved`.
   A push that is older than the view since which this node serves the worker gets `Moved` too: it is then sent again.
3. A request of a worker that moved here with the updates of its old node waits until this node has them stored.
4. All other requests follow the bucket's rules (tree_bucket.py). Each bucket is shared by itself.
5. A message that is not acknowledged for long is sent again, if messages can be lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from syncline.effects import Change, Effect, Event, Loaded, Received, Reject, Saved, Send, SetTimer, Timer, kept
from syncline.errors import PeerError
from syncline.layout import Bucket, Values
from syncline.messages import COORDINATOR, Gone, Message, NodeId, Pull, Push, Report, Settled, View, worker_id
from syncline.nodes.protocol import Counts
from syncline.nodes.server.shard import Tally
from syncline.nodes.tree.clocks import NodeClocks
from syncline.nodes.tree.finished import FinishedIterations
from syncline.nodes.tree.messages import (
    Clocks,
    ClocksHeard,
    CopyAsked,
    CopyBack,
    CopyHeard,
    CopyKept,
    CopySum,
    OriginStored,
    RoundHeard,
    RoundSum,
    SideHeard,
    SideSum,
    TakeOver,
    TookOver,
)
from syncline.nodes.tree.round_bucket import RoundBucket
from syncline.nodes.tree.sum_bucket import SumBucket
from syncline.nodes.tree.tree_bucket import AnswerRule, Checkpoint, TreeBucket, moved
from syncline.nodes.tree.tree_terms import APPROXIMATE, BSP, EVENTUAL, SSP, TreeSettings, TreeTerms

Out = list[Effect]

MOST = 1 << 60
"""How far a node without workers is."""


class TreeNode:
    """The node of one server of the tree strategy."""

    def __init__(
        self,
        number: int,
        first: Mapping[Bucket, Values],
        settings: TreeSettings,
        view: View,
        *,
        fresh: bool = True,
        checkpoint: Mapping[Bucket, Checkpoint] | None = None,
    ) -> None:
        """`first`: the initial model. `fresh`: the node begins together with the run. If not, it waits for a view."""
        self.number = number
        self.settings = settings
        self.terms = TreeTerms(number, settings, view)
        self.clocks = NodeClocks(self.terms)
        self.tally = Tally()
        self.staleness: Counter[int] = Counter()
        self._finished_by = FinishedIterations(len(first), self._pushed)
        rule = AnswerRule(self._may_answer, self._v, lambda: self.clocks.limit, self._finished_by)
        made = RoundBucket if settings.consistency.kind == BSP else SumBucket
        self.buckets: dict[Bucket, TreeBucket] = {
            name: made(name, values, self.terms, rule) for name, values in first.items()
        }
        self._checkpoint = dict(checkpoint or {})
        self._touched: set[Bucket] = set()
        """The buckets that the event which is being handled may have changed."""
        self._begun = fresh
        self._started = False
        self._deferred: list[Received] = []
        self._waiting: list[Received] = []
        """Requests of workers that moved here with updates that are not stored here yet."""
        self._reported: set[int] = set()
        """The origins of which the coordinator knows that they are stored here."""
        self._reports_due = False
        """Whether the coordinator waits to learn how far this node is."""
        self._repeats = self._saves = False
        """Whether a timer for repeats, or for the next checkpoint, is set."""
        self._overdue: set[tuple[NodeId, Message]] = set()
        """What was not acknowledged when the timer for repeats last expired."""
        if fresh:
            for bucket in self.buckets.values():
                bucket.start()
            self.clocks.adopt()

    # What engines ask.

    def params(self) -> dict[Bucket, Values]:
        return {name: bucket.shown() for name, bucket in self.buckets.items()}

    def param(self, bucket: Bucket) -> Values | None:
        held = self.buckets.get(bucket)
        return None if held is None else held.shown()

    def counts(self) -> Counts:
        return Counts(self.tally.updates, 0, self._finished(MOST), staleness=self.staleness)

    def remembered(self, bucket: Bucket) -> Mapping[str, Values]:
        return {}

    def remember(self, bucket: Bucket, name: str, values: Values) -> None:
        raise PeerError(f"node {self.number} has no rule that could remember {name}")

    def in_force(self) -> Change:
        return Change(None)

    @property
    def at_rest(self) -> bool:
        return self._begun and self._is_quiet and all(bucket.at_rest for bucket in self.buckets.values())

    @property
    def sums(self) -> int:
        """Its replica, and what it owes each neighbour."""
        return 1 + sum(self.number in (each.one, each.other) for each in self.terms.tree.links)

    # Events.

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: Out = []
        self._touched.clear()
        match event:
            case Received(message=View() as view):
                self._adopt(view, now, out)
                self._touched.update(self.buckets)
            case Received():
                self._receive(event, now, out)
            case Saved(bucket, serial):
                self._bucket(bucket).saved(serial, now, out)
                self._retry(now, out)
            case Loaded():
                self._finished_by.forget()
                self._bucket(event.bucket).loaded(event, now, out)
                self._retry(now, out)
            case Timer(key):
                self._timer(key, now, out)
            case _:
                raise PeerError(f"node {self.number} does not accept this event: {event}")
        self._follow_up(out)
        return out

    def _follow_up(self, out: Out) -> None:
        """After every event: publish the own clock, and set the timers that are needed."""
        settings = self.settings
        self._report_stored(out)
        self._report_for_joiners(out)
        if settings.consistency.kind in (SSP, APPROXIMATE) and self._begun and self.terms.place is not None:
            self.clocks.publish(self._own_clock(), out)
        touched = [self.buckets[name] for name in self._touched]
        if settings.patience is not None and not self._repeats and not self._are_quiet(touched):
            self._repeats = True
            out.append(SetTimer(("repeat",), settings.patience / 2))
        if settings.checkpoint is not None and not self._saves and any(bucket.held.dirty for bucket in touched):
            self._saves = True
            out.append(SetTimer(("checkpoint",), settings.checkpoint))

    @property
    def _is_quiet(self) -> bool:
        return self._are_quiet(self.buckets.values())

    def _are_quiet(self, buckets: Iterable[TreeBucket]) -> bool:
        return self.clocks.is_quiet and all(bucket.is_quiet for bucket in buckets)

    def _timer(self, key: tuple[object, ...], now: float, out: Out) -> None:
        match key:
            case ("repeat",):
                self._repeats = False
                self._repeat(out)
                self._touched.update(self.buckets)
            case ("checkpoint",):
                self._saves = False
                self._touched.update(self.buckets)
                for bucket in self.buckets.values():
                    bucket.save_if_due(out, always=True)
            case (("send" | "copy") as what, int(number), Bucket() as name, float(due)):
                if self._bucket(name).timer(what, number, due, now, out):
                    self._touched.update(self.buckets)
                    for bucket in self.buckets.values():
                        bucket.send_due(max(now, due), out)
            case _:
                raise PeerError(f"node {self.number} has set no timer {key}")

    def _repeat(self, out: Out) -> None:
        """Send again what was not acknowledged when the timer expired before, and is not acknowledged now."""
        found: Out = []
        self.clocks.repeat(found)
        for bucket in self.buckets.values():
            bucket.repeat(found)
        unheard = [each for each in found if isinstance(each, Send)]
        out += [each for each in unheard if (each.to, each.message) in self._overdue]
        self._overdue = {(each.to, each.message) for each in unheard}

    def _receive(self, event: Received, now: float, out: Out) -> None:
        message: Message = event.message
        if not self._begun or message.view > self.terms.view:
            self._deferred.append(kept(event) if event.source.role == "server" else event)
            return
        match message:
            case Push() | Pull():
                self._request(event, message, now, out)
            case SideSum() | SideHeard() | RoundSum() | RoundHeard():
                self._bucket(message.bucket).link_message(event, message, now, out)
            case TakeOver():
                self._finished_by.forget()
                self._bucket(message.bucket).take_over(event, message, now, out)
            case TookOver():
                if self._bucket(message.bucket).took_over(event, message):
                    self._settle(out)
            case CopySum():
                self._bucket(message.bucket).copy_sum(event, message, out)
            case CopyHeard():
                if self._bucket(message.bucket).copy_heard(event, message, now, out):
                    self._report_copy(event.source.number, out)
                self._retry(now, out)
            case CopyAsked():
                self._bucket(message.bucket).copy_asked(event, message, out)
            case CopyBack():
                self._finished_by.forget()
                self._bucket(message.bucket).copy_back(event, message, now, out)
                self._retry(now, out)
            case Clocks():
                if self.clocks.hear(event.source, message, out):
                    self._answer_all(out)
                    self.clocks.tell(out)
            case ClocksHeard():
                self.clocks.heard(event.source, message, out)
            case _:
                raise PeerError(f"node {self.number} does not accept this message from {event.source}: {message}")

    def _bucket(self, name: Bucket) -> TreeBucket:
        bucket = self.buckets.get(name)
        if bucket is None:
            raise PeerError(f"{name} is not a bucket of this model")
        self._touched.add(name)
        return bucket

    # Workers.

    def _request(self, event: Received, message: Push | Pull, now: float, out: Out) -> None:
        worker, terms = event.source.number, self.terms
        member = terms.members.get(worker)
        if member is None or member.incarnation != message.incarnation:
            out.append(Send(event.source, Gone(terms.view, message.incarnation, message.progress, message.bucket)))
            return
        attached = terms.attached.get(worker)
        if attached is None or attached.node != self.number or attached.since > message.view or terms.place is None:
            out.append(Send(event.source, moved(terms.view, message)))
            return
        bucket = self._bucket(message.bucket)
        if any(given == attached.since or given < 0 for given in bucket.missing.values()):
            self._waiting.append(event)
            return
        if isinstance(message, Pull):
            bucket.pull(event, message, out)
            return
        between = sum(bucket.contained().values()) - bucket.answered_at.get(worker, 0)
        if bucket.push(event, message, now, out):
            self.tally.take(worker, message)
            self.staleness[max(0, between)] += 1
            self._answer_all(out)

    def _retry(self, now: float, out: Out) -> None:
        """Handle requests that waited for updates to be stored."""
        waiting, self._waiting = self._waiting, []
        for event in waiting:
            self._judge(event, now, out)

    def _judge(self, event: Received, now: float, out: Out) -> None:
        """Handle a message that has waited; an error closes the connection to its sender."""
        try:
            self._receive(event, now, out)
        except PeerError as error:
            out.append(Reject(event.source, str(error)))

    def _answer_all(self, out: Out) -> None:
        if self.settings.consistency.kind != EVENTUAL:
            for bucket in self.buckets.values():
                bucket.answer(out)

    # Consistency.

    def _finished(self, without: int = 0) -> int:
        """The least number of iterations that this node's live workers have finished; `without`: if it has none."""
        members = [each for each in self.terms.workers_of(self.number) if each.first is not None]
        found = [max(each.first or 0, self._finished_by.worker(each.worker, each.incarnation)) for each in members]
        return min(found, default=without)

    def _pushed(self, worker: int, incarnation: int) -> Iterator[int]:
        return (bucket.held.progress(worker, incarnation) for bucket in self.buckets.values())

    def _own_clock(self) -> int:
        """The clock that this node publishes. With `approximate`, an update counts if it is there in all buckets."""
        if self.settings.consistency.kind == APPROXIMATE:
            return min(sum(bucket.contained().values()) for bucket in self.buckets.values())
        return self._finished()

    def _v(self) -> int:
        """How many iterations all workers have finished, as far as this node knows."""
        if self.settings.consistency.kind == SSP:
            return self.clocks.least(self._finished()) or 0
        if self.settings.consistency.kind == BSP:
            return 1 + min(bucket.closed for bucket in self.buckets.values() if isinstance(bucket, RoundBucket))
        return self._finished()

    def _may_answer(self, progress: int) -> bool:
        consistency = self.settings.consistency
        if consistency.kind == EVENTUAL:
            return True
        own = self._own_clock()
        least = self.clocks.least(own)
        if least is None:
            return True
        if consistency.kind == SSP:
            return progress < least + consistency.s
        return own - least < consistency.s

    # Views.

    def _adopt(self, view: View, now: float, out: Out) -> None:
        if view.view <= self.terms.view and self._begun:
            self._start(view, now, out)
            return
        if view.view < self.terms.view:
            return
        self._started = True
        before = self.terms.members
        self.terms.adopt(view)
        self.clocks.adopt()
        self.clocks.limit = None
        for worker, member in before.items():
            after = self.terms.members.get(worker)
            if after is None or after.incarnation != member.incarnation:
                self._remove(worker, member.incarnation, out)
        for name, bucket in self.buckets.items():
            self._finished_by.forget()
            if self._begun:
                bucket.adopt(now, out)
            else:
                bucket.restore(self._checkpoint.pop(name, None), now, out)
        self._finished_by.forget()
        self._begun = True
        self._reports_due = self.terms.place is not None and any(each.first is None for each in view.members)
        self._settle(out)
        self._answer_all(out)
        waiting, self._deferred = [*self._deferred, *self._waiting], []
        self._waiting = []
        for event in waiting:
            self._judge(event, now, out)

    def _start(self, view: View, now: float, out: Out) -> None:
        """The engine announces the first view: a node without workers begins its first round."""
        if not self._started and view.view == self.terms.view:
            self._started = True
            for bucket in self.buckets.values():
                bucket.advance(now, out)

    def _remove(self, worker: int, incarnation: int, out: Out) -> None:
        """Answer what a worker that is not a member any more still asks for."""
        for bucket in self.buckets.values():
            request = bucket.requests.get(worker)
            if request is not None and request.message.incarnation == incarnation:
                del bucket.requests[worker]
                gone = Gone(self.terms.view, incarnation, request.message.progress, bucket.name)
                out.append(Send(worker_id(worker), gone))

    def _report_for_joiners(self, out: Out) -> None:
        """Tell the coordinator how far the workers are, and keep to it until it names the joiner's first iteration."""
        if not self._reports_due:
            return
        rounds = [bucket for bucket in self.buckets.values() if isinstance(bucket, RoundBucket)]
        if all(bucket.opened for bucket in rounds):
            self._reports_due = False
            largest = max([0, *(each.latest for each in rounds)]) if rounds else max(self._v(), self.clocks.highest)
            self.clocks.limit = largest
            out.append(Send(COORDINATOR, Report(self.terms.view, largest)))

    def _settle(self, out: Out) -> None:
        """A node that leaves tells the coordinator when all that it held is stored elsewhere."""
        leaves = any(each.number == self.number for each in self.terms.tree.leaving)
        if leaves and not any(bucket.held.gifts for bucket in self.buckets.values()):
            out.append(Send(COORDINATOR, Settled(self.terms.view)))

    def _report_stored(self, out: Out) -> None:
        """Tell the coordinator which origins of other nodes this one has stored."""
        place = self.terms.place
        if place is None or not self._begun or len(place.origins) == 1 + len(self._reported):
            return
        self._reported.intersection_update(place.origins)
        for origin in place.origins:
            missing = any(origin in bucket.missing for bucket in self.buckets.values())
            if origin not in self._reported and origin != self.number and not missing:
                self._reported.add(origin)
                empty = any(origin in bucket.begun_empty for bucket in self.buckets.values())
                stored = OriginStored(self.terms.view, place.incarnation, origin, empty)
                out.append(Send(COORDINATOR, stored))

    def _report_copy(self, keeper: int, out: Out) -> None:
        streams = [bucket.streams.get(keeper) for bucket in self.buckets.values()]
        if all(each is not None and each.heard_position >= 0 for each in streams):
            stream = streams[0]
            assert stream is not None
            since, mine, _ = stream.session
            out.append(Send(COORDINATOR, CopyKept(self.terms.view, mine, keeper, since)))
