"""The messages between a server and its backup (backed_shard.py)."""

from __future__ import annotations

import numpy as np

from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket
from syncline.messages import (
    ALIGN,
    BucketCopy,
    CopyReport,
    Count,
    Handover,
    Message,
    NodeId,
    Pull,
    Push,
    Seconds,
    View,
    WorkerNumber,
)


class TimerNote(Message, frozen=True, tag="timer_note", gc=False):
    """In a log: a timer of a bucket has expired."""

    bucket: Bucket
    number: Count


class ChangeNote(Message, frozen=True, tag="change_note", gc=False):
    """In a log: the server continues with another sync model, given as text."""

    sync: str
    release: str


class RenewNote(Message, frozen=True, tag="renew_note", gc=False):
    """In a log: the server begins another log, and continues with what it has packed for that."""


Logged = Push | Pull | View | Handover | CopyReport | BucketCopy | TimerNote | ChangeNote | RenewNote
"""What stands in a log."""


class LogStart(Message, frozen=True, tag="log_start"):
    """Server to its backup: the state that the log begins with, after event `number`; `entries` entries complete it."""

    since: Count
    """The view that named this backup first; it names the log."""
    number: Count
    now: Seconds
    state: View
    """The view that the server had."""
    sync: str
    release: str
    limit: Count | None
    """See `ShardTerms.limit`; None: there is no limit."""
    timers: Count
    settled: bool
    last_loss: Count
    due: tuple[tuple[Bucket, Count], ...]
    """The buckets that the server waits for, each with the view with which its move began."""
    entries: Count
    fresh: bool = False
    """Nothing has happened yet: the state is the one that all nodes begin with."""


class LogEntry(Message, frozen=True, tag="log_entry", gc=False):
    """Server to its backup: event `number`, with the payload of that event."""

    since: Count
    number: Count
    now: Seconds
    """When the server handled it, by the server's clock."""
    event: Logged
    source: NodeId | None = None

    @property
    def bucket(self) -> Bucket | None:
        """The bucket that the event is about, if it is about one."""
        return getattr(self.event, "bucket", None)

    @property
    def size(self) -> int:
        """The bytes of a payload that a codec encoded; 0: the payload has another form."""
        return getattr(self.event, "size", 0)


class LogTaken(Message, frozen=True, tag="log_taken", gc=False):
    """Backup to server: it has handled all events up to `number`, and copied or read their payloads."""

    since: Count
    number: Count


class BackedUp(Message, frozen=True, tag="backed_up", gc=False):
    """Server to coordinator: the backup that view `since` named has everything; the server needs no earlier one."""

    since: Count

    @property
    def notice(self) -> str:
        return "its backup is complete" if self.since else ""  # at the start nobody needs to know


class LostLog(Message, frozen=True, tag="lost_log", gc=False):
    """Server to coordinator: it cannot reach the backup that view `since` named; it needs another log."""

    since: Count


class NoBackup(Message, frozen=True, tag="no_backup", gc=False):
    """Server to coordinator: it should hand over what a dead server held, but does not have all of it."""

    server: WorkerNumber


LOG_MESSAGES: tuple[type[Message], ...] = (LogStart, LogEntry, LogTaken, BackedUp, LostLog, NoBackup)


def payload_type(message: Message, size: int) -> str:
    """The type of the values in a payload of `size` bytes; `PeerError` if this message cannot have such a payload."""
    event = message.event if type(message) is LogEntry else message
    if type(event) is Push and not event.empty:
        expected = event.size or event.bucket.size * VALUE_BYTES
        if size == expected <= event.bucket.size * VALUE_BYTES:
            return _BYTES if event.size else _VALUES
    elif type(event) is Handover and size == sum(_padded(kind, count) for kind, count in event.arrays):
        return _BYTES
    elif type(event) is BucketCopy and size == event.bucket.size * VALUE_BYTES:
        return _VALUES
    raise PeerError(f"it sent {type(message).__name__} with a payload of {size:,} bytes")


_BYTES, _VALUES = np.dtype(np.uint8).str, np.dtype(np.float32).str


def _padded(kind: str, count: int) -> int:
    if kind not in (_BYTES, _VALUES):
        raise PeerError(f"it sent arrays of type {kind!r}")
    size = count * np.dtype(kind).itemsize
    return size + -size % ALIGN
