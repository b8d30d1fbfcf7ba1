"""What a worker sends: its window of updates, and for each peer which ranges it is owed.

1. A range becomes due when its turn comes, and stays due until it is sent. When the link to a peer is free, the range
   that has been due for longest is sent, with everything that the peer lacks of it.
2. Between hosts, a worker sends to a few peers at a time, in the order in which they became due. Many connections at
   once would share a link unequally: some ranges would arrive much later than others, and workers would wait for them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from syncline.codecs import Codec
from syncline.draw import Draw
from syncline.effects import Effect, Send
from syncline.layout import Layout, Payload, Values
from syncline.messages import Message, NodeId, worker_id
from syncline.nodes.exchange.marks import Marks, turn_of
from syncline.nodes.exchange.messages import RangeSum
from syncline.nodes.exchange.ranges import FlatMap, Ranges
from syncline.nodes.exchange.window import NewestUpdate, WindowSums
from syncline.nodes.update_writer import Writer, bucket_codec, encoded_bytes, is_plain

MOST_WORKERS = 1 << 16
"""More than the number of any worker."""


AT_ONCE = 3
"""To how many peers on other hosts a worker sends at a time. With one, a host's link would be idle whenever another
worker sends to the same receiver.
"""


class OwedRanges:
    """What one peer has been sent, and what is due."""

    __slots__ = ("due", "flushing", "free", "near", "plain", "sent", "to", "writers")

    def __init__(self, peer: int, sent: Marks) -> None:
        self.to: NodeId = worker_id(peer)
        self.sent = sent
        self.due: list[int] = []
        self.free = True
        """Whether nothing is under way on the link."""
        self.near = False
        """Whether the two share memory."""
        self.flushing = False
        """Whether all that the peer lacked was made due, and no update has been made since."""
        self.plain = False
        """Whether sums are sent without the codec, together with what it has left."""
        self.writers: dict[int, Writer] = {}
        """The codec's memory of each range."""


