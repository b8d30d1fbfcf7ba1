"""A meeting: every worker says something, and hears what all have said. Barriers, means and votes are made of it.

Nobody waits for whoever is gone or has left; whoever joins is waited for as soon as it is a member.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from syncline.engines.coordinator.participant import Participant
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Gathered, Refused, Share
from syncline.engines.net.frames import Frame
from syncline.errors import PeerError

MOST_BYTES = 16 << 20
"""What all together may say."""


class AllGather:
    """Those who have spoken wait for the others; each can speak once."""

    def __init__(self, out: Callable[[Connection, Frame], None]) -> None:
        self._out = out
        self.said: dict[int, tuple[Participant, Share]] = {}

    def say(self, peer: Participant, share: Share) -> None:
        if peer.id.number in self.said:
            raise PeerError("a second word before the others had theirs")
        self.said[peer.id.number] = (peer, share)

    def leave(self, number: int) -> None:
        self.said.pop(number, None)

    def end_if_all(self, needed: Collection[int]) -> None:
        """If nobody is missing, tell everyone what was said."""
        if not self.said or not set(self.said).issuperset(needed):
            return
        said, self.said = [self.said[number] for number in sorted(self.said)], {}
        answer = self._answer([share for _, share in said])
        for peer, _ in said:
            self._out(peer.wire, answer)

    def _answer(self, shares: list[Share]) -> Gathered | Refused:
        kinds = sorted({share.kind for share in shares})
        if len(kinds) > 1:
            return Refused(f"workers wait for each other in different calls: {', '.join(kinds)}", usage=True)
        size = sum(len(share.data) for share in shares)
        if size > MOST_BYTES:
            return Refused(f"{kinds[0]}: {size:,} bytes together; at most {MOST_BYTES:,}", usage=True)
        return Gathered(kinds[0], tuple(share.data for share in shares))
