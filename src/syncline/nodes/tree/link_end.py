"""One end of a link between two nodes, for one bucket.

1. A session is (link, both incarnations). What belongs to another session is refused.
2. The first message of a session has number 0. It is the sum of everything on the sender's side, and replaces what the
   receiver has. Later messages are changes.
3. One message is unacknowledged at a time. It is repeated unchanged until it is acknowledged. Its receiver applies it
   once, and acknowledges it every time.
4. What is owed accumulates. What a message does not carry, because of the codec or because float32 rounds, stays owed.
   Usually the next update takes it along. It is sent by itself, dense, when the workers have left, or when no update
   has come for a while.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from syncline.codecs import Chance, Codec
from syncline.layout import Bucket, Payload, Values
from syncline.messages import NodeId, server_id
from syncline.nodes.tree.messages import Counted, SideHeard, SideSum
from syncline.nodes.tree.summand import BLOCK, Basis, Key, add_to, is_zero, link_key
from syncline.nodes.update_writer import encoded_bytes, is_plain
from syncline.reals import Reals

Session = tuple[int, int, int]
"""(link, my incarnation, the peer's incarnation)."""

REST_PERIODS, REST_GAPS = 10, 3
"""A rest is sent when no update has come for this many periods, and for this many times as long as between updates."""


class LinkEnd:
    """What this node knows about one link and one bucket."""

    __slots__ = (
        "_empty",
        "_gap",
        "_is_zero",
        "_news_at",
        "_not_before",
        "_only",
        "_rests",
        "_room",
        "_sent_counts",
        "basis",
        "bucket",
        "expected",
        "next_number",
        "owed",
        "peer",
        "session",
        "timer_due",
        "unheard",
    )

    def __init__(
        self, bucket: Bucket, peer: int, session: Session, room: Callable[[], Values | None] = lambda: None
    ) -> None:
        """`room`: an array from which the engine can send a message without a copy; None: there is none now."""
        self._room = room
        self.bucket = bucket
        self.peer: NodeId = server_id(peer)
        self.session = session
        self.basis: Basis | None = None
        """What the sum that this node sends is made of; None: it cannot send yet."""
        self.owed: Reals | None = None
        """What the peer has not been sent; None: the next message is the whole sum."""
        self.next_number = 0
        self.unheard: tuple[SideSum, Payload | None] | None = None
        self.expected = 0
        """The number of the next message from the peer."""
        self.timer_due: float | None = None
        """For when a timer is set."""
        self._not_before = 0.0
        """When the next change may be sent."""
        self._news_at: float | None = None
        """When the last message with further updates was sent."""
        self._gap = 0.0
        """How long before it the one before was sent."""
        self._only: Values | None = None
        """The only change since the sum was zero; it is not a part of `owed`."""
        self._is_zero = True
        """Whether `owed` is exactly zero."""
        self._rests = False
        """Whether the last message was a rest."""
        self._empty: bool | None = True
        """Whether what is owed rounds to zero; None: not known."""
        self._sent_counts: Counted | None = None

    @property
    def key(self) -> Key:
        return link_key(self.session[0])

    def open_at_start(self, basis: Basis, size: int) -> None:
        """Begin with a run: both ends know that all sums are zero."""
        self.basis, self.owed = basis, np.zeros(size)
        self.next_number = self.expected = 1
        self._sent_counts = ()

    def reopen(self, session: Session) -> None:
        """Begin another session: one of the two nodes has restarted."""
        self.session = session
        self.owed = self.unheard = self._sent_counts = self._only = None
        self.next_number = self.expected = 0

    def take(self, change: Reals | Values) -> list[Reals]:
        """Owe the peer a change; returns the sums that the caller must add it to.

        A change that float32 can carry needs no sum while nothing else is owed.
        """
        if self.owed is None:
            return []
        self._empty = None
        if self._is_zero and self._only is None and change.dtype == np.float32:
            self._only = self._place(change.size)
            self._only[:] = change
            return []
        self._sum_up()
        self._is_zero = False
        return [self.owed]

    def owe(self, change: Reals | Values) -> None:
        """Add a change to what the peer is owed."""
        add_to(self.take(change), change)

    def owe_whole(self, total: Reals) -> None:
        """The next message is the whole sum."""
        self.owed, self._only, self._empty, self._is_zero = total, None, None, False

    def _place(self, size: int) -> Values:
        """An array for the next message. It can be the last message's, when that is acknowledged."""
        found = self._room() if self.unheard is None else None
        return np.empty(size, np.float32) if found is None else found

    def _sum_up(self) -> None:
        """Add the only change to the sum."""
        if self._only is not None and self.owed is not None:
            self.owed += self._only
            self._only, self._is_zero = None, False

    def has_news(self, counts: Counted) -> bool:
        """Whether there is anything to send that the peer has not been sent."""
        return self.owed is None or counts != self._sent_counts or not self._is_empty()

    def _is_empty(self) -> bool:
        if self._empty is None:
            assert self.owed is not None
            self._empty = is_zero(self.owed.astype(np.float32) if self._only is None else self._only)
        return self._empty

    def due(self, counts: Counted, *, workers: bool, period: float) -> float | None:
        """When the next message may be sent; None: there is nothing. `workers`: whether there are any workers."""
        if self.owed is None:
            return 0.0
        if counts != self._sent_counts or not workers:
            return self._not_before
        if self._empty:
            return None
        return (self._news_at or 0.0) + max(REST_PERIODS * period, REST_GAPS * self._gap)

    def write(self, view: int, counts: Counted, codec: Codec, chance: Chance) -> None:
        """Make the next message. A whole sum and a rest are sent dense."""
        assert self.owed is not None
        rest = counts == self._sent_counts
        dense = rest or self._sent_counts is None or is_plain(codec)
        payload = self._written(self.owed) if dense else self._encoded(self.owed, codec, chance)
        link, mine, yours = self.session
        size = encoded_bytes(payload)
        message = SideSum(view, link, mine, yours, self.bucket, self.next_number, counts, size)
        self.unheard = (message, payload)
        self.next_number += 1
        self._sent_counts = counts
        self._rests = rest

    def wrote(self, now: float, period: float) -> None:
        """The message was written at this time."""
        self._not_before = now + period
        if not self._rests:
            self._gap, self._news_at = now - (now if self._news_at is None else self._news_at), now

    def _written(self, owed: Reals) -> Values | None:
        """What is owed in float32, or None if that is zero; the rounding stays owed."""
        only, self._only = self._only, None
        if only is not None:
            self._empty = True
            return None if is_zero(only) else only
        values, empty, left = self._place(owed.size), True, False
        for start in range(0, owed.size, BLOCK):
            block = slice(start, start + BLOCK)
            part, rounded = owed[block], values[block]
            rounded[:] = part
            part -= rounded
            empty = empty and not rounded.any()
            left = left or bool(part.any())
        self._empty, self._is_zero = (None if left else True), not left
        return None if empty else values

    def _encoded(self, owed: Reals, codec: Codec, chance: Chance) -> Payload | None:
        """What is owed, as the codec writes it; the rest stays owed."""
        self._sum_up()
        values = owed.astype(np.float32)
        payload = codec.encode(values, codec.memory(values.size), np.empty(codec.size(values.size), np.uint8), chance)
        if payload.nbytes >= values.nbytes:
            return self._written(owed)
        owed -= codec.decode(payload, values)
        self._empty, self._is_zero = None, False
        return payload

    def heard(self, message: SideHeard) -> bool:
        """Whether this acknowledges the message that was sent last."""
        if self.unheard is None or not self.is_of_session(message) or message.number != self.unheard[0].number:
            return False
        self.unheard = None
        return True

    def is_of_session(self, message: SideSum | SideHeard) -> bool:
        return (message.link, message.yours, message.mine) == self.session

    def answer(self, view: int, message: SideSum) -> SideHeard:
        return SideHeard(view, *self.session, self.bucket, message.number)
