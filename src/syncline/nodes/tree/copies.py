"""Copies of what a node holds, at another node, for the case that its machine is lost for good.

The owner sends the whole at first, then the changes of its own updates, all in float64, so the copy is exact. One
message is unacknowledged at a time.

With rounds, the changes are the pushes of each round. The replica does not travel again: after a round all replicas are
equal, and the keeper has its own. It forgets the pushes of a round when it has closed the round itself.
"""

from __future__ import annotations

import numpy as np

from syncline.layout import Bucket, Payload, Values
from syncline.messages import NodeId, server_id
from syncline.nodes.tree.held_updates import HeldUpdates, OriginUpdates, packed, unpacked
from syncline.nodes.tree.messages import CopyHeard, CopySum, OriginState
from syncline.reals import Reals

CopySession = tuple[int, int, int]
"""(the view that named the keeper, the owner's incarnation, the keeper's incarnation)."""


class CopyStream:
    """The owner's end."""

    __slots__ = (
        "_own",
        "_written",
        "changed",
        "heard_position",
        "keeper",
        "next_number",
        "not_before",
        "session",
        "timed",
        "unheard",
    )

    def __init__(self, own: int, keeper: int, session: CopySession) -> None:
        self._own = own
        self.keeper: NodeId = server_id(keeper)
        self.session = session
        self.changed: Reals | None = None
        """The change of the owner's updates since the last message; None: the next message is whole."""
        self.next_number = 0
        self.unheard: tuple[CopySum, Payload, int] | None = None
        """The message, its payload, and the position up to which it has everything."""
        self.heard_position = -1
        """Up to which position the copy has everything; -1: there is no copy."""
        self._written = 0
        self.not_before = 0.0
        self.timed = False

    def open_at_start(self, size: int) -> None:
        """Begin with a run: the keeper knows that nothing has been pushed yet."""
        self.changed, self.next_number, self.heard_position = np.zeros(size), 1, 0

    def has_news(self, held: HeldUpdates) -> bool:
        return self.changed is None or held.position > self._written

    def owe(self, change: Reals | Values) -> None:
        if self.changed is not None:
            self.changed += change

    def write(self, view: int, bucket: Bucket, held: HeldUpdates) -> None:
        whole = self.changed is None
        states, payload = packed(held.everything) if whole else self._change(held)
        self._written_all(held.size)
        message = CopySum(view, *self.session, bucket, self.next_number, whole, states)
        self.unheard = (message, payload, held.position)
        self._written = held.position
        self.next_number += 1

    def _change(self, held: HeldUpdates) -> tuple[tuple[OriginState, ...], Payload]:
        """What has changed since the last message."""
        assert self.changed is not None
        return (held.own.state(self._own),), self.changed

    def _written_all(self, size: int) -> None:
        self.changed = np.zeros(size)

    def heard(self, message: CopyHeard) -> bool:
        if self.unheard is None or (message.since, message.yours, message.mine) != self.session:
            return False
        if message.number != self.unheard[0].number:
            return False
        self.heard_position = self.unheard[2]
        self.unheard = None
        return True


class RoundStream(CopyStream):
    """The owner's end with rounds."""

    __slots__ = ("_rounds",)

    def __init__(self, own: int, keeper: int, session: CopySession) -> None:
        super().__init__(own, keeper, session)
        self._rounds: set[int] = set()
        """The rounds with pushes since the last message."""

    def open_at_start(self, size: int) -> None:
        super().open_at_start(0)

    def pushed(self, number: int) -> None:
        """There is another push of this round."""
        self._rounds.add(number)

    def _change(self, held: HeldUpdates) -> tuple[tuple[OriginState, ...], Payload]:
        own = held.own
        part = OriginUpdates(np.zeros(0), own.count, own.last)
        part.ahead = {number: own.ahead[number] for number in self._rounds if number in own.ahead}
        return packed({self._own: part})

    def _written_all(self, size: int) -> None:
        self._rounds.clear()
        self.changed = np.zeros(0)


class KeptCopy:
    """The keeper's end: a copy of what another node holds."""

    __slots__ = ("expected", "origins", "session")

    def __init__(self, session: CopySession) -> None:
        self.session = session
        self.expected = 0
        self.origins: dict[int, OriginUpdates] = {}

    def open_at_start(self, owner: int, nothing: OriginUpdates) -> None:
        self.expected, self.origins = 1, {owner: nothing}

    def take(self, message: CopySum, payload: Payload, size: int) -> None:
        """Take in the next message; a repeat changes nothing."""
        if message.number != self.expected:
            return
        self.expected += 1
        if message.whole:
            self.origins = unpacked(message.origins, payload, size)
            return
        ((origin, change),) = unpacked(message.origins, payload, size).items()
        before = self.origins.get(origin)
        if before is not None and message.origins[0].based:
            change.values += before.values
        elif before is not None:
            change.values, change.round = before.values, before.round
            change.ahead = {**before.ahead, **change.ahead}
        self.origins[origin] = change

    def forget(self, closed: int) -> None:
        """With rounds: the keeper has closed this one itself."""
        for each in self.origins.values():
            each.ahead = {number: raw for number, raw in each.ahead.items() if number > closed}
            if each.round <= closed:
                each.values, each.round = np.zeros(0), -1
