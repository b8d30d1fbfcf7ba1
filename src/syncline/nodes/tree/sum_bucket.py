"""One bucket on a node of the tree: how replicas come to agree. The law of the protocol.

1. The replica is theta = theta0 + x + the sum of the mirrors: x is what the node's own workers have pushed, by origin;
   the mirror of a link is everything on the other side of it. These are the summands.
2. What a node sends over a link is the sum of all its other summands. It accumulates what each neighbour is owed.
3. The view says which summands a node shall have: the origins that it holds, and its links (the target). A sum, the
   replica or what is sent over a link, is made of the summands of one view (its basis). It changes over to the target
   when all summands of the target that it needs are there: for the replica all, for a link all others. Until then it
   keeps its basis: summands that the view lacks stay as they were.
4. A node that starts again, or is new, has no basis. So it sends over a link when it has all other summands, and
   answers workers when it has all.
5. An origin becomes a summand when it is stored (tree_bucket.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from syncline.effects import Effect, Received, Send, SetTimer
from syncline.errors import PeerError
from syncline.layout import Bucket, Payload, Values
from syncline.messages import Message
from syncline.nodes.tree.held_updates import OriginUpdates
from syncline.nodes.tree.link_end import LinkEnd, Session
from syncline.nodes.tree.messages import Counted, SideHeard, SideSum
from syncline.nodes.tree.summand import Basis, Key, Summand, Summands, add_to, link_key, x_key
from syncline.nodes.tree.tree_bucket import AnswerRule, TreeBucket, Update
from syncline.nodes.tree.tree_terms import TreeTerms
from syncline.nodes.update_writer import bucket_codec, check_written
from syncline.reals import Reals

Out = list[Effect]

EARLY = 0.02
"""Changes of several buckets that are due within this part of a period are sent together."""


class SumBucket(TreeBucket):
    """What a node knows about one bucket, with any consistency but `bsp`."""

    def __init__(self, name: Bucket, first: Values, terms: TreeTerms, gate: AnswerRule) -> None:
        super().__init__(name, first, terms, gate)
        self.basis: Basis | None = None
        self.summands = Summands(self.size)
        self.target: Basis = frozenset()
        self.links: dict[int, LinkEnd] = {}
        self._codec = bucket_codec(terms.settings.codec, terms.settings.layout, name)

    # Start and views.

    def start(self) -> None:
        super().start()
        self.basis = self.target
        for link in self.links.values():
            self.summands[link.key] = Summand(np.zeros(self.size), {})
            link.open_at_start(self.target - {link.key}, self.size)

    def _own_updates(self) -> OriginUpdates:
        """The node's own updates, which share their array with the summand unless they wait to be stored."""
        shown = self.summands[x_key(self.terms.me)] = Summand(np.zeros(self.size), {})
        return self._nothing() if self.terms.settings.durable else OriginUpdates(shown.values)

    def _show_origin(self, origin: int, updates: OriginUpdates) -> None:
        values = updates.values.copy() if self.terms.settings.durable else updates.values
        self.summands[x_key(origin)] = Summand(values, {origin: updates.count})

    def _aim(self) -> None:
        """Find the target of the view, and its links."""
        terms, place = self.terms, self.terms.place
        links: dict[int, LinkEnd] = {}
        origins: tuple[int, ...] = ()
        if place is not None:
            origins = place.origins
            for each in terms.tree.links:
                if terms.me in (each.one, each.other):
                    peer = each.one + each.other - terms.me
                    session = (each.number, place.incarnation, terms.incarnations[peer])
                    links[each.number] = self._link(peer, session)
        self.links = links
        self.target = frozenset((*map(x_key, origins), *map(link_key, links)))

    def _has_origin(self, origin: int) -> bool:
        return x_key(origin) in self.summands

    def _link(self, peer: int, session: Session) -> LinkEnd:
        link = self.links.get(session[0])
        if link is None:
            room = self.terms.settings.room
            return LinkEnd(self.name, peer, session, lambda: room(peer, SideSum, self.name))
        if link.session != session:
            link.reopen(session)
        return link

    # Sums.

    def advance(self, now: float, out: Out) -> None:
        """Let every sum change over to the target if it can, then send and answer what is due."""
        if self.target and self.basis != self.target and self.summands.have(self.target):
            self._change_basis()
        if self.basis == self.target:
            self.reached = self.terms.tree.since
        for link in self.links.values():
            wanted = self.target - {link.key}
            if link.basis != wanted and self.summands.have(wanted):
                self._change_link_basis(link, wanted)
        self._forget()
        self.send_due(now, out)
        self.answer(out)

    def _change_basis(self) -> None:
        self.basis = self.target
        self.version += 1
        self._stale = True

    def _change_link_basis(self, link: LinkEnd, wanted: Basis) -> None:
        if link.basis is not None:
            link.owe(self.summands.total(wanted - link.basis) - self.summands.total(link.basis - wanted))
        link.basis = wanted

    def _forget(self) -> None:
        """Forget the summands that no sum needs any more."""
        bases = [link.basis for link in self.links.values() if link.basis is not None]
        self.summands.keep(self.target.union(self.basis or (), *bases))

    def change(self, key: Key, change: Update, counts: Mapping[int, int]) -> None:
        """Add to a summand, and so to every sum that it is a part of. None: only the counts change."""
        self._changed(key, change, counts, [self.summands[key].values])

    def _changed(self, key: Key, change: Update, counts: Mapping[int, int], sums: Sequence[Reals] = ()) -> None:
        """A summand has changed, or changes now together with all other sums: `sums`."""
        self.summands[key].counts = dict(counts)
        if self.basis is not None and key in self.basis:
            self.version += 1
            self._stale = self._stale or change is not None
        if change is None:
            return
        owing = [link for link in self.links.values() if link.basis is not None and key in link.basis]
        add_to([*sums, *(owed for link in owing for owed in link.take(change))], change)

    @property
    def theta(self) -> Reals:
        """The replica in float64; a new array."""
        return self.first + self.summands.total(self.basis or ())

    def _rounded(self) -> Values:
        return self.summands.replica(self.first, self.basis or ())

    def contained(self) -> dict[int, int]:
        return {} if self.basis is None else self.summands.counts(self.basis)

    @property
    def serves(self) -> bool:
        return self.basis is not None and self.terms.place is not None

    # Links.

    def link_message(self, event: Received, message: Message, now: float, out: Out) -> None:
        match message:
            case SideSum():
                self._side_sum(event, message, now, out)
            case SideHeard():
                self._side_heard(event, message, now, out)
            case _:
                raise PeerError(f"{type(message).__name__} needs consistency bsp")

    def _side_sum(self, event: Received, message: SideSum, now: float, out: Out) -> None:
        link = self.links.get(message.link)
        if link is None or event.source != link.peer or not link.is_of_session(message):
            return
        if message.number > link.expected:
            raise PeerError(f"change {message.number} of {self.name}, but {link.expected} comes next")
        out.append(Send(event.source, link.answer(self.terms.view, message)))
        if message.number == link.expected:
            link.expected += 1
            self._take_side(link, message, self._values(message, event.payload))
            self.advance(now, out)

    def _values(self, message: SideSum, payload: Payload | None) -> Values | None:
        if payload is None:
            return None
        if message.size:
            check_written(self._codec, payload, self.size)
            payload = self._codec.decode(payload, np.empty(self.size, np.float32))
        if payload.size != self.size:
            raise PeerError(f"a change of {payload.size} values of {self.name}, which has {self.size}")
        return payload

    def _take_side(self, link: LinkEnd, message: SideSum, values: Values | None) -> None:
        counts = dict(message.counts)
        if message.number and link.key in self.summands:
            self.change(link.key, values, counts)
            return
        whole = np.zeros(self.size) if values is None else values.astype(np.float64)
        if link.key not in self.summands:
            self.summands[link.key] = Summand(whole, counts)
            return
        mirror = self.summands[link.key]
        before, mirror.values = mirror.values, whole
        self._changed(link.key, whole - before, counts)

    def _side_heard(self, event: Received, message: SideHeard, now: float, out: Out) -> None:
        link = self.links.get(message.link)
        if link is not None and event.source == link.peer and link.heard(message):
            self.send_due(now, out)

    def send_due(self, now: float, out: Out) -> None:
        for link in self.links.values():
            if link.unheard is None and link.basis is not None:
                self._send(link, now, out)
        self.copy_due(now, out)

    def _send(self, link: LinkEnd, now: float, out: Out) -> None:
        assert link.basis is not None
        terms = self.terms
        counts = _counted(self.summands.counts(link.basis))
        due = link.due(counts, workers=bool(terms.members), period=terms.settings.period)
        if due is None:
            return
        if now < due - EARLY * terms.settings.period:
            self._wake(link, due, now, out)
            return
        if not link.has_news(counts):
            return
        if link.owed is None:
            link.owe_whole(self.summands.total(link.basis))
        keys = (terms.me, link.session[0], link.next_number, self.name.start)
        link.write(terms.view, counts, self._codec, lambda: terms.settings.draw.generator("codec", *keys))
        link.wrote(now, terms.settings.period)
        self._post(link, out)

    def _wake(self, link: LinkEnd, due: float, now: float, out: Out) -> None:
        """Set a timer, unless an earlier one is set."""
        if link.timer_due is None or due < link.timer_due:
            link.timer_due = due
            out.append(SetTimer(("send", link.session[0], self.name, due), due - now))

    def _post(self, link: LinkEnd, out: Out) -> None:
        assert link.unheard is not None
        out.append(Send(link.peer, *link.unheard))

    def timer(self, what: str, number: int, due: float, now: float, out: Out) -> bool:
        if what != "send":
            return super().timer(what, number, due, now, out)
        link = self.links.get(number)
        expired = link is not None and link.timer_due == due  # else it has been replaced by an earlier one
        if link is not None and expired:
            link.timer_due = None
            self.send_due(max(now, due), out)
        return expired

    def repeat(self, out: Out) -> None:
        for link in self.links.values():
            if link.unheard is not None:
                self._post(link, out)
        super().repeat(out)

    @property
    def is_quiet(self) -> bool:
        return super().is_quiet and all(each.unheard is None for each in self.links.values())

    @property
    def at_rest(self) -> bool:
        sums = [(link, self.summands.counts(link.basis)) for link in self.links.values() if link.basis is not None]
        sent = len(sums) == len(self.links) and not any(link.has_news(_counted(counts)) for link, counts in sums)
        return self.basis == self.target and sent and not self.missing and not self.pending

    # Workers.

    def _show_update(self, update: Update) -> None:
        key = x_key(self.terms.me)
        shown = self.summands[key].counts.get(self.terms.me, 0) + 1
        self.change(key, update, {self.terms.me: shown})


def _counted(counts: Mapping[int, int]) -> Counted:
    return tuple(sorted(counts.items()))
