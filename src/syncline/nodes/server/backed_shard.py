"""The node of one server in a run with backups: its own shard, and copies of the shards of other servers.

1. A view names a backup for each server. A server writes each event that its shard handles into a log for its backup:
   messages with their payloads, timers, changes of the sync model, with the time of the event.
2. The backup has a copy of that shard (follower.py). It handles the events of the log in the same order, and drops
   the effects. All that a shard decides follows from its events, so both shards are always in the same state.
3. The server holds back what its shard sends, until the backup has handled all events up to it. Then the backup has
   also read the payloads, or has copied what it needs longer. So a worker may overwrite its update after an answer.
4. A log begins with the state of the shard. The server packs its buckets as for a handover, and continues with what the
   backup unpacks (`Shard.renew`). What waits for a view or a bucket follows as entries. A log does not begin while a
   bucket is restored from the workers' copies.
5. If a server dies, the next view says that its backup stands in for it. The copy of the shard adopts this view like
   any server that holds nothing any more: it hands its buckets over to the servers that hold them now, mostly to the
   backup's own shard. So a take-over is a move, and for workers the same rules hold (docs/design/moves.md).
6. A server keeps what it has handed over until the move is complete. If the receiver dies, the server hands it over
   again, to the new holder. Of several handovers of a bucket the first one counts. That of a stand-in comes first at
   its own server, because it can contain later updates; so a handover that arrives before its view waits.
7. If a server changes to another backup, it writes both logs until the coordinator has heard that the new one is
   complete (`BackedUp`). If a backup has died, the server has none until the new one has the state; then it holds back
   everything until that.
8. If the connection to a backup has ended although both servers live, a part of the log is missing. Then the server
   asks for another log (`LostLog`), and holds back everything until that.
9. If a backup that should stand in has not received the whole state, it says so (`NoBackup`). Then the buckets are
   restored from the workers' copies.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf

from syncline.effects import Change, Effect, Event, Received, Reject, Send, ServerLost, kept
from syncline.errors import PeerError
from syncline.layout import Bucket, Payload, Values
from syncline.messages import COORDINATOR, Backup, Handover, Member, Message, NodeId, Params, View, server_id
from syncline.nodes.driver import Observer
from syncline.nodes.protocol import Counts
from syncline.nodes.server.backups import first_backups
from syncline.nodes.server.follower import Follower, note_of
from syncline.nodes.server.log_messages import (
    BackedUp,
    LogEntry,
    Logged,
    LogStart,
    LogTaken,
    LostLog,
    NoBackup,
    RenewNote,
)
from syncline.nodes.server.sent_handovers import SentHandovers
from syncline.nodes.server.shard import Shard
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.spec import write


class EventLog:
    """A log that a server writes for a backup."""

    __slots__ = ("since", "taken", "to")

    def __init__(self, backup: Backup) -> None:
        self.to = server_id(backup.backup)
        self.since = backup.since
        self.taken = -1
        """The last event that the backup has handled."""


class BackedShard:
    """The node of one server, whose shard another server follows."""

    def __init__(
        self,
        shard: Shard,
        view: View,
        terms_of: Callable[[int], ShardTerms],
        first: Mapping[Bucket, Values] | None = None,
    ) -> None:
        """`view`: that of the shard. `terms_of`: makes the terms of a server's shard.

        `first`: the first parameters of the model, if all servers have them without a message.
        """
        self.shard = shard
        self.number = shard.number
        self._terms_of = terms_of
        self._first = first
        self._view = view
        """The view of the shard."""
        self._announced = False
        self._count = 0
        """The number of the last event that the shard has handled."""
        self._logs: dict[int, EventLog] = {}
        """The logs that this server writes, by the view that named the backup first."""
        self._wanted: list[Backup] = []
        """The backups for which no log has begun yet."""
        self._held: deque[tuple[int, Send]] = deque()
        """What the shard sends, each with the number of the event, until the backups have handled that event."""
        self._copied: dict[Bucket, tuple[int, Payload]] = {}
        """The last copy of each bucket's parameters in such an answer, with its version."""
        self._sent = SentHandovers()
        self._early: list[Received] = []
        """Handovers that wait for their view."""
        self._followers: dict[int, Follower] = {}
        """The copies of other servers' shards, by server."""
        self._taken_over = 0
        """How many buckets of dead servers this one has handed over."""
        self._observer: tuple[NodeId, Observer] | None = None

    # What engines ask of a keeper.

    def params(self) -> dict[Bucket, Values]:
        return self.shard.params()

    def param(self, bucket: Bucket) -> Values | None:
        return self.shard.param(bucket)

    def counts(self) -> Counts:
        return self.shard.counts()._replace(taken_over=self._taken_over)

    def remembered(self, bucket: Bucket) -> Mapping[str, Values]:
        return self.shard.remembered(bucket)

    def remember(self, bucket: Bucket, name: str, values: Values) -> None:
        self.shard.remember(bucket, name, values)

    def in_force(self) -> Change:
        return self.shard.in_force()

    def all_hold(self, members: Iterable[Member]) -> None:
        self.shard.all_hold(members)

    @property
    def at_rest(self) -> bool:
        return True

    @property
    def sums(self) -> int:
        return 1

    def observe(self, me: NodeId, observer: Observer) -> None:
        """Let an observer see what the shard decides; what leaves the server leaves later."""
        self._observer = (me, observer)

    def followed(self, server: int) -> Shard | None:
        """The copy of another server's shard, if this server is its backup."""
        follower = self._followers.get(server)
        return None if follower is None else follower.shard

    # Events.

    def handle(self, event: Event, now: float) -> list[Effect]:
        out: list[Effect] = []
        if type(event) is Received:
            message: Message = event.message
            kind = type(message)
            if kind is LogTaken:
                self._hear_taken(event.source, message, out)  # type: ignore[arg-type]
                return out
            if kind is LogEntry:
                self._follow(event, message, out)  # type: ignore[arg-type]
                return out
            if kind is LogStart:
                self._begin_following(event.source, message, out)  # type: ignore[arg-type]
                return out
            if kind is View:
                self._adopt(event, message, now, out)  # type: ignore[arg-type]
                return out
            if kind is Handover and message.view > self._view.view:
                self._early.append(kept(event))
                return out
        elif type(event) is ServerLost:
            backups = [log for log in self._logs.values() if log.to.number == event.server]
            out += [Send(COORDINATOR, LostLog(self._view.view, log.since)) for log in backups]
            return out
        self._step(event, now, out)
        if self._wanted:
            self._begin_logs(now, out)
        return out

    def _step(self, event: Event, now: float, out: list[Effect]) -> None:
        """Let the shard handle an event, after it was written into the logs."""
        self._count += 1
        if self._logs:
            source, payload = (event.source, event.payload) if type(event) is Received else (None, None)
            self._write(note_of(event), source, payload, now, out)
        self._sent.returned(event)
        try:
            effects = self.shard.handle(event, now)
        except PeerError as error:
            if type(event) is not Received or event.source.role != "worker":
                raise
            effects = [Reject(event.source, str(error))]
        if self._observer is not None:
            me, observer = self._observer
            observer.handled(me, event, effects, now)
        self._send(effects, out)

    def _send(self, effects: Sequence[Effect], out: list[Effect]) -> None:
        """Hold back what the shard sends, if there is a backup."""
        self._sent.keep(effects)
        if not self._logs:
            out.extend(effects)
            return
        for effect in effects:
            if type(effect) is Send:
                self._held.append((self._count, self._lasting(effect)))
            else:
                out.append(effect)

    def _lasting(self, send: Send) -> Send:
        """An answer that carries the parameters themselves, with a copy of them instead."""
        message = send.message
        if type(message) is not Params or send.payload is None:
            return send
        bucket = self.shard.buckets.get(message.bucket)
        if bucket is None or send.payload is not bucket.params:
            return send
        version, copy = self._copied.get(message.bucket, (-1, send.payload))
        if version != message.version:
            copy = send.payload.copy()
            self._copied[message.bucket] = (message.version, copy)
        return Send(send.to, message, copy)

    def _release(self, out: list[Effect]) -> None:
        """Send what all backups know of."""
        known, held = min((log.taken for log in self._logs.values()), default=inf), self._held
        while held and held[0][0] <= known:
            out.append(held.popleft()[1])

    # The logs of this server.

    def _write(
        self, note: Logged, source: NodeId | None, payload: Payload | None, now: float, out: list[Effect]
    ) -> None:
        for log in self._logs.values():
            entry = LogEntry(self._view.view, log.since, self._count, now, note, source)
            out.append(Send(log.to, entry, payload))

    def _hear_taken(self, source: NodeId, message: LogTaken, out: list[Effect]) -> None:
        log = self._logs.get(message.since)
        if log is None or log.to != source:
            return
        if log.taken < 0:
            out.append(Send(COORDINATOR, BackedUp(self._view.view, log.since)))
        log.taken = max(log.taken, message.number)
        self._release(out)

    def _begin_logs(self, now: float, out: list[Effect], *, first: bool = False) -> None:
        """Begin the logs that the view asks for; `first`: nothing has happened yet."""
        if self.shard.is_restoring:
            return
        wanted, self._wanted = self._wanted, []
        for backup in wanted:
            self._begin_log(EventLog(backup), now, out, fresh=first and self._first is not None)

    def _begin_log(self, log: EventLog, now: float, out: list[Effect], *, fresh: bool) -> None:
        """Send the state of the shard to a backup; `fresh`: the backup has it."""
        shard, effects = self.shard, list[Effect]()
        state, release = shard.state(), str(shard.terms.release)
        waiting = shard.waiting()
        packed: list[tuple[Handover, Payload]] = []
        if not fresh:
            self._count += 1
            self._write(RenewNote(0), None, None, now, out)
            packed = [*shard.renew(now, effects), *self._sent.everything()]
        self._logs[log.since] = log
        limit = None if state.limit == inf else int(state.limit)
        counts = (limit, state.timers, state.settled, state.last_loss, tuple(state.due_since.items()))
        entries = len(packed) + len(waiting)
        head = (self._view.view, log.since, self._count, now, self._view, write(shard.terms.model), release)
        out.append(Send(log.to, LogStart(*head, *counts, entries, fresh)))
        for message, payload in packed:
            out.append(Send(log.to, self._state_entry(log, message, None, now), payload))
        for event in waiting:
            out.append(Send(log.to, self._state_entry(log, note_of(event), event.source, now), event.payload))
        self._send(effects, out)

    def _state_entry(self, log: EventLog, note: Logged, source: NodeId | None, now: float) -> LogEntry:
        return LogEntry(self._view.view, log.since, self._count, now, note, source)

    # Views.

    def _adopt(self, event: Received, view: View, now: float, out: list[Effect]) -> None:
        first = view.view == self._view.view and not self._announced and not self._count
        if view.view <= self._view.view and not first:
            return
        backups = view.backups or (first_backups(view.holders, view.view) if first else ())
        mine = {each.since: each for each in backups if each.server == self.number}
        self._logs = {since: log for since, log in self._logs.items() if since in mine}
        self._wanted = [each for since, each in mine.items() if since not in self._logs]
        self._begin_logs(now, out, first=first)
        self._release(out)
        self._announced = True
        if not first:
            known, self._view = self._view.view, view
            self._sent.forget(view)
            self._step(event, now, out)
            self._stand_in(view, known, now, out)
            for send in self._sent.again(view, everything=False):
                self._hand_over(server_id(self.number), send, now, out)
            early, self._early = self._early, []
            for each in early:
                out += self.handle(each, now)
            self._begin_logs(now, out)
        self._forget_followers(view, backups)
        self._release(out)

    def _stand_in(self, view: View, known: int, now: float, out: list[Effect]) -> None:
        """Hand over what dead servers held, for which this one stands in since the view `known`."""
        for each in view.stand_ins:
            if each.backup != self.number or each.view <= known:
                continue
            follower = self._followers.pop(each.server, None)
            if follower is None or follower.since != each.since or not follower.is_complete:
                out.append(Send(COORDINATOR, NoBackup(view.view, each.server)))
                continue
            self._taken_over += len(follower.shard.buckets)
            for send in follower.stand_in(view):
                self._hand_over(server_id(each.server), send, now, out)

    def _hand_over(self, source: NodeId, send: Send, now: float, out: list[Effect]) -> None:
        """Send a handover; if it is for this server, the shard handles it at once."""
        if send.to == server_id(self.number):
            self._step(Received(source, send.message, send.payload), now, out)
        else:
            self._sent.keep([send])
            out.append(send)

    def _forget_followers(self, view: View, backups: Iterable[Backup]) -> None:
        """Forget the copies of shards whose backup is another server now."""
        named = {(each.server, each.since) for each in backups if each.backup == self.number}
        self._followers = {
            server: each
            for server, each in self._followers.items()
            if (server, each.since) in named or each.since > view.view
        }

    # The logs of other servers.

    def _begin_following(self, source: NodeId, start: LogStart, out: list[Effect]) -> None:
        known = self._followers.get(source.number)
        if known is not None and known.since >= start.since:
            return
        first: dict[Bucket, Values] = {}
        if start.fresh:
            assert self._first is not None, "all servers begin alike"
            first = {name: self._first[name].copy() for name in start.state.holders[source.number]}
        follower = Follower(source.number, start, self._terms_of(source.number), first)
        self._followers[source.number] = follower
        self._acknowledge(source, follower, out)

    def _follow(self, event: Received, entry: LogEntry, out: list[Effect]) -> None:
        follower = self._followers.get(event.source.number)
        if follower is not None and follower.since == entry.since:
            follower.take(entry, event.payload)
            self._acknowledge(event.source, follower, out)

    def _acknowledge(self, source: NodeId, follower: Follower, out: list[Effect]) -> None:
        if follower.is_complete:
            out.append(Send(source, LogTaken(self._view.view, follower.since, follower.number)))
