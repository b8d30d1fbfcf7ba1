"""What goes from server to server, of one model: buckets that move, each in one message.

1. Whoever is to hold a bucket calls the server that holds it now, says the word that only servers of this model know,
   and asks (`Take`) once it has adopted the view: so nothing arrives before it can be checked.
2. Whoever gives a bucket away keeps the message until it is asked for.
3. A handover is checked before anything of it is kept: its bucket is awaited, from this sender, in this view; its
   arrays have the types and lengths that they must have; its numbers are in range. A bad one costs its sender the
   connection, and since the bucket is lost with it, the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite

import numpy as np

from syncline.engines.net.connection import Connection
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket, Payload
from syncline.messages import ALIGN, Handover, Holders, View
from syncline.nodes.bucket_map import bucket_map_of
from syncline.rules import LARGEST

FAR = 1 << 62
"""No round, version or incarnation is as large."""

_VALUE = np.dtype(np.float32).str
_BYTE = np.dtype(np.uint8).str


class HandoverOutbox:
    """Buckets that are other servers' by now, until those ask for them."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[Handover, Payload]]] = {}
        self._asked: dict[int, tuple[Connection, int]] = {}

    def put(self, server: int, message: Handover, payload: Payload) -> None:
        """Keep this for a server; the payload is the handover's own copy, which nobody writes."""
        self._waiting.setdefault(server, []).append((message, payload))

    def ask(self, server: int, wire: Connection, view: int) -> None:
        """A server has adopted this view, and wants what is its own there."""
        self._asked[server] = (wire, view)

    def forget(self, server: int, wire: Connection) -> None:
        """This connection has ended."""
        if server in self._asked and self._asked[server][0] is wire:
            del self._asked[server]

    def due(self) -> Iterable[tuple[Connection, Handover, Payload]]:
        """Take out what can be sent now."""
        for server, (wire, view) in self._asked.items():
            for message, payload in self._waiting.pop(server, ()):
                if message.view <= view:
                    yield wire, message, payload
                else:
                    self._waiting.setdefault(server, []).append((message, payload))


class HandoverInbox:
    """Buckets that are to come from other servers."""

    def __init__(self, me: int, holders: Holders, memory: Mapping[str, str]) -> None:
        """`memory`: the names and types of the arrays that the rule keeps of a bucket."""
        self._me = me
        self._holders = holders
        self._memory = memory
        self._from: dict[Bucket, int] = {}
        """Which server each bucket comes from."""
        self.view = 0
        """The view that brought the present placement."""

    def adopt(self, view: View) -> set[int]:
        """A new view: the servers that have something for this one."""
        if view.holders == self._holders:
            return set()
        before, self._holders, self.view = bucket_map_of(self._holders), view.holders, view.view
        mine = view.holders[self._me] if self._me < len(view.holders) else ()
        self._from = {}
        for bucket in mine:
            around = before.around(bucket)
            if around is None:
                raise PeerError(f"a view in which {bucket} joins what was apart")
            giver = before.holder[around].number
            if giver != self._me:
                self._from[bucket] = giver
        return set(self._from.values())

    def __contains__(self, bucket: Bucket) -> bool:
        return bucket in self._from

    def awaits(self, server: int) -> bool:
        """Is something to come from this server?"""
        return server in self._from.values()

    def arrived(self, message: Handover) -> None:
        del self._from[message.bucket]

    def check(self, server: int, message: Handover, size: int) -> None:
        """Is this what this server is to hand over, and can it be what it says?"""
        bucket = message.bucket
        if self._from.get(bucket) != server:
            raise PeerError(f"a handover of {bucket}, which is not awaited from it")
        if message.view != self.view:
            raise PeerError(f"a handover of view {message.view}, where {bucket} moves in {self.view}")
        self._check_arrays(message, size)
        check_numbers(message)

    def _check_arrays(self, message: Handover, size: int) -> None:
        values = message.bucket.size
        if tuple(message.memory) != tuple(self._memory):
            raise PeerError(f"a handover of {message.bucket} with the memory of another rule")
        expected = [_VALUE, *self._memory.values(), *(_VALUE for _ in message.residual)]
        updates = message.arrays[len(expected) :]
        if tuple(message.arrays[: len(expected)]) != tuple((kind, values) for kind in expected):
            raise PeerError(f"a handover of {message.bucket} with other arrays than its own")
        if len(updates) != sum(not each.empty for each in message.kept) + len(message.last):
            raise PeerError(f"a handover of {message.bucket} with {len(updates)} updates, which is not what it says")
        for kind, count in updates:
            if (kind, count) != (_VALUE, values) and not (kind == _BYTE and 0 < count <= VALUE_BYTES * values):
                raise PeerError(f"a handover of {message.bucket} with an update of {count} x {kind!r}")
        total = 0
        for kind, count in message.arrays:
            total += count * np.dtype(kind).itemsize
            total += -total % ALIGN
        if size != total:
            raise PeerError(f"a handover of {message.bucket} with a payload of {size:,} bytes instead of {total:,}")


def check_numbers(message: Handover) -> None:
    """Are all numbers in a handover such as can be?"""
    rounds = [*(i for i, _ in message.pushed), *(each.i for each in message.kept)]
    rounds += [each.under for each in message.parked]
    who = [each for _, there in message.pushed for each in there]
    who += [(each.worker, each.incarnation) for each in message.kept]
    who += [(each.worker, each.request.incarnation) for each in message.parked]
    who += [(each.worker, each.incarnation) for each in message.last]
    who += [(worker, incarnation) for worker, incarnation, *_ in (*message.seen, *message.pulled)]
    progress = [i for _, _, i, _ in message.seen] + [i for _, _, i in message.pulled]
    progress += [each.request.progress for each in message.parked] + [message.applied, message.unruly]
    counts = [message.version, message.v, message.bound, *rounds, *(each.read for each in message.kept)]
    counts += [each.read for each in message.last]
    counts += [number for pair in who for number in pair]
    if not all(0 <= each < FAR for each in counts) or not all(-1 <= each < FAR for each in progress):
        raise PeerError(f"a handover of {message.bucket} with a number that is none")
    if any(each.request.bucket != message.bucket for each in message.parked):
        raise PeerError(f"a handover of {message.bucket} with a request for another bucket")
    rates = [each.lr for each in message.kept if each.lr is not None]
    steps = [seconds for _, each in message.steps for seconds in each]
    if not all(isfinite(each) and 0 <= each <= LARGEST for each in (*rates, *steps)):
        raise PeerError(f"a handover of {message.bucket} with a learning rate or a time that is none")
