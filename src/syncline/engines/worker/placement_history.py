"""Which server holds what, as a worker knows it: in the present view, and in earlier ones that may still be answered.

1. A move may cut buckets, but join none, and gives them to servers that are within reach.
2. A server may speak of a bucket that it holds, or held in a view in which something was asked that is not answered.
3. What a server says by a view that is not here yet waits for that view.
4. A server that holds nothing any more is a former one, until it is let go.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import zip_longest

from syncline.codecs import Bytes
from syncline.engines.net.frames import Frame
from syncline.errors import PeerError
from syncline.layout import VALUE_BYTES, Bucket
from syncline.messages import NodeId, View, server_id
from syncline.nodes.server.bucket_map import BucketMap, Holders, bucket_map_of

MOST_EARLY = 1 << 10
"""How much servers may say, beside one answer for each bucket, by a view that is not here yet."""

Early = tuple[NodeId, Frame, Bytes | None]
"""Who has said something early, what, and what came along."""


class PlacementHistory:
    """The holders of every bucket of a model of so many values."""

    def __init__(self, view: View, size: int) -> None:
        self.view = max(view.view, 0)
        self.former: set[NodeId] = set()
        self._size = size
        self._past: list[tuple[int, BucketMap]] = []
        """Earlier placements, each with the view that replaced it."""
        self._early: list[Early] = []
        self._set(view.holders)

    def _set(self, holders: Holders) -> None:
        self._holders = holders
        self._cut = bucket_map_of(holders)
        self.holder = self._cut.holder
        self.holding = {server_id(number) for number, held in enumerate(holders) if held}

    # Views.

    def check(self, view: View, within_reach: Callable[[NodeId], bool]) -> None:
        """Refuse a view that cannot follow."""
        if view.holders == self._holders:
            return
        starts = {bucket.start for held in view.holders for bucket in held}
        if not is_whole(view.holders, self._size) or not starts.issuperset(each.start for each in self.holder):
            raise PeerError("a view in which servers hold other buckets than pieces of the present ones")
        for number, held in enumerate(view.holders):
            if held and not within_reach(server_id(number)):
                raise PeerError(f"a view in which server {number} holds something, of which nobody has told")

    def adopt(self, view: View, oldest: int) -> None:
        """A new view, which was checked; `oldest`: the first in which something was asked that is not answered."""
        self.view = max(view.view, self.view)
        if view.holders != self._holders:
            self._past = [(until, cut) for until, cut in self._past if until > oldest]
            self._past.append((view.view, self._cut))
            before = self.holding
            self._set(view.holders)
            self.former = (self.former | before) - self.holding

    # What servers say.

    def may_say(self, server: NodeId, bucket: Bucket) -> bool:
        """Does this server hold the bucket, or did it when it could be asked by that name?"""
        if self.holder.get(bucket) == server:
            return True
        return any(cut.holder.get(bucket) == server for _, cut in self._past)

    def held_since(self, server: NodeId, piece: Bucket, view: int) -> bool:
        """Has this server held, after that view, what is the present one's?"""
        return any(until > view and cut.holder_of(piece) == server for until, cut in self._past)

    def inside(self, bucket: Bucket) -> list[Bucket]:
        """What a bucket of an earlier view is made of by now."""
        return self._cut.inside(bucket)

    def defer(self, early: Early) -> None:
        """Keep this for the view by which it was said."""
        self._early.append(early)
        waiting = sum(came.nbytes for _, _, came in self._early if came is not None)
        if len(self._early) > len(self.holder) + MOST_EARLY or waiting > self._size * VALUE_BYTES:
            raise PeerError("too much by a view that nobody else knows of")

    def due(self) -> list[Early]:
        """Take out what has waited; some of it may have to wait again."""
        early, self._early = self._early, []
        return early


def is_whole(holders: Holders, size: int) -> bool:
    """Is every value of the model held, and only once?"""
    held = sorted((bucket.start, bucket.stop) for each in holders for bucket in each)
    return [*(start for start, _ in held), size] == [0, *(stop for _, stop in held)]


def in_turn(holders: Holders) -> tuple[Bucket, ...]:
    """All buckets, last ones first, a bucket of each server in turn: so that all servers have work from the start."""
    return tuple(
        bucket for each in zip_longest(*(held[::-1] for held in holders)) for bucket in each if bucket is not None
    )
