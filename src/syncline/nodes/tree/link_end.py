"""One end of a link between two nodes, for one bucket.

1. A session is (link, both incarnations). What belongs to another session is refused.
2. The first message of a session has number 0. It is the sum of everything on the sender's side, and replaces what the
   receiver has. Later messages are changes.
3. One message is unacknowledged at a time. It is repeated unchanged until it is acknowledged. Its receiver applies it
   once, and acknowledges it every time.
4. What is owed accumulates. What a message does not carry, because of the codec or because float32 rounds, stays owed.
   If nothing has happened since the last message, the next one is sent dense.
"""

from __future__ import annotations

import numpy as np

from syncline.codecs import Chance, Codec
from syncline.layout import Bucket, Payload, Values
from syncline.messages import NodeId, server_id
from syncline.nodes.tree.messages import Counted, SideHeard, SideSum
from syncline.nodes.tree.summand import Basis, Key, link_key
from syncline.nodes.update_writer import encoded_bytes, is_plain
from syncline.reals import Reals

Session = tuple[int, int, int]
"""(link, my incarnation, the peer's incarnation)."""


class LinkEnd:
    """What this node knows about one link and one bucket."""

    __slots__ = (
        "_sent_counts",
        "basis",
        "bucket",
        "expected",
        "next_number",
        "not_before",
        "owed",
        "peer",
        "session",
        "timed",
        "unheard",
    )

    def __init__(self, bucket: Bucket, peer: int, session: Session) -> None:
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
        self.not_before = 0.0
        """When the next change may be sent."""
        self.timed = False
        """Whether a timer is set for that moment."""
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
        self.owed = self.unheard = self._sent_counts = None
        self.next_number = self.expected = 0

    def owe(self, change: Reals) -> None:
        if self.owed is not None:
            self.owed += change

    def has_news(self, counts: Counted) -> bool:
        """Whether there is anything to send that the peer has not been sent."""
        return self.owed is None or counts != self._sent_counts or bool(self.owed.astype(np.float32).any())

    def write(self, view: int, total: Reals, counts: Counted, codec: Codec, chance: Chance) -> None:
        """Make the next message. `total`: the whole sum, which is used only for the first one of a session."""
        rest = counts == self._sent_counts
        if self.owed is None:
            self.owed, codec_used = total, None
        else:
            codec_used = None if rest or is_plain(codec) else codec
        payload, sent = _written(self.owed.astype(np.float32), codec_used, chance)
        self.owed -= sent
        link, mine, yours = self.session
        size = encoded_bytes(payload)
        message = SideSum(view, link, mine, yours, self.bucket, self.next_number, counts, size)
        self.unheard = (message, payload)
        self.next_number += 1
        self._sent_counts = counts

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


def _written(values: Values, codec: Codec | None, chance: Chance) -> tuple[Payload | None, Values]:
    """The payload for these values, and the values that it stands for. No payload: nothing but zeros."""
    if codec is not None:
        out = np.empty(codec.size(values.size), np.uint8)
        payload = codec.encode(values, codec.memory(values.size), out, chance)
        if payload.nbytes < values.nbytes:
            return payload, codec.decode(payload, np.empty_like(values))
    return (values if values.any() else None), values