class RangeSender:
    """Sends the ranges of one worker's updates to all its peers."""

    def __init__(self, number: int, incarnation: int, flat: FlatMap, layout: Layout, draw: Draw, codec: Codec) -> None:
        self._who = (number, incarnation)
        self._flat, self._layout, self._draw = flat, layout, draw
        self._codec = None if is_plain(codec) else codec
        self._peers: dict[int, OwedRanges] = {}
        self._totals: dict[tuple[int, int, int], Values] = {}
        """The sums that were made for the current event."""
        self._waiting: list[int] = []
        """The peers whose link is free and to which a range is due, but not yet sent."""
        self.at_once = 0
        """To how many peers on other hosts it sends at a time; 0: to all."""
        self.view = 0
        self.holds = False
        """Whether nothing may be forgotten, because a joiner may need it."""
        self.one_by_one = False
        """Whether each message carries one update."""
        self.parts = 0
        """Into how many ranges the parameters are divided; 0 before it begins."""

    def begin(self, parts: int, clock: int, accumulate: bool) -> None:
        """Begin with the update after `clock`."""
        self.parts, self.ranges = parts, Ranges(self._flat, parts)
        self.window = (
            WindowSums(self._flat.length, parts, clock) if accumulate else NewestUpdate(self._flat.length, clock)
        )
        self._accumulates = accumulate

    @property
    def is_plain(self) -> bool:
        """Whether sums are sent without a codec, which might leave something out."""
        return self._codec is None

    @property
    def clock(self) -> int:
        return self.window.clock

    @property
    def peers(self) -> Mapping[int, OwedRanges]:
        return self._peers

    # Peers.

    def add_peer(self, peer: int, sent: Marks | None = None) -> None:
        """Send to this peer too; `sent`: what it has of each range, None: everything up to now."""
        marks = Marks.in_turn(peer, self.clock, self.parts) if sent is None else sent
        owed = OwedRanges(peer, marks)
        self._peers = dict(sorted({**self._peers, peer: owed}.items(), key=self._turn))
        if sent is not None:
            self._owe_all(owed)

    def _turn(self, item: tuple[int, OwedRanges]) -> int:
        """Every worker begins with the next one after itself, so that not all send to the same one at a time."""
        return (item[0] - self._who[0] - 1) % MOST_WORKERS

    def drop_peer(self, peer: int) -> None:
        self._peers.pop(peer, None)
        if peer in self._waiting:
            self._waiting.remove(peer)

    def owes(self, peer: int) -> bool:
        """Whether a range is due or under way."""
        owed = self._peers.get(peer)
        return owed is not None and (bool(owed.due) or not owed.free)

    # Sending.

    def begin_event(self) -> None:
        """A new event: the payloads of the last one are not used any more."""
        self._totals.clear()

    def add(self, update: Values, out: list[Effect]) -> None:
        """The worker has made its next update: send every peer the range whose turn it is."""
        if self.window.is_due:
            self.window.tidy(None if self.holds else self._firsts())
        self.window.add(update)
        for peer, owed in self._peers.items():
            owed.flushing = False
            part = turn_of(peer, self.clock, self.parts)
            if part not in owed.due:
                owed.due.append(part)
            self.send_due(owed, out)

    def flush(self, out: list[Effect]) -> bool:
        """Send all peers everything that they lack, range by range. True: none lacks anything any more."""
        for owed in self._peers.values():
            self.flush_to(owed, out)
        return not any(self.owes(peer) for peer in self._peers)

    def flush_to(self, owed: OwedRanges, out: list[Effect]) -> None:
        """Send one peer everything that it lacks."""
        if not owed.flushing:
            owed.flushing = True
            self._owe_all(owed)
            self.send_due(owed, out)

    def _owe_all(self, owed: OwedRanges) -> None:
        if self._accumulates:
            lacking = [each for each in range(self.parts) if self._lacks(owed, each) and each not in owed.due]
            owed.due += sorted(lacking, key=owed.sent.values.__getitem__)

    def _lacks(self, owed: OwedRanges, part: int) -> bool:
        return owed.sent.values[part] < self.clock or (owed.flushing and part in owed.writers)

    def send_due(self, owed: OwedRanges, out: list[Effect]) -> None:
        """If the link is free, send the range that has been due for longest, or as soon as it is this peer's turn."""
        if owed.free and owed.due and owed.to.number not in self._waiting:
            self._waiting.append(owed.to.number)
        self.send_waiting(out)

    def send_waiting(self, out: list[Effect]) -> None:
        """Send to the peers whose turn it is."""
        for peer in tuple(self._waiting):
            owed = self._peers[peer]
            if owed.near or self._may_begin():
                self._waiting.remove(peer)
                self._send(owed, out)

    def _may_begin(self) -> bool:
        """Whether to begin to send to one more peer on another host."""
        busy = sum(not owed.free and not owed.near for owed in self._peers.values())
        return not self.at_once or busy < self.at_once

    def _send(self, owed: OwedRanges, out: list[Effect]) -> None:
        part = owed.due[0]
        first = owed.sent.values[part] + 1
        last = min(first, self.clock) if self.one_by_one else self.clock
        if last == self.clock:
            del owed.due[0]
        payload = self._payload(owed, part, max(first, owed.sent.base + 1), last)
        bucket = self.ranges.buckets[part]
        message = RangeSum(self.view, self._who[1], part, bucket, first, last, encoded_bytes(payload))
        owed.sent.advance(part, last)
        owed.free = False
        out.append(Send(owed.to, message, payload))

    def control(self, peer: int, message: Message, out: list[Effect]) -> None:
        """Send a message without values; the link is busy until it has arrived."""
        self._peers[peer].free = False
        out.append(Send(worker_id(peer), message))

    def _payload(self, owed: OwedRanges, part: int, first: int, last: int) -> Payload | None:
        place = self.ranges.places[part]
        if not self.ranges.buckets[part].size:
            return None
        total = self._totals.get((part, first, last))
        if total is None:
            total = self._totals[part, first, last] = self.window.total(first, last, place)
        if self._codec is None:
            return total
        return self._plainly(owed, part, total) if owed.flushing or owed.plain else self._written(owed, part, total)

    def _written(self, owed: OwedRanges, part: int, total: Values) -> Payload:
        """The sum as the codec writes it, which keeps what it leaves out."""
        assert self._codec is not None
        bucket = self.ranges.buckets[part]
        writer = owed.writers.get(part)
        if writer is None:
            codec = bucket_codec(self._codec, self._layout, bucket)
            writer = owed.writers[part] = Writer(codec, bucket.size)
        keys = (*self._who, owed.to.number, self.clock, bucket.start)
        return writer.write(total, lambda: self._draw.generator("exchange codec", *keys))

    def _plainly(self, owed: OwedRanges, part: int, total: Values) -> Payload:
        """The sum together with what the codec has left of earlier ones."""
        writer = owed.writers.pop(part, None)
        residual = None if writer is None else writer.memory.get("residual")
        return total if residual is None else np.add(total, residual)

    # Forgetting.

    def _firsts(self) -> set[int]:
        """The updates with which the next sum for any peer and range begins."""
        return {last + 1 for owed in self._peers.values() for last in owed.sent.reached}

    def repartition(self, parts: int) -> None:
        """Cut the model into another number of ranges. All peers have everything."""
        self.window.clear()
        self.begin(parts, self.clock, self._accumulates)
        for peer, owed in self._peers.items():
            owed.sent, owed.flushing = Marks.in_turn(peer, self.clock, parts), False
            owed.writers.clear()
