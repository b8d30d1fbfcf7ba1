"""Handovers between the servers of one model: each moves one bucket in one message.

1. The server that is to hold a bucket connects to the server that holds it, and proves with a secret that it is a
   server of this model. It asks for the bucket (`Take`) once it has adopted the view, so that it can check what it
   receives.
2. The server that gives a bucket away keeps the message until the other server asks for it.
3. The receiver checks a handover before it keeps any of it: the bucket is expected from this sender in this view, the
   arrays have the right types and lengths. (Numbers are in range, or the message is not decoded.) After an invalid
   handover the receiver closes the connection. The bucket is lost, so the run fails.
4. If a server dies, the buckets that a view names as lost are not expected from anyone (nodes/server/recovery.py).
   Others may still be on their way.
5. With backups, a bucket can come from the server that held it, or from one that stands in for a dead server
   (nodes/server/backed_shard.py). A server asks both, and the node takes what comes first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np

from syncline.engines.net.connection import Connection
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Payload
from syncline.messages import ALIGN, Handover, Holders, View
from syncline.nodes.bucket_map import BucketMap, bucket_map_of

_VALUE = np.dtype(np.float32).str
_BYTE = np.dtype(np.uint8).str


class _Expected(NamedTuple):
    """The servers that a bucket can come from, and the view that says so."""

    givers: frozenset[int]
    since: int


class HandoverOutbox:
    """Buckets that now belong to other servers, until those servers ask for them."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[Handover, Payload]]] = {}
        self._asked: dict[int, tuple[Connection, int]] = {}

    def put(self, server: int, message: Handover, payload: Payload) -> None:
        """Keep this for a server; the payload is a copy that does not change."""
        self._waiting.setdefault(server, []).append((message, payload))

    def ask(self, server: int, wire: Connection, view: int) -> None:
        """A server has adopted this view, and asks for the buckets that it holds there."""
        self._asked[server] = (wire, view)

    def forget(self, server: int, wire: Connection) -> None:
        """The connection of a server has ended."""
        if server in self._asked and self._asked[server][0] is wire:
            del self._asked[server]

    def due(self) -> Iterable[tuple[Connection, Handover, Payload]]:
        """Remove and return the handovers that can be sent now."""
        for server, (wire, view) in self._asked.items():
            for message, payload in self._waiting.pop(server, ()):
                if message.view <= view:
                    yield wire, message, payload
                else:
                    self._waiting.setdefault(server, []).append((message, payload))


class HandoverInbox:
    """Buckets that this server expects from other servers."""

    def __init__(self, me: int, holders: Holders, memory: Mapping[str, str]) -> None:
        """`memory`: the names and types of the arrays that the rule keeps for each bucket."""
        self._me = me
        self._holders = holders
        self._memory = memory
        self._from: dict[Bucket, _Expected] = {}
        self._late: dict[Bucket, _Expected] = {}
        """With backups: buckets that have arrived, and that may come a second time."""
        self._had: defaultdict[Bucket, set[int]] = defaultdict(set)
        """With backups: the servers that have held each bucket since the move began that is in progress."""
        self._moving_since = 0
        self.view = 0
        """The view in which the current placement began."""

    def adopt(self, view: View) -> set[int]:
        """Adopt a view, and return the servers that must hand over buckets to this one."""
        lost = {loss.bucket for loss in view.lost}
        if view.holders == self._holders and not lost and not view.stand_ins:
            return set()
        before, self._holders, self.view = bucket_map_of(self._holders), view.holders, view.view
        mine = view.holders[self._me] if self._me < len(view.holders) else ()
        expected, self._from = self._from, {}
        self._note_givers(before, view)
        for bucket in mine:
            around = before.around(bucket)
            if around is None:
                raise PeerError(f"it sent a view in which {bucket} joins buckets that were separate")
            giver = before.holder[around].number
            if bucket in lost or (giver == self._me and bucket not in expected):
                continue
            since = view.view if giver != self._me else expected[bucket].since
            givers = self._givers(bucket, view) if view.moving_since else frozenset({giver})
            if givers:
                self._from[bucket] = _Expected(givers, since)
        return {each for found in self._from.values() for each in found.givers if found.since == view.view or self._had}

    def _note_givers(self, before: BucketMap, view: View) -> None:
        """With backups: remember who has held each bucket in this move."""
        if view.moving_since != self._moving_since:
            self._moving_since = view.moving_since
            self._had.clear()
            self._late.clear()
        for bucket, holder in bucket_map_of(view.holders).holder.items() if view.moving_since else ():
            former = before.holder_of(bucket)
            if former is not None and former != holder:
                self._had[bucket].add(former.number)

    def _givers(self, bucket: Bucket, view: View) -> frozenset[int]:
        """The other servers that can hand over this bucket: those that have held it, or that stand in for those."""
        acting = {each.server: each.backup for each in view.stand_ins}
        return frozenset(acting.get(number, number) for number in self._had[bucket]) - {self._me}

    def expected(self) -> tuple[Bucket, ...]:
        return tuple(self._from)

    def __contains__(self, bucket: Bucket) -> bool:
        return bucket in self._from

    def awaits(self, server: int) -> bool:
        """Is a bucket expected from this server?"""
        return any(server in found.givers for found in self._from.values())

    def arrived(self, bucket: Bucket) -> None:
        found = self._from.pop(bucket, None)
        if found is not None and self._moving_since:
            self._late[bucket] = found

    def check(self, server: int, message: Handover, size: int) -> None:
        """Raise `PeerError` unless this server is to hand over this bucket, and the message is valid."""
        bucket = message.bucket
        found = self._from.get(bucket) or self._late.get(bucket)
        if found is None or server not in found.givers:
            raise PeerError(f"it handed over {bucket}, which is not expected from it")
        since = self._moving_since or found.since
        if not since <= message.view <= self.view:
            raise PeerError(f"it handed over {bucket} in view {message.view} instead of {since}")
        if any(each.request.bucket != bucket for each in message.parked):
            raise PeerError(f"it handed over {bucket} with a request for another bucket")
        self._check_arrays(message, size)

    def _check_arrays(self, message: Handover, size: int) -> None:
        values = message.bucket.size
        if tuple(message.memory) != tuple(self._memory):
            raise PeerError(f"it handed over {message.bucket} with the state of another rule")
        expected = [_VALUE, *self._memory.values(), *(_VALUE for _ in message.residual)]
        updates = message.arrays[len(expected) :]
        if tuple(message.arrays[: len(expected)]) != tuple((kind, values) for kind in expected):
            raise PeerError(f"it handed over {message.bucket} with arrays of the wrong type or length")
        copies = len({each.array for each in message.reads})
        if len(updates) != sum(not each.empty for each in message.kept) + len(message.last) + copies:
            raise PeerError(f"it handed over {message.bucket} with {len(updates)} updates, but lists another number")
        if any(not 0 <= each.array < copies for each in message.reads) or any(
            given != (_VALUE, values) for given in map(tuple, updates[len(updates) - copies :])
        ):
            raise PeerError(f"it handed over {message.bucket} with invalid copies of what workers have read")
        for kind, count in updates:
            if (kind, count) != (_VALUE, values) and not (kind == _BYTE and 0 < count <= VALUE_BYTES * values):
                raise PeerError(f"it handed over {message.bucket} with an invalid update: {count} x {kind!r}")
        total = 0
        for kind, count in message.arrays:
            total += count * np.dtype(kind).itemsize
            total += -total % ALIGN
        if size != total:
            raise PeerError(f"it handed over {message.bucket} in {size:,} bytes instead of {total:,}")
