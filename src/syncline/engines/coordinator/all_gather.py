"""An all-gather: every worker sends a value and receives the values of all. Barriers, means and votes use it.

The workers do not wait for one that has died or left. They wait for a joiner as soon as it is a member; before that it
cannot take part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from syncline.engines.coordinator.participant import Participant
from syncline.engines.net.connection import Connection
from syncline.engines.net.control import Gathered, Refused, Share
from syncline.engines.net.frames import Frame
from syncline.errors import PeerError

MOST_BYTES = 16 << 20
"""The limit for the values of all workers together."""


class AllGather:
    """Collects one value from each worker, and answers when all values are there."""

    def __init__(self, out: Callable[[Connection, Frame], None]) -> None:
        self._out = out
        self.said: dict[int, tuple[Participant, Share]] = {}
        self._sizes: dict[int, int] = {}
        """The bytes that each worker has sent."""

    @property
    def calls(self) -> dict[int, str]:
        """By the numbers of the workers that wait for all others: the call in which they do."""
        return {number: share.kind for number, (_, share) in self.said.items()}

    def say(self, peer: Participant, share: Share) -> None:
        if peer.id.number in self.said:
            raise PeerError("it sent a second value before the all-gather was complete")
        if not peer.entered:
            problem = f"{share.kind}: a worker that joins can take part when it is a member; declare your tables first"
            self._out(peer.wire, Refused(problem, usage=True))
            return
        self._sizes[peer.id.number] = len(share.data)
        if sum(self._sizes.values()) > MOST_BYTES:  # it will be refused, so do not keep it
            share = Share(share.kind)
        self.said[peer.id.number] = (peer, share)

    def leave(self, number: int) -> None:
        self.said.pop(number, None)
        self._sizes.pop(number, None)

    def end_if_all(self, needed: Collection[int]) -> None:
        """If the values of all `needed` workers are there, send all values to every worker."""
        if not self.said or not set(self.said).issuperset(needed):
            return
        said, self.said = [self.said[number] for number in sorted(self.said)], {}
        answer = self._answer([share for _, share in said])
        self._sizes.clear()
        for peer, _ in said:
            self._out(peer.wire, answer)

    def _answer(self, shares: list[Share]) -> Gathered | Refused:
        kinds = sorted({share.kind for share in shares})
        if len(kinds) > 1:
            return Refused(f"the workers wait for each other in different calls: {', '.join(kinds)}", usage=True)
        size = sum(self._sizes.values())
        if size > MOST_BYTES:
            problem = f"{kinds[0]}: the workers sent {size:,} bytes together; the limit is {MOST_BYTES:,}"
            return Refused(problem, usage=True)
        return Gathered(kinds[0], tuple(share.data for share in shares))
