"""A server's copy of another server's shard: it handles the same events in the same order, and drops the effects."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import get_args

from syncline.effects import Change, Effect, Event, Received, Send, Timer
from syncline.errors import PeerError
from syncline.layout import Bucket, Payload, Values
from syncline.messages import COORDINATOR, Handover, NodeId, View, server_id
from syncline.nodes.bucket_map import bucket_map_of
from syncline.nodes.server.log_messages import ChangeNote, LogEntry, Logged, LogStart, RenewNote, TimerNote
from syncline.nodes.server.sent_handovers import SentHandovers
from syncline.nodes.server.shard import Shard, ShardState
from syncline.nodes.server.shard_terms import ShardTerms
from syncline.spec import part_of, write
from syncline.sync import Release

_LOGGED = frozenset(get_args(Logged))


class Follower:
    """The backup's copy of a shard."""

    def __init__(self, server: int, start: LogStart, terms: ShardTerms, first: Mapping[Bucket, Values]) -> None:
        """`first`: the first parameters of the server's buckets, if the log begins with them."""
        terms.change(part_of("sync", start.sync), Release(start.release))
        self.since = start.since
        self.number = start.number
        self.shard = Shard(server, first, terms, start.state)
        self._missing = start.entries
        self._start = bucket_map_of(start.state.holders)
        self._broken = False
        """Whether a part of the log is missing, because a connection has ended."""
        self._now = start.now
        self._sent = SentHandovers()
        if start.fresh:
            self.shard.all_hold(start.state.members)
        else:
            limit = inf if start.limit is None else start.limit
            state = ShardState(limit, start.timers, start.settled, start.last_loss, dict(start.due))
            self.shard.go_on_from(state)

    @property
    def is_complete(self) -> bool:
        """Whether the state with which the log begins has arrived, and everything since then."""
        return not self._missing and not self._broken

    def take(self, entry: LogEntry, payload: Payload | None) -> None:
        """Handle the next event of the log."""
        self._now = entry.now
        message = entry.event
        self._broken |= entry.number != self.number + (not self._missing)
        if self._broken:
            return
        if self._missing:
            self._missing -= 1
            if type(message) is Handover:
                self._take_state(message, payload)
                return
        self.number = entry.number
        if type(message) is RenewNote:
            self.shard.renew(entry.now, [])
        else:
            self._handle(event_of(message, entry.source, payload))

    def _take_state(self, message: Handover, payload: Payload | None) -> None:
        """Take over a bucket that the server holds, or keep one that it has handed over."""
        assert payload is not None, "a bucket has values"
        holder = self._start.holder[message.bucket]
        if holder == server_id(self.shard.number):
            self.shard.install(message, payload, self._now, [])
        else:
            self._sent.keep([Send(holder, message, payload.copy())])

    def stand_in(self, view: View) -> list[Send]:
        """The server is dead: adopt the view that says so, and return the handovers of all that it held."""
        self._handle(Received(COORDINATOR, view))
        self._sent.forget(view)
        return self._sent.again(view, everything=True)

    def _handle(self, event: Event) -> None:
        effects: list[Effect] = []
        self._sent.returned(event)
        try:
            effects = self.shard.handle(event, self._now)
        except PeerError:
            return  # the server has rejected the sender of this message
        finally:
            if type(event) is Received and type(event.message) is View:
                self._sent.forget(event.message)
            self._sent.keep(effects)


def note_of(event: Event) -> Logged:
    """An event as it stands in a log."""
    match event:
        case Received(message=message) if type(message) in _LOGGED:
            return message  # type: ignore[return-value]
        case Timer(("ask", Bucket() as bucket, int(number))):
            return TimerNote(0, bucket, number)
        case Change(model, release):
            return ChangeNote(0, write(model), "" if release is None else str(release))
    raise PeerError(f"a server does not accept this event: {event}")


def event_of(note: Logged, source: NodeId | None, payload: Payload | None) -> Event:
    """The event that stands in a log."""
    if type(note) is TimerNote:
        return Timer(("ask", note.bucket, note.number))
    if type(note) is ChangeNote:
        return Change(part_of("sync", note.sync), Release(note.release) if note.release else None)
    assert source is not None, "a message has a source"
    return Received(source, note, payload)
