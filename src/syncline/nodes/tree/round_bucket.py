"""One bucket on a node of the tree with `bsp`: the replica after a round is that of synchronous SGD.

1. After a round all replicas are equal. So a replica is known by its round, and any node can have it from any other.
2. A node keeps its replica, and its workers' pushes of later rounds, by origin. Checkpoint, copy, and what one node
   gives another, each contain both, as they were at one moment. So all pushes of a round that any node has closed are
   stored, or part of a stored replica.
3. An epoch begins with every view that changes nodes, links or incarnations. Nothing of an earlier epoch is sent or
   accepted any more.
4. An epoch begins with an opening. When a node holds the origins of the view, it tells over each link the last round
   that any node on its side has closed: its own, or what it was told over the other links. When it has heard that over
   all links, it knows the last round of all. A node with that replica sends it to the neighbours that lack it.
5. After the opening, a node sends a round over a link when it has closed the round before, its own workers' round is
   whole, and it has the round over all other links. It closes the round when it has it over all links: it divides the
   sum by the number of pushes.
6. A round of the node's own workers is whole when all of its live workers have pushed it, and checkpoint and copy
   contain that.
7. A pull for round i is answered when the node has closed it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from syncline.effects import Effect, Received, Send
from syncline.errors import PeerError
from syncline.layout import Bucket, Payload, Values
from syncline.messages import Message, NodeId, Push, server_id
from syncline.nodes.tree.copies import CopySession, CopyStream, RoundStream
from syncline.nodes.tree.held_updates import OriginUpdates
from syncline.nodes.tree.messages import CopySum, RoundHeard, RoundKind, RoundSum
from syncline.nodes.tree.tree_bucket import AnswerRule, Pending, Request, TreeBucket, Update
from syncline.nodes.tree.tree_terms import TreeTerms
from syncline.reals import Reals

Out = list[Effect]


class RoundPart(NamedTuple):
    """A round of some nodes: the sum of its pushes, how many they are, and whether a worker is beyond it already."""

    raw: Reals
    pushes: int
    passed: bool


def _sum(parts: Sequence[RoundPart]) -> RoundPart:
    raw = parts[0].raw
    for each in parts[1:]:
        raw = raw + each.raw
    return RoundPart(raw, sum(each.pushes for each in parts), any(each.passed for each in parts))


class RoundLink:
    """One end of a link, for one bucket and one epoch. One message is unacknowledged at a time."""

    __slots__ = (
        "expected",
        "heard",
        "next_number",
        "own",
        "peer",
        "queue",
        "rest",
        "rounds",
        "sent",
        "told",
        "unheard",
    )

    def __init__(self, peer: int, size: int) -> None:
        self.peer: NodeId = server_id(peer)
        self.told: int | None = None
        """The last round that any node on this side had closed, as this node has told it."""
        self.heard: int | None = None
        """The same of the other side."""
        self.own = -1
        """The last round that the neighbour itself had closed."""
        self.rounds: dict[int, RoundPart] = {}
        """The rounds of the other side that are not closed yet."""
        self.sent = -1
        """The last round that was sent."""
        self.rest = np.zeros(size)
        """What float32 has not carried yet."""
        self.queue: deque[tuple[RoundSum, Payload | None]] = deque()
        self.unheard: tuple[RoundSum, Payload | None] | None = None
        self.next_number = self.expected = 0


class RoundBucket(TreeBucket):
    """What a node knows about one bucket with `bsp`."""

    def __init__(self, name: Bucket, first: Values, terms: TreeTerms, gate: AnswerRule) -> None:
        super().__init__(name, first, terms, gate)
        self.theta: Reals = self.first.astype(np.float64)
        self.closed = -1
        """The last round that the replica contains."""
        self.begun = -1
        """The last round that this node has sent or closed."""
        self.epoch = -1
        self.opened = False
        """Whether the opening of the epoch is over."""
        self.links: dict[int, RoundLink] = {}
        """By neighbour."""
        self._ever_opened = False

    # Start and views.

    def start(self) -> None:
        super().start()
        self.opened = self._ever_opened = True
        self._keep_replica()
        for link in self.links.values():
            link.told = link.heard = -1

    def _aim(self) -> None:
        terms = self.terms
        if terms.place is None:
            self.links, self.opened = {}, False
        elif terms.tree.since != self.epoch:
            around = [
                each.one + each.other - terms.me for each in terms.tree.links if terms.me in (each.one, each.other)
            ]
            self.links, self.opened = {peer: RoundLink(peer, self.size) for peer in around}, False
            self.epoch = terms.tree.since

    def _nothing(self) -> OriginUpdates:
        return OriginUpdates(np.zeros(0))

    def _has_origin(self, origin: int) -> bool:
        waits = any(each.origin == origin and each.update is None for each in self.pending)
        return origin in self.held.by_origin and not waits

    def _show_origin(self, origin: int, updates: OriginUpdates) -> None:
        values = updates.values
        if origin != self.terms.me:
            updates.values = np.zeros(0)
        if values.size and updates.round > self.closed:
            self._replace(updates.round, values)

    def _as_gift(self, updates: OriginUpdates) -> OriginUpdates:
        if not updates.values.size or updates.round < self.closed:  # one that has just arrived can be newer
            updates.values, updates.round = self.theta, self.closed
        return updates

    def _of_lost(self, owner: int, copied: dict[int, OriginUpdates]) -> dict[int, OriginUpdates]:
        own = copied.get(owner)
        for each in copied.values():
            if own is not None and not each.values.size:
                each.values, each.round = own.values, own.round
            self._as_gift(each)
        return copied

    def _stream(self, own: int, keeper: int, session: CopySession) -> CopyStream:
        return RoundStream(own, keeper, session)

    def copy_sum(self, event: Received, message: CopySum, out: Out) -> None:
        super().copy_sum(event, message, out)
        kept = self.kept.get(event.source.number)
        if kept is not None:
            kept.forget(self.closed)

    def _rounded(self) -> Values:
        return self.theta.astype(np.float32)

    def contained(self) -> dict[int, int]:
        return {self.terms.me: self.closed + 1}

    @property
    def serves(self) -> bool:
        return self._ever_opened and self.terms.place is not None

    @property
    def latest(self) -> int:
        """The last round that this node knows to have begun: a joiner can take part in the next."""
        pushed = [number for each in self.held.by_origin.values() for number in each.ahead]
        return max([self.closed, self.begun, *pushed])

    # The replica.

    def _replace(self, number: int, values: Reals) -> None:
        """Take the replica after this round from elsewhere."""
        self.theta, self.closed = values, number
        self._keep_replica()

    def _keep_replica(self) -> None:
        """The replica has changed: what it contains need not be kept any more."""
        self.begun = max(self.begun, self.closed)
        self.version += 1
        self._stale = True
        for each in self.held.by_origin.values():
            each.ahead = {number: raw for number, raw in each.ahead.items() if number > self.closed}
        for link in self.links.values():
            link.rounds = {number: raw for number, raw in link.rounds.items() if number > self.closed}
        for kept in self.kept.values():
            kept.forget(self.closed)
        own = self.held.by_origin.get(self.terms.me)
        if own is not None and own.round <= self.closed:  # while a checkpoint is read it can be newer
            own.values, own.round = self.theta, self.closed

    def advance(self, now: float, out: Out) -> None:
        if self.terms.place is not None:
            if not self.opened and not self.missing:
                self._open()
            while self.opened and self._next_round():
                pass
        self.send_due(now, out)
        self.answer(out)

    def _open(self) -> None:
        links = list(self.links.values())
        for link in links:
            others = [each.heard for each in links if each is not link]
            known = [each for each in others if each is not None]
            if link.told is None and len(known) == len(others):
                link.told = max([self.closed, *known])
                self._queue(link, "opening", link.told)
        heard = [link.heard for link in links if link.heard is not None]
        if len(heard) < len(links) or self.closed < max([self.closed, *heard]):
            return
        self.opened = self._ever_opened = True
        self.reached = self.epoch
        for link in links:
            if link.own < self.closed:
                self._queue(link, "replica", self.closed, self.theta)
            link.sent = self.closed

    def _next_round(self) -> bool:
        """Send the next round over the links, and close it, as far as possible; returns whether it is closed."""
        number = self.closed + 1
        if not self._is_whole(number):
            return False
        parts = {peer: link.rounds[number] for peer, link in self.links.items() if number in link.rounds}
        due = [
            (peer, link)
            for peer, link in self.links.items()
            if link.sent < number and parts.keys() >= self.links.keys() - {peer}
        ]
        if not due and len(parts) < len(self.links):
            return False
        own = self._own_round(number)
        for peer, link in due:
            self._send_round(link, number, _sum([own, *(each for other, each in parts.items() if other != peer)]))
        whole = _sum([own, *parts.values()])
        if len(parts) < len(self.links) or not self._is_needed(number, whole):
            return False
        self._replace(number, self.theta + whole.raw / whole.pushes if whole.pushes else self.theta)
        return True

    def _own_round(self, number: int) -> RoundPart:
        """The pushes of all origins that this node holds."""
        held = [each.ahead for _, each in sorted(self.held.by_origin.items())]
        nothing = RoundPart(np.zeros(self.size), 0, any(later > number for each in held for later in each))
        return _sum([nothing, *(RoundPart(*each[number], False) for each in held if number in each)])

    def _is_whole(self, number: int) -> bool:
        """Whether the node's own workers have pushed this round, and it is stored."""
        limit = self.gate.limit()
        if limit is not None and number > limit:
            return False
        for member in self.terms.workers_of(self.terms.me):
            takes_part = member.first is not None and member.first <= number
            if takes_part and self.held.progress(member.worker, member.incarnation) < number:
                return False
        return not self.pending

    def _is_needed(self, number: int, whole: RoundPart) -> bool:
        """Whether anyone has pushed this round or a later one, or will begin with one; else empty ones never end."""
        firsts = [member.first for member in self.terms.members.values()]
        return whole.pushes > 0 or whole.passed or any(first is not None and first > number for first in firsts)

    @property
    def at_rest(self) -> bool:
        """Whether no round with pushes is open, and the neighbours have everything."""
        held = [pushes for each in self.held.by_origin.values() for _, pushes in each.ahead.values()]
        heard = [part.pushes for link in self.links.values() for part in link.rounds.values()]
        sent = not any(link.queue for link in self.links.values())
        return self.opened and sent and not self.missing and not self.pending and not any((*held, *heard))

    # Links.

    def _queue(
        self,
        link: RoundLink,
        kind: RoundKind,
        number: int,
        payload: Payload | None = None,
        part: RoundPart | None = None,
    ) -> None:
        known = (self.terms.view, self.epoch, self.name, link.next_number)
        pushes, passed = (0, False) if part is None else part[1:]
        link.next_number += 1
        link.queue.append((RoundSum(*known, kind, number, pushes, self.closed, passed), payload))

    def _send_round(self, link: RoundLink, number: int, part: RoundPart) -> None:
        link.sent, self.begun = number, max(self.begun, number)
        payload: Payload | None = None
        if part.pushes:
            owed = part.raw + link.rest
            payload = owed.astype(np.float32)
            link.rest = owed - payload
        self._queue(link, "round", number, payload, part)

    def send_due(self, now: float, out: Out) -> None:
        for link in self.links.values():
            if link.unheard is None and link.queue:
                link.unheard = link.queue.popleft()
                out.append(Send(link.peer, *link.unheard))
        self.copy_due(now, out)

    def link_message(self, event: Received, message: Message, now: float, out: Out) -> None:
        link = self.links.get(event.source.number)
        if not isinstance(message, RoundSum | RoundHeard):
            raise PeerError(f"{type(message).__name__} is not for consistency bsp")
        if link is None or message.epoch != self.epoch:
            return
        if isinstance(message, RoundHeard):
            if link.unheard is not None and link.unheard[0].number == message.number:
                link.unheard = None
                self.send_due(now, out)
            return
        if message.number > link.expected:
            raise PeerError(f"message {message.number} of {self.name}, but {link.expected} comes next")
        out.append(Send(event.source, RoundHeard(self.terms.view, self.epoch, self.name, message.number)))
        if message.number == link.expected:
            link.expected += 1
            self._take(link, message, event.payload)
            self.advance(now, out)

    def _take(self, link: RoundLink, message: RoundSum, payload: Payload | None) -> None:
        if payload is not None and payload.size != self.size:
            raise PeerError(f"a round of {payload.size} values of {self.name}, which has {self.size}")
        values = np.zeros(self.size) if payload is None else payload.astype(np.float64)
        match message.kind:
            case "opening":
                link.heard, link.own = message.round, message.own
            case "replica":
                if message.round > self.closed:
                    self._replace(message.round, values)
            case "round":
                if message.round > self.closed:
                    link.rounds[message.round] = RoundPart(values, message.pushes, message.passed)

    def repeat(self, out: Out) -> None:
        for link in self.links.values():
            if link.unheard is not None:
                out.append(Send(link.peer, *link.unheard))
        super().repeat(out)

    @property
    def is_quiet(self) -> bool:
        return super().is_quiet and all(each.unheard is None for each in self.links.values())

    # Workers.

    def _progress(self, worker: int, incarnation: int) -> int:
        return max(self.closed, self.held.progress(worker, incarnation))

    def _take_update(self, worker: int, push: Push, update: Update, now: float) -> None:
        held = self.held
        assert update is not None, "an update without values counts in its round as zeros"
        held.record(worker, push.incarnation, push.progress)
        raw, n = held.own.ahead.get(push.progress, (np.zeros(self.size), 0))
        held.own.ahead[push.progress] = (raw + update, n + 1)
        for stream in self.streams.values():
            assert isinstance(stream, RoundStream), "this bucket has made it"
            stream.pushed(push.progress)
        self.pending.append(Pending(held.position, self.terms.me, update.astype(np.float64, copy=False)))

    def _show_update(self, update: Update) -> None:
        """An update counts when its round is whole."""

    def _update(self, push: Push, payload: Payload | None) -> Reals:
        return np.zeros(self.size) if payload is None or push.empty else payload.astype(np.float64)

    def _may_answer(self, request: Request) -> bool:
        return request.position <= self.stored and request.message.progress <= self.closed
