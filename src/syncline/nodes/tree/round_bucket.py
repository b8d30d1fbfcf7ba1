"""One bucket on a node of the tree with `bsp`: the replica after a round is that of synchronous SGD.

1. Every summand is complete up to a round; later rounds wait beside it, as the sum of their pushes and their number.
2. A round of the node's own workers is whole when all of its live workers have pushed it, and checkpoint and copy
   contain that. A change over a link is one round of everything on the sender's side, sent when it is whole there.
3. A node closes a round when it has it of all summands: it divides each sum by the number of all pushes. So the content
   of a sum is known by its round: what comes a second time, or over another link, is the same.
4. The first message of a session is the sum up to the last round that any of its summands is complete to; the number of
   that round's pushes goes with it, so that a node that starts again can divide its own.
5. A node that starts again, or changes over to another view, does so at the greatest round of its summands.
6. A pull for round i is answered when the node has closed it.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from syncline.effects import Effect
from syncline.layout import Payload
from syncline.messages import Push
from syncline.nodes.tree.held_updates import OriginUpdates
from syncline.nodes.tree.link_end import LinkEnd, Session
from syncline.nodes.tree.messages import SideSum
from syncline.nodes.tree.summand import Key, link_key
from syncline.nodes.tree.tree_bucket import Pending, Request, TreeBucket
from syncline.reals import Reals

Out = list[Effect]

KEPT = 64
"""Of how many rounds a node remembers the number of pushes, for nodes that start again."""


class RoundSending:
    """Which rounds have been prepared for a link, and those that wait for an acknowledgement of the one before."""

    __slots__ = ("next_round", "queue", "session")

    def __init__(self, session: Session, next_round: int) -> None:
        self.session = session
        self.next_round = next_round
        self.queue: deque[tuple[int, int, Reals, bool]] = deque()
        """Round, pushes, values, and whether it is the sum up to that round."""


class RoundBucket(TreeBucket):
    """What a node knows about one bucket with `bsp`."""

    closed = -1
    """The last round that the replica contains."""
    begun = -1
    """The last round of the node's own workers that has been sent on or closed."""

    # Start and views.

    def start(self) -> None:
        self.mirrors: dict[int, OriginUpdates] = {}
        self.totals: dict[int, int] = {}
        self.sending: dict[int, RoundSending] = {}
        super().start()
        for number, link in self.links.items():
            self.mirrors[number] = OriginUpdates(np.zeros(self.size))
            self.sending[number] = RoundSending(link.session, 0)

    def _own_updates(self) -> OriginUpdates:
        return OriginUpdates(np.zeros(self.size))

    def restore(self, *arguments: object) -> None:
        self.mirrors, self.totals, self.sending = {}, {}, {}
        super().restore(*arguments)  # type: ignore[arg-type]

    def _show_origin(self, origin: int, updates: OriginUpdates) -> None:
        """The origin itself is the summand."""

    def _show_update(self, update: Reals) -> None:
        """An update counts when its round is whole."""

    def _has_origin(self, origin: int) -> bool:
        waits = any(each.origin == origin and each.update is None for each in self.pending)
        return origin in self.held.by_origin and not waits

    def contained(self) -> dict[int, int]:
        return {self.terms.me: self.closed + 1}

    @property
    def latest(self) -> int:
        """The last round that any node has begun, as far as this one knows: a joiner can take part in the next."""
        sums = (*self.held.by_origin.values(), *self.held.gifts.values(), *self.mirrors.values())
        return max([self.closed, self.begun, *(max([each.round, *each.ahead]) for each in sums)])

    # Rounds.

    def _part(self, key: Key) -> OriginUpdates | None:
        if key[0] == "link":
            return self.mirrors.get(key[1])
        return self.held.by_origin[key[1]] if self._has_origin(key[1]) else None

    def _parts(self, keys: frozenset[Key]) -> list[tuple[Key, OriginUpdates]] | None:
        """The summands with these keys; None if one of them is not there yet."""
        found = [(key, self._part(key)) for key in sorted(keys)]
        return None if any(each is None for _, each in found) else found  # type: ignore[return-value]

    def advance(self, now: float, out: Out) -> None:
        wanted = frozenset(map(link_key, self.links))
        kept = {number for number in self.mirrors if link_key(number) in wanted}
        self.mirrors = {number: self.mirrors[number] for number in kept}
        progress = bool(self.target)
        while progress:
            progress = self._change_over() | self._close_next()
            for link in self.links.values():
                self._prepare(link)
        self.send_due(now, out)
        self.answer(out)

    def _change_over(self) -> bool:
        """Take the summands of the view as they are, at their greatest round, if all are there."""
        parts = self._parts(self.target)
        if parts is None:
            return False
        if self.basis == self.target:
            self.reached = self.terms.tree.since
            if max(part.round for _, part in parts) == self.closed:
                return False
        if self._raised([part for _, part in parts]) is None:
            return False
        self.basis = self.target
        self.closed = max(part.round for _, part in parts)
        self.begun = max(self.begun, self.closed)
        self._show(parts)
        return True

    def _raised(self, parts: list[OriginUpdates]) -> int | None:
        """Bring these summands to their greatest round; returns that round, None if one has to wait for a message."""
        most = max(part.round for part in parts)
        own = list(self.held.by_origin.values())
        for part in own:
            if part.total:
                self.totals.setdefault(part.round, part.total)
        for part in parts:
            while part.round < most:
                following = part.round + 1
                raw = part.ahead.get(following)
                if raw is not None and following in self.totals:
                    self._add(part, following, self.totals[following])
                elif raw is None and any(part is each for each in own):
                    part.round = most if not part.ahead else following  # its workers have pushed nothing in this round
                    part.total = self.totals.get(part.round, 0)
                else:
                    return None
        return most

    def _add(self, part: OriginUpdates, number: int, pushes: int) -> None:
        raw, _ = part.ahead.pop(number)
        if pushes:
            part.values += raw / pushes
        part.round, part.total = number, pushes

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

    def _rounds(self, keys: frozenset[Key], number: int) -> list[tuple[OriginUpdates, Reals, int]] | None:
        """The sum of this round and its number of pushes, of each of these summands; None if one lacks it."""
        parts = self._parts(keys)
        if parts is None or not self._is_whole(number):
            return None
        found = []
        for key, part in parts:
            raw = part.ahead.get(number)
            if raw is None and key[0] == "x" and part.round < number:
                raw = (np.zeros(self.size), 0)
            if raw is None or part.round != number - 1:
                return None
            found.append((part, *raw))
        return found

    def _close_next(self) -> bool:
        number = self.closed + 1
        if self.basis != self.target or self.basis is None:
            return False
        found = self._rounds(self.target, number)
        if found is None or not self._is_needed(number, sum(n for _, _, n in found)):
            return False
        for link in self.links.values():
            self._prepare(link)
        pushes = sum(n for _, _, n in found)
        self.totals[number] = pushes
        self.totals.pop(number - KEPT, None)
        for part, raw, n in found:
            part.ahead[number] = (raw, n)
            self._add(part, number, pushes)
        self.closed, self.begun = number, max(self.begun, number)
        self._show(self._parts(self.target) or [])
        return True

    def _is_needed(self, number: int, pushes: int) -> bool:
        """Whether anyone has pushed this round, or waits for a later one; else empty rounds would never end."""
        firsts = [member.first for member in self.terms.members.values()]
        return pushes > 0 or any(first is not None and first > number for first in firsts)

    def _show(self, parts: list[tuple[Key, OriginUpdates]]) -> None:
        self.theta = self.first + sum((part.values for _, part in parts), np.zeros(self.size))
        self.version += 1
        self._stale = True

    @property
    def at_rest(self) -> bool:
        parts = self._parts(self.target)
        if parts is None or self.basis != self.target or self.pending:
            return False
        open_rounds = any(pushes for _, part in parts for _, pushes in part.ahead.values())
        return not open_rounds and not any(each.queue for number, each in self.sending.items() if number in self.links)

    # Links.

    def _prepare(self, link: LinkEnd) -> None:
        """Prepare what can be sent over a link: the first message of a session, and whole rounds."""
        number = link.session[0]
        others = self.target - {link.key}
        sending = self.sending.get(number)
        if sending is None or sending.session != link.session:
            sending = RoundSending(link.session, -1)
        parts = self._parts(others)
        if parts is None:
            return
        if max(part.round for _, part in parts) >= sending.next_round:
            most = self._raised([part for _, part in parts])
            if most is None:
                return
            self.sending[number] = sending
            total = sum((part.values for _, part in parts), np.zeros(self.size))
            sending.queue.append((most, self.totals.get(most, 0), total, True))
            sending.next_round = most + 1
        if self.closed >= sending.next_round - 1:
            found = self._rounds(others, sending.next_round)
            if found is not None:
                raw = sum((each for _, each, _ in found), np.zeros(self.size))
                sending.queue.append((sending.next_round, sum(n for _, _, n in found), raw, False))
                self.begun = max(self.begun, sending.next_round)
                sending.next_round += 1

    def send_due(self, now: float, out: Out) -> None:
        for number, link in self.links.items():
            sending = self.sending.get(number)
            if link.unheard is None and sending is not None and sending.session == link.session and sending.queue:
                self._send_round(link, *sending.queue.popleft())
                self._post(link, out)
        self.copy_due(now, out)

    def _send_round(self, link: LinkEnd, number: int, pushes: int, values: Reals, whole: bool) -> None:
        rest = values if link.owed is None or whole else values + link.owed
        payload: Payload = rest.astype(np.float32)
        link.owed = rest - payload
        known = tuple(sorted(self.totals.items())) if whole else ()
        message = SideSum(
            self.terms.view,
            *link.session,
            self.name,
            link.next_number,
            (),
            0,
            round=number,
            pushes=pushes,
            whole=whole,
            totals=known,
        )
        link.unheard = (message, payload)
        link.next_number += 1

    def _take_side(self, link: LinkEnd, message: SideSum, values: Reals) -> None:
        mirror, number = self.mirrors.get(link.session[0]), message.round
        if not message.whole:
            assert mirror is not None
            if number > mirror.round and number not in mirror.ahead:
                mirror.ahead[number] = (values, message.pushes)
            return
        for each, pushes in message.totals:
            self.totals.setdefault(each, pushes)
        if mirror is None:
            mirror = self.mirrors[link.session[0]] = OriginUpdates(values)
            mirror.round = number
        elif number > mirror.round and number not in mirror.ahead:
            others = self._rounds(self.target - {link.key}, number) if number == mirror.round + 1 else None
            if others is not None and message.pushes:
                rest = message.pushes - sum(n for _, _, n in others)
                mirror.ahead[number] = ((values - mirror.values) * message.pushes, rest)
                return
            mirror.values, mirror.round = values, number
            mirror.ahead = {each: raw for each, raw in mirror.ahead.items() if each > number}

    # Workers.

    def _take_update(self, worker: int, push: Push, update: Reals, now: float) -> None:
        held = self.held
        held.record(worker, push.incarnation, push.progress)
        raw, n = held.own.ahead.get(push.progress, (np.zeros(self.size), 0))
        held.own.ahead[push.progress] = (raw + update, n + 1)
        for stream in self.streams.values():
            stream.changed = None
        self.pending.append(Pending(held.position, self.terms.me, update))

    def _update(self, push: Push, payload: Payload | None) -> Reals:
        return np.zeros(self.size) if payload is None or push.empty else payload.astype(np.float64)

    def _may_answer(self, request: Request) -> bool:
        return request.position <= self.stored and request.message.progress <= self.closed
